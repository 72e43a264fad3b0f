"""Every assignment of tiny programs: accepted ones run right, lost ones are lost on purpose.

The same campaign over all programs is ``nestmap bench completeness``; its figures stand in
docs/completeness.md.
"""

from __future__ import annotations

import secrets
from functools import cache

import pytest

from bench.proofs.completeness import campaign
from bench.proofs.completeness.campaign import RIGHT, ProgramResult, walk_program
from bench.proofs.completeness.judge import Verdict
from bench.proofs.completeness.programs import SmallProgram, family, random_programs
from bench.proofs.completeness.restrictions import explanations
from bench.proofs.completeness.walk import Grid
from mapper.constraint_rules.rule import RuleOptions
from tests.effort import LONG

pytestmark = pytest.mark.kernels

PROGRAMS = {program.name: program for program in family()}
SMALL = Grid(1, local_sizes=((1, 2, 4),), widths=(2,))
NEEDS = pytest.mark.needs("oclgrind", install="apt-get install oclgrind")


def walked(program: SmallProgram) -> ProgramResult:
    return walk_program(program, SMALL, device_checks=3)


@cache
def walked_by_name(name: str) -> ProgramResult:
    return walked(PROGRAMS[name])


def assert_complete_but_for_restrictions(result: ProgramResult) -> None:
    assert result.failures == []
    assert result.accepted[Verdict.RIGHT.value] > 0 or result.widened[Verdict.RIGHT.value] > 0
    new = {rules: n for rules, n in result.lost_wide.kernels.items() if not explanations(rules)}
    assert not new, (new, {rules: result.lost_wide.examples[rules] for rules in new}, result.text)


#: Like one of the others: in full only.
LONG_ONLY = (
    "two loops private same",
    "two loops local same",
    "two short loops global reversed",
    "row sums global",
)[: None if LONG else 0]


@NEEDS
@pytest.mark.parametrize(
    "name",
    [
        "rows",
        "parameter",
        "two loops local reversed",
        "scalar local",
        "tile local reversed",
        *LONG_ONLY,
    ],
)
def test_what_is_lost_is_a_documented_restriction(name: str) -> None:
    assert_complete_but_for_restrictions(walked_by_name(name))


@NEEDS
@pytest.mark.parametrize("seed", [7, secrets.randbelow(10**6)], ids=["fixed", "fresh"])
def test_so_it_is_for_a_random_program(seed: int) -> None:
    print("seed", seed)
    (program,) = random_programs(seed, 1)
    assert_complete_but_for_restrictions(walked(program))


@NEEDS
def test_a_rule_that_refuses_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the switches, what only they admit counts as lost and has no explanation."""
    monkeypatch.setattr(campaign, "WIDE", RuleOptions())
    lost = walked(PROGRAMS["line"]).lost_wide.kernels
    assert lost[("thread-dimensionality",)] > 0
    assert not explanations(("thread-dimensionality",))


@NEEDS
def test_a_rule_that_refuses_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no rule speaks, racing kernels are accepted, and the campaign says so."""
    monkeypatch.setattr(campaign, "PREFERENCES", frozenset({"cross-group-dependence"}))
    result = walked(PROGRAMS["two loops global reversed"])
    assert {failure["verdict"] for failure in result.failures} & {"race", "wrong"}


@NEEDS
def test_every_outcome_is_counted_once() -> None:
    result = walked_by_name("rows")
    counted = sum(outcomes.total() for outcomes in result.rejected.values())
    counted += result.accepted.total() + result.not_preferred.total()
    assert counted == result.assignments
    lost = sum(outcomes[RIGHT] for outcomes in result.rejected.values())
    assert 0 < result.lost.kernels.total() <= lost
