"""Programs of several kernels: taken apart, combined again, and improved kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.proofs.schedules.computations import arrays
from db.store import Store
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import LoopKernel
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable, Variable, any_of, member
from mapper.constraint_rules.rule import Mode
from mapper.cost.cores import CoreCost
from mapper.errors import InputError
from mapper.measurement import Timed, Wrong, launch_fact
from mapper.pipeline import Subject, choices_of, derive_space, generate_kernels, subject_of_program
from mapper.profiles import load_profile
from mapper.schedules.sketches.derivation import ALL_FIRST, Combinations
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.space import Space, check
from nestmap.tuning.candidates import Candidate
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.kernel_parts import KernelPart, kernel_parts
from nestmap.tuning.part_search import PartSearch
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sketch_subjects import sketched_subjects, with_suits
from nestmap.tuning.starting_points import source_of
from nestmap.tuning.tuner import Trial, Tuner
from tests.effort import cases
from tests.kernels import run_once
from tests.several_kernels import SOFTMAX, programs
from tests.unit.tuning.fakes import timed
from tests.unit.tuning.test_sketch_search import chain
from worker.devices.null import NullDevice

POCL = load_profile("pocl")
PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]
SUBJECT = subject_of_program(SOFTMAX)
TWO = parse("""program "two" {
  size N = 8
  fun twice(v) = v + v
  input a : [float]N
  kernel first = map#one(v => twice(v), a)
  kernel second = map#two(v => twice(v), first)
}
""")


@cache
def subjects() -> tuple[Subject, ...]:
    return sketched_subjects(SUBJECT, POCL)


def space_of(subject: Subject) -> Space:
    return derive_space(subject, Mode.STRICT, POCL, with_suits(subject, DEFAULT_OPTIONS))


def loops_of(subject: Subject):
    return elaborate(subject.require_program()).kernels


def drawn_by_parts(subject: Subject, space: Space, random: Random) -> dict[Variable, int] | None:
    found: dict[Variable, int] = {}
    for part in kernel_parts(subject.require_program(), space):
        own = SuitedSpace(part.space).draw_joint(random)
        if own is None:
            return None
        found |= own
    return {name: found[name] for name, _ in space.variables}


# Taken apart


@settings(max_examples=cases(5, 200), deadline=None, suppress_health_check=PATIENT)
@given(programs(), st.randoms(use_true_random=False))
def test_combined_kernels_are_valid_together_and_compute_what_the_program_does(
    program: Program, random: Random
) -> None:
    subject = random.choice(sketched_subjects(subject_of_program(program), POCL)[:-1])
    space = space_of(subject)
    assignment = drawn_by_parts(subject, space, random)
    if assignment is None:
        return
    assert not check(space, assignment)
    inputs = arrays(program, random)
    parameters = choices_of(assignment).parameters
    found = interpret(subject.require_program(), parameters, inputs)
    np.testing.assert_array_equal(found, interpret(program, {}, inputs))
    generate_kernels(subject, assignment)


@pytest.mark.kernels
@settings(max_examples=cases(4, 100), deadline=None, suppress_health_check=PATIENT)
@given(programs(), st.randoms(use_true_random=False))
def test_kernels_of_combinations_compute_what_numpy_does(program: Program, random: Random) -> None:
    subject = random.choice(sketched_subjects(subject_of_program(program), POCL)[:-1])
    assignment = drawn_by_parts(subject, space_of(subject), random)
    if assignment is None:
        return
    inputs = {name: a.astype(np.float32) for name, a in arrays(program, random).items()}
    found = run_once(generate_kernels(subject, assignment), inputs)
    np.testing.assert_allclose(found, interpret(program, {}, inputs), rtol=1e-4)


def test_parts_have_every_solution_of_the_whole_space_and_their_costs_add_up() -> None:
    subject = sketched_subjects(SUBJECT, POCL, [ALL_FIRST])[0]
    small = sketched_subjects(subject_of_program(TWO), POCL)[0]
    parts = kernel_parts(small.require_program(), space_of(small))
    assert len(parts) == 2
    whole = SuitedSpace(space_of(small)).count_joint()
    assert prod(SuitedSpace(part.space).count_joint() for part in parts) == whole > 1
    parts = kernel_parts(subject.require_program(), space_of(subject))
    assert [[k.name for k in part.kernels] for part in parts] == [
        ["largest"], ["powers"], ["totals"], ["softmax"]
    ]  # fmt: skip
    assignment = drawn_by_parts(subject, space_of(subject), Random(1)) or {}
    costs = [CoreCost(part.kernels, POCL).ms(assignment) for part in parts]
    assert sum(costs) == pytest.approx(CoreCost(loops_of(subject), POCL).ms(assignment))


def test_kernels_that_share_a_size_or_a_constraint_are_one_part() -> None:
    (subject,) = sketched_subjects(SUBJECT, POCL, ["totals-sums-over-groups"])
    space = space_of(subject)
    names = [
        [k.name for k in part.kernels] for part in kernel_parts(subject.require_program(), space)
    ]
    assert names == [["largest"], ["powers"], ["totals_parts", "totals"], ["softmax"]]
    one, other = (
        next(v for v, _ in space.variables if isinstance(v, ParameterVariable) and part in v.name)
        for part in ("lanes_power", "lanes_part")
    )
    either = any_of(member(one, [1]), member(other, [1]))
    tied = replace(space.constraints[0], predicate=either)
    joined = Space(space.variables, (*space.constraints, tied))
    parts = kernel_parts(subject.require_program(), joined)
    assert [[k.name for k in part.kernels] for part in parts] == [
        ["largest"], ["powers", "softmax"], ["totals_parts", "totals"]
    ]  # fmt: skip


# Combined again


def test_a_combination_is_named_by_what_is_not_first_and_found_by_its_name() -> None:
    combinations = Combinations(SOFTMAX, POCL)
    assert [kernel for kernel, _ in combinations.options] == [
        "largest", "powers", "totals", "softmax"
    ]  # fmt: skip
    name = "largest-lanes-row+totals-lanes-sum_row"
    choice = combinations.named(name)
    assert choice is not None and combinations.name(choice) == name
    assert combinations.named("totals-lanes-sum_row+largest-lanes-row") == choice
    assert combinations.named(ALL_FIRST) == combinations.first
    assert combinations.named("largest-lanes-row+largest-sums-over-groups") is None
    assert combinations.named("largest-lanes") is None
    sketch = combinations.sketch(choice)
    assert sketch is not None and sketch.name == name
    (subject,) = sketched_subjects(SUBJECT, POCL, [name])
    assert subject.variant == name and subject.program == sketch.program
    with pytest.raises(InputError) as refused:
        sketched_subjects(SUBJECT, POCL, ["largest-lanes"])
    assert "joined by +" in refused.value.problems[0].allowed


def test_every_combination_has_a_name_that_the_store_takes_and_that_says_it() -> None:
    program = chain(3, "product_of_long_name_{}").require_program()
    combinations = Combinations(program, POCL)
    choices = list(product(*(range(len(names)) for _, names in combinations.options)))
    names = [combinations.name(choice) for choice in choices]
    assert len(set(names)) == len(names) and max(map(len, names)) <= 64
    assert [combinations.named(name) for name in names] == choices
    assert any(name.startswith("structures-") for name in names)
    assert combinations.named("structures-999") is None
    assert combinations.named("structures-00") is None


def test_the_best_of_each_kernel_comes_first_and_no_more_than_some_combinations() -> None:
    found = subjects()
    assert found[-1] is SUBJECT
    assert len({s.variant for s in found}) == len(found) <= 25
    costs = [cheapest(subject) for subject in found[:-1:6]]
    assert costs[0] == min(costs)


def cheapest(subject: Subject) -> float:
    total = 0.0
    for part in kernel_parts(subject.require_program(), space_of(subject)):
        space, random = SuitedSpace(part.space), Random(0)
        drawn = (space.draw_joint(random) for _ in range(32))
        total += min(CoreCost(part.kernels, POCL).ms(found) for found in drawn if found)
    return total


# Improved kernel by kernel

#: What these take beside what they are expected to: an order that nobody expects.
FACTORS = {"sum_row_tile": 9.0}


class Pretended:
    """Times of each launch, by the costs of its loops."""

    def __init__(self, with_launches: bool = True, wrong: int = 0) -> None:
        self._with_launches = with_launches
        self._wrong = wrong
        self.kernels: list[dict[str, tuple[object, ...]]] = []
        self.times: list[dict[str, float]] = []

    def outcome(self, candidate: Candidate) -> Timed | Wrong:
        loops = loops_of(candidate.subject)
        times: dict[str, float] = {}
        made: dict[str, tuple[object, ...]] = {}
        for part in parts_of(candidate):
            own = {v: candidate.assignment[v] for v, _ in part.space.variables}
            for kernel in part.kernels:
                slow = [f for m, f in FACTORS.items() if m in map(str, kernel.map_ids())]
                if kernel not in COSTS:
                    COSTS[kernel] = CoreCost([kernel], POCL)
                times[kernel.name] = prod([COSTS[kernel].ms(own), *slow])
            made[part.kernels[-1].name] = (part.kernels, tuple(own.items()))
        self.kernels.append(made)
        self.times.append(times)
        if len(self.times) <= self._wrong:
            return Wrong(1.0, (0,), "wrong")
        found = timed(sum(times.values()))
        if self._with_launches:
            launches = zip(candidate.plan.launches, loops, strict=True)
            found.facts.update(
                (launch_fact(launch.kernel), str(times[kernel.name])) for launch, kernel in launches
            )
        return found


SPACES: dict[str, Space] = {}
PARTS: dict[str, tuple[KernelPart, ...]] = {}
COSTS: dict[LoopKernel, CoreCost] = {}


def parts_of(candidate: Candidate) -> tuple[KernelPart, ...]:
    if candidate.variant not in PARTS:
        program = candidate.subject.require_program()
        PARTS[candidate.variant] = kernel_parts(program, candidate_space(candidate))
    return PARTS[candidate.variant]


def known_space(subject: Subject) -> Space:
    if subject.variant not in SPACES:
        SPACES[subject.variant] = space_of(subject)
    return SPACES[subject.variant]


def candidate_space(candidate: Candidate) -> Space:
    return known_space(candidate.subject)


def searched(pretended: Pretended, count: int, seed: int = 1) -> list[Candidate]:
    sources = [
        source_of(subject, lambda s=subject: known_space(s), POCL, {}, subject.hash(), index=index)
        for index, subject in enumerate(subjects())
    ]
    tuner = Tuner(sources, POCL, seed, make=GuidedStrategy)
    found: list[Candidate] = []
    while len(found) < count:
        (candidate,) = tuner.ask()
        found.append(candidate)
        tuner.tell([Trial(candidate, pretended.outcome(candidate))])
    return found


def test_each_candidate_is_valid_and_changes_a_kernel_of_the_best_that_are_known() -> None:
    pretended = Pretended()
    found = [c for c in searched(pretended, 24) if c.variant]
    assert all(not check(candidate_space(c), c.assignment) for c in found)
    assert len({c.id for c in found}) == len(found) > 20
    seen: set[object] = set()
    for number, (candidate, made) in enumerate(zip(found, pretended.kernels, strict=False)):
        new = [name for name, own in made.items() if own not in seen]
        under_the_same = candidate.variant in {c.variant for c in found[:number]}
        assert len(new) <= (1 if under_the_same else 4), (number, candidate.variant)
        seen.update(made.values())


def test_combinations_share_what_is_known_and_the_best_of_each_kernel_come_together() -> None:
    pretended = Pretended()
    found = searched(pretended, 40)
    assert len({c.variant for c in found}) > 2
    best_ms = min(sum(times.values()) for times in pretended.times)
    names = ("largest", "powers", "totals", "softmax")
    bests = [min(times[name] for times in pretended.times) for name in names]
    assert best_ms <= 1.1 * sum(bests)


def test_where_launches_are_not_timed_sums_tell_what_a_change_brought() -> None:
    pretended = Pretended(with_launches=False)
    searched(pretended, 40)
    totals = [sum(times.values()) for times in pretended.times]
    assert min(totals) < 0.8 * totals[0]


def test_what_failed_beside_others_has_one_more_chance() -> None:
    subject = sketched_subjects(subject_of_program(TWO), POCL)[0]
    part = kernel_parts(subject.require_program(), space_of(subject))[0]
    search = PartSearch(part.space, CoreCost(part.kernels, POCL), 1)
    first = search.next()
    assert first is not None
    search.doubt(first)
    again = 0
    while (drawn := search.next()) is not None:
        if drawn.key == first.key:
            again += 1
            search.doubt(drawn)
    assert again == 1


def test_a_search_goes_on_where_its_first_candidates_fail() -> None:
    pretended = Pretended(wrong=2)
    first, second, third = searched(pretended, 3)
    assert len({first.id, second.id, third.id}) == 3


def test_one_seed_gives_one_order_of_combinations() -> None:
    first = [c.id for c in searched(Pretended(), 8)]
    assert [c.id for c in searched(Pretended(), 8)] == first


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


def test_a_run_of_combinations_goes_on_where_it_stopped(store: Store) -> None:
    def tuned(candidates: int):
        return tune(subjects(), NullDevice(POCL), store, seed=3, budget=Budget(candidates))

    first = tuned(4)
    assert first.state.tried == 4 and not first.refused
    assert tuned(4).front[0].candidate == first.front[0].candidate
    assert tuned(7).state.tried == 7
    stored = [m.candidate_id for study in store.studies() for m in store.measurements(study)]
    assert len(stored) == len(set(stored)) == 7


def test_on_a_gpu_plans_tell_what_kernels_cost_beside_others(store: Store) -> None:
    gpu = load_profile("h200")
    subjects = sketched_subjects(SUBJECT, gpu)[:2]
    result = tune(subjects, NullDevice(gpu), store, seed=1, budget=Budget(candidates=3))
    assert result.state.tried == 3 and not result.refused
