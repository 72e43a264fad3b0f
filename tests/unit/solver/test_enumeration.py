"""Enumeration and counting: completeness, limits, cancellation, pins."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError
from mapper.solver.counting import count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.space import build_space
from tests.unit.constraint_rules.nests import listing_1, listing_3, published_tree

SPACE = build_space(listing_3(), Mode.PAPER)


def test_all_are_given_once():
    with enumerate_assignments(SPACE) as found:
        keys = [tuple(assignment.values()) for assignment in found]
    assert found.complete and len(keys) == len(set(keys)) == found.count == 40


def test_a_limit_below_the_number_is_incomplete():
    progress: list[int] = []
    with enumerate_assignments(SPACE, limit=7, progress=progress.append) as found:
        assert len(list(found)) == 7
    assert found.complete is False and progress == list(range(1, 8))


def test_a_limit_of_the_exact_number_is_complete():
    with enumerate_assignments(SPACE, limit=40) as found:
        assert len(list(found)) == 40
    assert found.complete is True


def test_cancellation_stops_soon():
    space = build_space(published_tree(), Mode.PAPER)
    taken: list[object] = []
    with enumerate_assignments(space, cancelled=lambda: len(taken) >= 5) as found:
        for assignment in found:
            taken.append(assignment)
    assert len(taken) == 5 and found.complete is False


def test_a_time_limit_is_kept():
    space = build_space(published_tree(), Mode.PAPER)
    try:
        with enumerate_assignments(space, time_limit_s=0.2) as found:
            assert len(list(found)) < 41_094
        assert found.complete is False
    except LimitError as error:  # a machine so slow that it was over before the first one
        assert "time limit" in str(error)


def test_an_iterator_may_be_dropped():
    space = build_space(published_tree(), Mode.PAPER)
    found = enumerate_assignments(space)
    next(found)
    found.close()
    assert found.complete is False and list(found) == []


def test_pins():
    pins: dict[Variable, int] = {CodeVariable("A"): 20}
    with enumerate_assignments(SPACE, pins) as found:
        given = list(found)
    assert found.complete and given
    assert {assignment[CodeVariable("A")] for assignment in given} == {20}
    assert count_mappings(SPACE, pins).mappings == len(given)


def test_wrong_pins_are_named():
    with pytest.raises(InputError, match=r"code\(Z\): no such variable"):
        enumerate_assignments(SPACE, {CodeVariable("Z"): 0})
    with pytest.raises(InputError, match=r"code\(A\): the pinned value is not allowed"):
        enumerate_assignments(SPACE, {CodeVariable("A"): 1})


def test_strict_counts_are_of_mappings_not_of_local_sizes():
    space = build_space(listing_1("l"))
    count = count_mappings(space)
    # One local size for each dimension is enough here: every mapping can use 1.
    pins: dict[Variable, int] = {LocalSizeVariable("k", d): 1 for d in range(3)}
    with enumerate_assignments(space, pins) as found:
        assert len(list(found)) == count.mappings > 0
    assert count_mappings(space, pins) == count
