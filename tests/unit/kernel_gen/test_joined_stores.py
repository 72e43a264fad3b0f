"""Stores to neighbours in global memory become vectors where they always happen, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.profiles import load_profile
from nestmap.soundness.judges import Judge
from nestmap.soundness.replay import case_of, faults_of

DEVICE = load_profile("pocl")
MAPPING = {"r": "G0", "a": "S", "b": "S"}


def case(length: int, result: str) -> dict[str, Any]:
    """Rows of this length, kept in registers and written out as ``result``."""
    program = f"""program "p" {{ input x : [[float]{length}]4
      kernel out = {result.replace("ROWS", ROWS)} }}"""
    return {
        "program": program,
        "assignment": {"mapping": MAPPING, "local_sizes": {"out": [2, 1, 1]}},
    }


ROWS = """map#r(row =>
        let t = to_private(map#a(v => add(v, v), row)) in map#b(v => mul(v, 0.5), t), x)"""
#: A row's length, what becomes of the rows, and how many stores of 4, 2 and 1 elements are printed.
CASES = {
    "whole rows": (8, "ROWS", (2, 0, 0)),
    "rows that end in a pair and one": (7, "ROWS", (1, 1, 1)),
    "rows with their end cropped": (8, "map#u(row => pad(0, -1, 0.0, row), ROWS)", (1, 1, 1)),
    "rows with their start cropped": (8, "map#u(row => pad(-3, 0, 0.0, row), ROWS)", (1, 0, 1)),
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


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_together_is_right(judges: dict[str, Judge], name: str) -> None:
    length, result, _ = CASES[name]
    assert faults_of(case(length, result), DEVICE, judges) == []
