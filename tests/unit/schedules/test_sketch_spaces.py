"""Spaces of sketches under the rules of suitability: counted, drawn from, and kernels of them."""

from __future__ import annotations

from random import Random

import pytest

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.pipeline import derive_space, generate_kernels, subject_of_program
from mapper.profiles import load_profile
from mapper.schedules.sketches.derivation import sketches_of
from mapper.solver.factored.suited import SuitedSpace

PRODUCT = """program "p" {
  size M = 64
  size N = 64
  size K = 32
  input a : [[float]K]M
  input b : [[float]N]K
  kernel product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}
"""
BIASED = """program "p" {
  size M = 64
  size N = 64
  size K = 32
  input a : [[float]K]M
  input b : [[float]N]K
  input bias : [float]M
  fun plus_relu(x, y) = max(x + y, 0.0)
  kernel product = map#row(x => join(map#column(y => map#behind(sum => plus_relu(sum, x.1),
    reduce((acc, k) => fma(k.0, k.1, acc), 0.0, zip(x.0, y))), transpose(b))), zip(a, bias))
}
"""
SUITS = frozenset(ALL_SUITS)


@pytest.mark.parametrize(
    ("text", "device", "name"),
    [
        (PRODUCT, "pocl", "tile-packed-column"),
        (PRODUCT, "pocl", "tile-column"),
        (PRODUCT, "h200", "blocks-local-column"),
        (PRODUCT, "h200", "blocks-sliced-column"),
        (BIASED, "pocl", "tile-column"),
        (BIASED, "h200", "blocks-column"),
        (BIASED, "h200", "blocks-local-column"),
        (BIASED, "h200", "blocks-sliced-column"),
    ],
)
def test_a_product_gets_kernels_from_a_sketch(text: str, device: str, name: str) -> None:
    profile = load_profile(device)
    program = parse(text)
    sketch = next(s for s in sketches_of(program, profile) if s.name == name)
    subject = subject_of_program(sketch.program, name)
    options = RuleOptions(free_grid=True, suits=SUITS)
    space = SuitedSpace(derive_space(subject, Mode.STRICT, profile, options))
    assert space.count_mappings() > 0
    drawn = space.draw_joint(Random(1))
    assert drawn is not None
    assert "__kernel" in generate_kernels(subject, drawn).source
