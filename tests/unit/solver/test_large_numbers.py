"""Numbers that do not fit 32 or 64 bits are computed exactly or refused, whoever solves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError
from mapper.solver import lowering
from mapper.solver.counting import Mappings, count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.nearest import nearest
from mapper.solver.space import Space, check
from mapper.tuning_space.codec import space_from_json
from mapper.tuning_space.lowering import solver_space


def space_of(parameters: Mapping[str, list[int]], *constraints: str) -> Space:
    document = {
        "schema": "nestmap/space/1",
        "name": "large",
        "parameters": parameters,
        "constraints": list(constraints),
    }
    return solver_space(space_from_json(document))


def by_hand(space: Space) -> set[tuple[int, ...]]:
    """All valid assignments, by plain Python."""
    names = [variable for variable, _ in space.variables]
    rows = product(*(domain for _, domain in space.variables))
    return {row for row in rows if not check(space, dict(zip(names, row, strict=True)))}


def enumerated(space: Space) -> set[tuple[int, ...]]:
    with enumerate_assignments(space) as found:
        rows = [tuple(assignment.values()) for assignment in found]
    assert found.complete
    return set(rows)


# CP-SAT lost solutions of tables with cells beyond 32 bits.
BEYOND_32_BITS = [
    space_of({"a": [0, 2**31], "d": [9, 3, -1, -3, -5], "e": [1, -2, 4]}, "(a * 3) / e > d >= e"),
    space_of({"a": [0, 2**31 + 5, -(2**40)], "b": list(range(1, 41))}, "a % b == 2 * (a // b) % 3"),
    space_of({"b": [-(2**40), 2**31, *range(40)], "a": [1, 4, -3, 2]}, "b % a not in [1, 2]"),
]


@pytest.mark.parametrize("space", BEYOND_32_BITS)
@pytest.mark.parametrize("table_rows", [lowering.TABLE_ROWS, 0])
def test_cp_sat_finds_every_solution_with_values_beyond_32_bits(
    space: Space, table_rows: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lowering, "TABLE_ROWS", table_rows)
    expected = by_hand(space)
    assert expected
    assert enumerated(space) == expected


# What 64 bits do not hold, among bounds, in constants, and beside unsigned numbers.
BEYOND_64_BITS = [
    space_of({"b": [2**32 - 1, 2**63 - 1], "d": [-5, 3, 0, -2]},
             "d >= max((d / b) % b, min(d / 7, d)) == b // b + (8589934592 // b)",
             "1 > b or d not in [3]"),
    space_of({"a": [2**63 - 1, 0], "b": [9, 10, -3, 5, -5]},
             "min(b / a, (a if b >= 1 else b)) % abs(b) == 0"),
    space_of({"a": [3, 9, 12], "b": [4, 8, 128, 16], "c": [-3, -1, 1, 3],
              "d": [2**62, 2**31, 10**12, 2**63 - 1]},
             "(a % 2 == 0 or c not in [max(b, a)]) == (b // (a + d) <= c * (d % c))"),
    space_of({"a": [1, 7], "x": [2**62, 2**62 + 1], "y": [3, 5]},
             "(x * 4 if a > 3 else -1) % y == (2**63 - 3) * a % y"),
]  # fmt: skip


@pytest.mark.parametrize("space", BEYOND_64_BITS)
def test_diagrams_are_exact_beyond_64_bits(space: Space):
    expected = by_hand(space)
    assert count_mappings(space).mappings == len(expected)
    assert {tuple(mapping.values()) for mapping in Mappings(space)} == expected


def test_factors_of_large_divisors_stay_within_what_cp_sat_takes():
    space = space_of({"a": [10**12, 7], "b": [10**12, 3, 10**6]}, "a % b == a // b")
    for table_rows in (0, lowering.TABLE_ROWS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lowering, "TABLE_ROWS", table_rows)
            assert enumerated(space) == by_hand(space)


def test_values_that_cp_sat_cannot_take_are_refused_and_not_left_out():
    space = space_of({"a": [2**63 - 1, *range(40)], "b": [1, 2]}, "a % b == 0")
    assert count_mappings(space).mappings == len(by_hand(space))
    with pytest.raises(LimitError, match="too large"):
        enumerate_assignments(space)
    variables: list[Variable] = [variable for variable, _ in space.variables]
    with pytest.raises(LimitError, match="too large"):
        nearest(space, {variables[0]: 3, variables[1]: 2})
