"""Table 1 of CC'22: each mapping's verdict on the program, and what becomes of the valid ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.pipeline import generate_kernels
from mapper.solver.space import check
from tests.kernels import run_once
from tests.unit.kernel_gen.listing1 import assignment, listing1, strict_space

IDS = "A B C D E"


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("name", "memory", "codes", "local_size", "rule"),
    [
        ("M1", "global", "G0 S F S F", (2, 1, 1), None),
        ("M2", "global", "G1 G0 S G0 S", (2, 2, 1), "cross-group-dependence"),
        ("M2", "local", "G1 G0 S G0 S", (2, 2, 1), "shared-memory-scoping"),
        ("M3", "global", "S W0 L0 W0 L0", (2, 1, 1), "cross-group-dependence"),
        ("M3", "local", "S W0 L0 W0 L0", (2, 1, 1), "shared-memory-scoping"),
        ("M4", "global", "W0 L0 S L0 S", (4, 1, 1), None),
        ("M4", "local", "W0 L0 S L0 S", (4, 1, 1), None),
        ("M5", "global", "W0 L0 S L0 V4", (4, 1, 1), "vectorisation"),
        ("M5", "local", "W0 L0 S L0 V4", (4, 1, 1), "vectorisation"),
        ("M6", "global", "W0 L0 V4 S L0", (4, 1, 1), None),
        ("M6", "local", "W0 L0 V4 S L0", (4, 1, 1), None),
    ],
)
def test_verdict_names_the_rule(
    name: str, memory: str, codes: str, local_size: tuple[int, int, int], rule: str | None
) -> None:
    subject = listing1(memory)
    space = strict_space(subject)
    chosen = assignment(space, IDS, codes, local_size)
    violations = check(space, chosen)
    assert (rule is None) == (not violations), (name, violations)
    if rule is not None:
        assert rule in {v.rule for v in violations}
        return
    plan = generate_kernels(subject, chosen)
    assert plan.source.count("barrier(") == (1 if name == "M4" else 0)
    x = np.random.default_rng(1).standard_normal((6, 8, 12)).astype(np.float32)
    expected = interpret(subject.require_program(), {}, {"x": x})
    np.testing.assert_allclose(run_once(plan, {"x": x}), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "memory", "codes"),
    [("m4", "local", "W0 L0 S L0 S"), ("m6", "global", "W0 L0 V4 S L0")],
)
def test_kernels_of_table1_read_as_they_did(
    golden: Callable[[str, str], None], name: str, memory: str, codes: str
) -> None:
    subject = listing1(memory)
    chosen = assignment(strict_space(subject), IDS, codes, (4, 1, 1))
    golden(f"kernels/table1_{name}_{memory}.cl", generate_kernels(subject, chosen).source)
