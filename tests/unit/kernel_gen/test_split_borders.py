"""Copies with a border are printed in pieces that ask nothing of the loop's variable, and copy
what they copied."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.proofs.soundness.judges import Judge
from bench.proofs.soundness.replay import case_of, faults_of
from mapper.profiles import load_profile

DEVICE = load_profile("pocl")
#: A row's length, what is copied of the rows, and the trips of the loops over it.
CASES = {
    "a border on both sides": (20, "map#a(v => id(v), pad(2, 3, 0.5, row))", (2, 20, 3)),
    "a border of one element": (20, "map#a(v => id(v), pad(1, 0, 0.5, row))", (20,)),
    "two borders, one around the other": (
        20, "map#a(v => id(v), pad(3, 0, 2.0, pad(2, 2, 0.5, row)))", (3, 2, 20, 2),
    ),
    "a border that is cropped again": (
        20, "map#a(v => id(v), pad(-1, 0, 0.0, pad(3, 2, 0.5, row)))", (2, 20, 2),
    ),
    "no border": (20, "map#a(v => id(v), row)", (20,)),
    "backwards": (20, "map#a(v => id(v), reorder(reverse, pad(2, 3, 0.5, row)))", (25,)),
    "a short row": (4, "map#a(v => id(v), pad(1, 1, 0.5, row))", (6,)),
    "pairs, fused": (
        20, "map#a(pair => map#b(v => id(v), pair), pad(2, 3, 0.5, split(2, row)))", (4, 20, 6),
    ),
    "pairs that a border cuts apart": (
        21, "map#a(pair => map#b(v => id(v), pair), split(2, pad(4, 5, 0.5, row)))", (30,),
    ),
}  # fmt: skip


def case(length: int, copied: str) -> dict[str, Any]:
    """Three rows of this length, and what one work-item each copies of them."""
    program = f"""program "p" {{ input x : [[float]{length}]3
      kernel out = map#r(row => {copied}, x) }}"""
    codes = {"r": "G0", "a": "S"} | ({"b": "F"} if "#b" in copied else {})
    return {
        "program": program,
        "assignment": {"mapping": codes, "local_sizes": {"out": [1, 1, 1]}},
    }


def loops(source: str) -> tuple[int, ...]:
    """Trips of the loops of a work-item."""
    return tuple(int(trip) for trip in re.findall(r"for \(index_t \w+ = 0; \w+ < (\d+);", source))


@pytest.mark.parametrize("name", CASES)
def test_a_copy_with_a_border_is_in_pieces(name: str) -> None:
    length, copied, expected = CASES[name]
    source = case_of(case(length, copied), DEVICE).plan.source
    assert loops(source) == expected
    if len(expected) > 1:
        assert " ? " not in source and "inside" not in source


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", CASES)
def test_what_is_copied_in_pieces_is_right(judges: dict[str, Judge], name: str) -> None:
    length, copied, _ = CASES[name]
    assert faults_of(case(length, copied), DEVICE, judges) == []


ROWS_OUTSIDE = {
    "program": """program "p" { input x : [[float]20]3
      kernel out = map#r(row => map#a(v => id(v), row),
        pad(1, 1, 0.5, map#u(row => pad(2, 3, 0.5, row), x))) }""",
    "assignment": {"mapping": {"r": "G0", "a": "S"}, "local_sizes": {"out": [1, 1, 1]}},
}


def copies_of_registers(border: int) -> dict[str, Any]:
    """Of each row 20 copies with a border: the row is in registers, so that its elements are
    unrolled and the copies are not."""
    program = f"""program "p" {{ input x : [[float]4]3 input y : [float]20
      kernel out = map#r(row => let p = to_private(map#c(v => id(v), row)) in
        map#a(q => map#b(v => id(v), q), pad({border}, 3, 0.5, map#u(z => p, y))), x) }}"""
    codes = {"r": "G0", "c": "S", "a": "S", "b": "F"}
    return {
        "program": program,
        "assignment": {"mapping": codes, "local_sizes": {"out": [1, 1, 1]}},
    }


def test_which_row_it_is_stays_a_question_of_its_inside_alone() -> None:
    source = case_of(ROWS_OUTSIDE, DEVICE).plan.source
    assert loops(source) == (2, 20, 3)
    assert source.count("= 0.5f;") == 2
    assert source.count("const int inside_") == 1
    assert "/* map a: S, a from 2 to 21 */" in source


@pytest.mark.parametrize(("border", "trips"), [(1, (20, 3)), (2, (2, 20, 3))])
def test_pieces_are_unrolled_inside(border: int, trips: tuple[int, ...]) -> None:
    source = case_of(copies_of_registers(border), DEVICE).plan.source
    assert loops(source) == trips
    assert "p_p_0" in source


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("case", [ROWS_OUTSIDE, copies_of_registers(1), copies_of_registers(2)])
def test_such_pieces_are_right(judges: dict[str, Judge], case: dict[str, Any]) -> None:
    assert faults_of(case, DEVICE, judges) == []
