"""Listings of mappings with values: the same mappings in the same order, each of them valid."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from mapper.constraint_rules.predicate import CodeVariable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.layer_sets import layer_of_name
from mapper.pipeline import derive_space, subject_of_layer, subject_of_space
from mapper.profiles import load_profile
from mapper.solver.solutions import solutions_of
from mapper.solver.space import Space, check
from mapper.tuning_space.codec import space_from_json
from nestmap.subjects import load_subject

EXAMPLES = Path(__file__).parents[3] / "examples"


def _direct() -> Space:
    subject = subject_of_layer(layer_of_name("vgg16/28"), "direct")
    return derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())


def _tree() -> Space:
    subject = load_subject(str(EXAMPLES / "cc22_convolution_tree.json"))
    return derive_space(subject, Mode.PAPER, load_profile("pocl"), RuleOptions())


def _parameters() -> Space:
    document = {
        "schema": "nestmap/space/1",
        "name": "tiles",
        "parameters": {"tile": [1, 2, 4, 8, 16, 32], "lanes": [1, 2, 4, 8, 16], "split": [1, 2, 3]},
        "constraints": ["tile % lanes == 0", "lanes * split <= 16"],
    }
    return derive_space(
        subject_of_space(space_from_json(document)),
        Mode.STRICT,
        load_profile("pocl"),
        RuleOptions(),
    )


SPACES = pytest.mark.parametrize(
    "make", [_direct, _tree, _parameters], ids=["joint", "codes", "parameters"]
)


@SPACES
def test_each_mapping_comes_once_with_values_that_go_with_it(make: Callable[[], Space]):
    space = make()
    solutions = solutions_of(space)
    listed = list(islice(solutions.completed(), 60))
    plain = list(islice(solutions.mappings(), 60))
    for found in listed:
        assert check(space, found) == ()
    has_codes = any(isinstance(name, CodeVariable) for name, _ in space.variables)
    assert [
        {k: v for k, v in found.items() if isinstance(k, CodeVariable) or not has_codes}
        for found in listed
    ] == plain


@SPACES
def test_a_listing_goes_on_where_it_was_left(make: Callable[[], Space]):
    solutions = solutions_of(make())
    whole = list(islice(solutions.completed(), 40))
    for skip in (1, 5, 17, 39):
        assert list(islice(solutions.completed(skip), 40 - skip)) == whole[skip:]
