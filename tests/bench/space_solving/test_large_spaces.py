"""Spaces too large to enumerate: at a small size their independent counts are the truth."""

from dataclasses import replace

import pytest

from bench.space_solving.cases import (
    SPACES,
    TREE,
    TREE_NAME,
    known_names,
    load_cases,
    nest_case,
    tuning_case,
)
from bench.space_solving.contestants.numpy_builders import NumpyBruteForce, NumpyJoin
from bench.space_solving.contestants.problem import NotMeasured
from bench.space_solving.hopeless import fine_hotspot, reduction_over_divisors, side_by_side
from mapper.ast_model.nest_codec import nest_from_json
from mapper.constraint_rules.rule import Mode
from mapper.solver.diagram.compile import compile_space
from mapper.solver.space import build_space
from mapper.tuning_space.codec import space_from_json


def published(name):
    return space_from_json((SPACES / f"{name}.json").read_text(encoding="utf-8"))


def brute_force(space):
    contestant = NumpyBruteForce()
    contestant.prepare(tuning_case(space).problem)
    return contestant.count()


@pytest.mark.parametrize("size", [4, 6])
def test_the_count_of_reductions_is_the_truth(size):
    space = reduction_over_divisors(published("atf_prl_16x16"), size)
    assert space.expected_count == brute_force(space)


def test_the_count_of_fine_hotspots_is_the_truth():
    space = fine_hotspot(
        published("hotspot"), block_x=40, block_y=6, tile=4, time_steps=3, blocks=5
    )
    assert space.expected_count == brute_force(space)
    assert space.expected_count


def test_kernels_side_by_side_multiply():
    small = published("clblast_xconvgemm")
    both = side_by_side([small, published("hub_convolution")])
    assert both.expected_count == 193 * 4362
    assert brute_force(both) == both.expected_count


def test_brute_force_refuses_what_would_take_minutes():
    with pytest.raises(NotMeasured, match=r"6\.2e\+11"):
        NumpyBruteForce().prepare(tuning_case(published("atf_prl_16x16")).problem)


def test_the_large_spaces_have_their_sizes():
    names = [name for name in known_names() if not (SPACES / f"{name}.json").exists()]
    cases = {case.name: case for case in load_cases([n for n in names if n != TREE_NAME])}
    assert {name: case.expected for name, case in cases.items()} == {
        "atf_prl_4096x4096_divisors": 69_014_400,
        "hotspot_fine": 64_606_758,
        "hotspot+gemm+expdist": 349_853 * 116_928 * 294_000,
    }
    assert all(case.combinations > 10**11 and not case.enumerable for case in cases.values())


def test_the_tree_reaches_other_builders_as_expressions_with_the_same_mappings():
    document = TREE.read_text(encoding="utf-8")
    case = nest_case("tree", document)
    assert len(case.problem.parameters) == 43
    # Every second map pinned, so that joining parameter by parameter ends.
    space = build_space(nest_from_json(document).nest, Mode.PAPER)
    table = compile_space(space).table()
    first = table.assignment(0)
    pinned = {variable: first[variable] for variable, _ in space.variables[::2]}
    expected = sum(
        all(row[name] == value for name, value in pinned.items()) for row in table.assignments()
    )
    problem = replace(
        case.problem,
        parameters={
            name: (pinned[variable],) if variable in pinned else values
            for (variable, _), (name, values) in zip(
                space.variables, case.problem.parameters.items(), strict=True
            )
        },
    )
    contestant = NumpyJoin()
    contestant.prepare(problem)
    assert contestant.count() == expected > 1
