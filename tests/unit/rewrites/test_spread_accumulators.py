"""Accumulators that a work-group shares out: what the rule admits and what is printed."""

from __future__ import annotations

import pytest

from mapper.ast_model.builders import Builder, fill, identity, to_private
from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.nodes import Input, Kernel, Program
from mapper.ast_model.text_form import parse, to_text
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import FLOAT, array
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.errors import TypeErrors
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.rewrites.families import Family
from mapper.schedule import parse_code
from mapper.solver.space import Space, check
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals

LAYER = LayerSpec(channels=8, height=8, width=8, filters=16, kernel_height=3, kernel_width=3)


@pytest.fixture(scope="module")
def profile() -> DeviceProfile:
    return load_profile("h200")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of_layer(LAYER, "tiled")


@pytest.fixture(scope="module")
def space(subject: Subject, profile: DeviceProfile) -> Space:
    return derive_space(subject, Mode.STRICT, profile, RuleOptions())


@pytest.fixture(scope="module")
def candidate(subject: Subject, space: Space, profile: DeviceProfile) -> dict[Variable, int]:
    proposals = BlockedProposals(LAYER, "tiled", subject, space, profile, Family.GROUPS, 3)
    (found,) = proposals.propose(1)
    return dict(found)


def broken(space: Space, assignment: dict[Variable, int]) -> set[str]:
    return {violation.rule for violation in check(space, assignment)}


def test_a_candidate_of_the_family_keeps_every_rule(
    space: Space, candidate: dict[Variable, int]
) -> None:
    assert broken(space, candidate) == set()


def test_uses_that_are_spread_differently_are_refused(
    space: Space, candidate: dict[Variable, int]
) -> None:
    # One work-item would add up what others have set to zero.
    candidate = {**candidate, CodeVariable("item_mo"): int(parse_code("L1"))}
    assert "private-memory-scoping" in broken(space, candidate)


def test_a_local_size_other_than_the_iterations_is_refused(
    space: Space, candidate: dict[Variable, int]
) -> None:
    size = LocalSizeVariable("convolution", 0)
    assert "private-memory-scoping" in broken(space, {**candidate, size: candidate[size] // 2})


def test_accumulators_cannot_be_spread_over_work_groups(
    space: Space, candidate: dict[Variable, int]
) -> None:
    candidate = {**candidate, CodeVariable("zero_mo"): int(parse_code("W2"))}
    assert "private-memory-scoping" in broken(space, candidate)


def test_a_work_item_declares_its_own_accumulators_only(
    subject: Subject, candidate: dict[Variable, int]
) -> None:
    plan = generate_kernels(subject, candidate)
    values = {str(getattr(v, "name", "")): value for v, value in candidate.items()}
    accumulators = values["tr"] * values["tp"] * values["tm"]
    assert plan.launches[-1].private_bytes >= 4 * accumulators
    assert plan.launches[-1].private_bytes < 4 * accumulators * plan.launches[-1].local_size[0]
    assert [launch.prepared for launch in plan.launches] == [True, False]


def _kept(spread: int) -> Program:
    build = Builder()
    zeros = to_private(build.nest(("a", "b"), identity, fill(0.0, 4, 2)), spread)
    body = build.let(zeros, lambda kept: build.nest(("c", "d"), identity, kept))
    inputs = (Input("x", array(FLOAT, 2)),)
    return Program("kept", (), (), (), (), inputs, (Kernel("out", body),), ("x",))


@pytest.mark.parametrize("spread", [1, 2])
def test_programs_with_spread_and_constants_are_read_back(spread: int) -> None:
    program = _kept(spread)
    check_program(program)
    assert parse(to_text(program)) == program
    assert program_from_json(program_to_json(program)) == program


@pytest.mark.parametrize("spread", [3, -1])
def test_more_spread_dimensions_than_there_are_is_a_type_error(spread: int) -> None:
    with pytest.raises(TypeErrors, match="spread is not the number of leading dimensions"):
        check_program(_kept(spread))
