"""Layers in rows of channels (NCHW16c) and in 16-bit floats are rewritten like others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse
from mapper.ast_model.type_check import check_program
from mapper.layer_spec import DType, LayerSpec, Layout
from mapper.profiles import load_profile
from mapper.programs.high_level import high_level_convolution
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from mapper.schedules.sketches.derivation import sketches_of
from mapper.variants import LAST_RESORT, variant_program

#: A window over the places of each row, of all eight channels, which lie four by four.
PROGRAM = parse("""program "rows" {
  size C = 8
  size N = 6
  input a : [[[float]4]N](C/4)
  input w : [[float]3]C
  kernel out = join(map#x(v => reduce((acc, p) => fma(p.0, p.1, acc), 0.0,
    zip(join(v), join(w))), map#layout_t(t => transpose(t),
      transpose(map#layout_c(c => slide(3, 1, pad(1, 1, 0.0, c)),
        join(map#layout_b(b => transpose(b), a)))))))
}""")
INPUTS = {
    "a": np.random.default_rng(0).standard_normal((2, 6, 4)),
    "w": np.random.default_rng(1).standard_normal((8, 3)),
}


@pytest.mark.parametrize(
    "steps",
    [
        "border(x, a, wide)",
        "border(x, a, wide) split(x, 2) pack(x_tile, wide, packed)",
        "split(x, 3) pack(x_tile, a, packed)",
        "split(x, 3) pack(x_tile, a, packed, [3, 0, 2, 1])",
        "split(x, 2) overlap(x_tile, a)",
        "split(x, 2) overlap(x_tile, a) stage(x_tile, a, local)",
        "overlap(x, a) stage(x, a, private, once=true)",
        "border(x, a, b) split(x, 2) overlap(x_tile, b) stage(x_tile, b, local, [2, 0, 1])",
    ],
)
def test_steps_on_rows_of_channels_keep_the_meaning(steps: str) -> None:
    after = derived(PROGRAM, parse_schedule(f'schedule "s" {{ {steps} }}'))
    check_program(after)
    elaborate(after, {})
    np.testing.assert_allclose(
        interpret(after, {}, INPUTS), interpret(PROGRAM, {}, INPUTS), rtol=1e-12
    )


def test_a_layer_with_channels_in_rows_has_the_sketches_of_one_without() -> None:
    layer = LayerSpec(32, 6, 6, 32, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    names = {}
    for layout in (Layout.NCHW, Layout.NCHW16C):
        program = high_level_convolution(replace(layer, layout=layout))
        found = sketches_of(replace(program, constants=("weights",)), load_profile("pocl"))
        names[layout] = {s.name for s in found if s.name.endswith("-filter")}
    assert "tile-bordered-packed-windows-filter" in names[Layout.NCHW16C]
    assert names[Layout.NCHW] <= names[Layout.NCHW16C]


@pytest.mark.parametrize("device", ["pocl", "h200"])
def test_a_layer_in_16_bit_floats_has_the_sketches_of_one_in_32(device: str) -> None:
    # Operands are converted before they are multiplied: the order of the sums is as free.
    layer = LayerSpec(8, 8, 8, 8, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    profile, names = load_profile(device), list[set[str]]()
    for dtype in DType:
        program = variant_program(replace(layer, dtype=dtype), LAST_RESORT)
        names.append({s.name for s in sketches_of(program, profile)})
    assert names[0] == names[1] and len(names[0]) > 8
