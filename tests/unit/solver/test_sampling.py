"""Samples: distinct, valid, reproducible, exhaustive where few are left."""

from __future__ import annotations

import pytest

from mapper.ast_model.nodes import Parameter, Relation
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    compare,
    divides,
    multiply,
)
from mapper.constraint_rules.rule import Constraint, Mode, Provenance
from mapper.errors import UnsatisfiableError
from mapper.solver.sampling import complete, sample
from mapper.solver.space import Space, build_space, check
from tests.unit.constraint_rules.nests import listing_3, published_tree

SMALL = build_space(listing_3(), Mode.PAPER)
KG, SK = ParameterVariable("kg"), ParameterVariable("sk")
PARAMETERS = [Parameter("kg", tuple(range(1, 65))), Parameter("sk", tuple(range(0, 65)))]


def requirement(name: str, predicate) -> Constraint:
    return Constraint(name, "test", (), predicate, Provenance("test", ""), None, "", "")


def tuned() -> Space:
    size = LocalSizeVariable("cc22-mid-level-convolution", 0)
    extra = [
        requirement("test/1", divides(SK, KG)),
        requirement("test/2", divides(KG, 96)),
        requirement("test/3", compare(Relation.LE, multiply(size, SK), 256)),
    ]
    return build_space(published_tree(), parameters=PARAMETERS, extra=extra)


def key(assignment: dict[Variable, int]) -> tuple[int, ...]:
    return tuple(assignment.values())


def test_samples_are_valid_distinct_and_diverse():
    space = tuned()
    found = list(sample(space, 12, seed=1))
    assert len({key(a) for a in found}) == 12
    assert all(check(space, a) == () for a in found)
    assert len({a[KG] for a in found}) > 3
    assert len({a[CodeVariable(28)] for a in found}) > 1
    assert len({a[LocalSizeVariable("cc22-mid-level-convolution", 0)] for a in found}) > 3


def test_one_seed_gives_one_sequence():
    space = tuned()
    assert list(sample(space, 4, seed=7)) == list(sample(space, 4, seed=7))
    assert list(sample(space, 4, seed=7)) != list(sample(space, 4, seed=8))


def test_a_small_space_is_given_whole():
    assert len({key(a) for a in sample(SMALL, 100, seed=3)}) == 40


def test_pins_are_kept():
    pins: dict[Variable, int] = {CodeVariable("A"): 20}
    assert {a[CodeVariable("A")] for a in sample(SMALL, 5, 0, pins)} == {20}
    assert complete(SMALL, pins)[CodeVariable("A")] == 20


def test_nothing_to_find():
    pins: dict[Variable, int] = {CodeVariable("A"): 20, CodeVariable("B"): 20}
    with pytest.raises(UnsatisfiableError):
        complete(SMALL, pins)
    with pytest.raises(UnsatisfiableError):
        list(sample(SMALL, 1, 0, pins))


def test_contradictory_parameters():
    never = requirement("test/never", compare(Relation.GT, KG, 100))
    space = build_space(listing_3(), parameters=PARAMETERS, extra=[never])
    with pytest.raises(UnsatisfiableError):
        list(sample(space, 1, 0))
