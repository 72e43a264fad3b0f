"""Stores to neighbours in global memory become vectors where all of them happen or none does, and
only there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.proofs.soundness.judges import Judge
from bench.proofs.soundness.replay import case_of, faults_of
from mapper.profiles import load_profile

DEVICE = load_profile("pocl")
MAPPING = {"r": "G0", "a": "S", "b": "S"}


def case(length: int, result: str, code: str = "S") -> dict[str, Any]:
    """Rows of this length, kept in registers and written out as ``result``; ``code`` makes them."""
    program = f"""program "p" {{ input x : [[float]{length}]4
      kernel out = {result.replace("ROWS", ROWS)} }}"""
    return {
        "program": program,
        "assignment": {"mapping": {**MAPPING, "a": code}, "local_sizes": {"out": [2, 1, 1]}},
    }


ROWS = """map#r(row =>
        let t = to_private(map#a(v => add(v, v), row)) in map#b(v => mul(v, 0.5), t), x)"""
#: A row's length, what becomes of the rows, and how many stores of 4, 2 and 1 elements are printed.
CASES = {
    "whole rows": (8, "ROWS", (2, 0, 0)),
    "rows that end in a pair and one": (7, "ROWS", (1, 1, 1)),
    "rows with their end cropped": (8, "map#u(row => pad(0, -1, 0.0, row), ROWS)", (1, 1, 1)),
    "rows with their start cropped": (8, "map#u(row => pad(-3, 0, 0.0, row), ROWS)", (1, 0, 1)),
    "rows of which the last is left out": (8, "pad(0, -8, 0.0, join(ROWS))", (2, 0, 0)),
    "rows of which a half is left out": (8, "pad(0, -4, 0.0, join(ROWS))", (2, 0, 0)),
    "rows of which pairs are left out": (8, "pad(0, -6, 0.0, join(ROWS))", (0, 4, 0)),
    "rows of which some are left out": (8, "pad(0, -3, 0.0, join(ROWS))", (1, 0, 4)),
    "rows without what is before them": (8, "pad(-4, 0, 0.0, join(ROWS))", (1, 0, 4)),
    "columns": (8, "transpose(ROWS)", (0, 0, 8)),
    "rows backwards": (8, "map#u(row => reorder(reverse, row), ROWS)", (0, 0, 8)),
}


def stores(source: str) -> tuple[int, int, int]:
    """Stores to ``g_out`` of 4, of 2 and of 1 elements."""
    lines = [line for line in source.splitlines() if "g_out" in line and "restrict" not in line]
    of = [sum(f"(float{width})(" in line for line in lines) for width in (4, 2)]
    return of[0], of[1], len(lines) - sum(of)


@pytest.mark.parametrize("name", CASES)
def test_neighbours_are_stored_together(name: str) -> None:
    length, result, expected = CASES[name]
    assert stores(case_of(case(length, result), DEVICE).plan.source) == expected


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_together_is_right(judges: dict[str, Judge], name: str) -> None:
    length, result, _ = CASES[name]
    assert faults_of(case(length, result), DEVICE, judges) == []


#: Of rows that are kept in a vector: its length, what becomes of them, and the stores' widths.
WHOLE = "((__global float{0} *)g_out)[i_r] = (p_sum * (float{0})(0.5f));"
IN_VECTORS = {
    "a vector of 8": (8, "ROWS", WHOLE.format(8), (8,)),
    "a vector of 16": (16, "ROWS", WHOLE.format(16), (16,)),
    "a vector of 16 less its last": (
        16, "map#u(row => pad(0, -1, 0.0, row), ROWS)", "(p_sum.s0 * 0.5f), (p_sum.s1 * 0.5f)",
        (4, 4, 4, 2, 1),
    ),
    "a vector of 8 backwards": (
        8, "map#u(row => reorder(reverse, row), ROWS)", "= (p_sum.s0 * 0.5f)", (1,) * 8,
    ),
}  # fmt: skip


def widths(source: str) -> tuple[int, ...]:
    """Of the stores to ``g_out``, in order."""
    lines = [line for line in source.splitlines() if "g_out" in line and "restrict" not in line]
    wide = [re.search(r"\(__global float(\d+) \*\)|store(\d+)\(", line) for line in lines]
    return tuple(int(next(filter(None, one.groups()))) if one else 1 for one in wide)


@pytest.mark.parametrize("name", IN_VECTORS)
def test_what_is_kept_in_a_vector_is_stored_as_one(name: str) -> None:
    length, result, text, expected = IN_VECTORS[name]
    source = case_of(case(length, result, f"V{length}"), DEVICE).plan.source
    assert widths(source) == expected
    assert text in source


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", IN_VECTORS)
def test_what_was_kept_in_a_vector_is_right(judges: dict[str, Judge], name: str) -> None:
    length, result, _, _ = IN_VECTORS[name]
    assert faults_of(case(length, result, f"V{length}"), DEVICE, judges) == []
