"""Programs tuned under their sketches: what is tried, stored, and made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store import Store
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import (
    Subject,
    assignment_from_json,
    derive_space,
    generate_kernels,
    subject_of_program,
)
from mapper.profiles import load_profile
from mapper.schedules.sketches.derivation import Combinations
from mapper.search.goal import FastestWithin
from mapper.solver.space import Space, check
from nestmap.subjects import subject_of_document
from nestmap.tuning import part_search
from nestmap.tuning.candidates import Candidate
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.run import Budget, TuningResult, tune
from nestmap.tuning.sketch_subjects import sketched_subjects, with_suits
from nestmap.tuning.starting_points import source_of
from nestmap.tuning.tuner import Trial, Tuner
from tests.unit.tuning.fakes import timed, tiny_subjects
from worker.devices.null import NullDevice

POCL = load_profile("pocl")
PROGRAM = parse("""program "product" {
  size K = 16
  size M = 16
  size N = 32
  input a : [[float]K]M
  input b : [[float]N]K
  kernel c = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}
""")
PRODUCT = subject_of_program(PROGRAM)
NAMES = ["tile-packed-column", "tile-column", "as-is"]
SKETCHES = sketched_subjects(PRODUCT, POCL, NAMES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


def tuned(store: Store, candidates: int) -> TuningResult:
    return tune(SKETCHES, NullDevice(POCL), store, seed=3, budget=Budget(candidates))


def test_sketches_are_subjects_of_one_label_and_the_program_as_it_is_comes_last() -> None:
    found = sketched_subjects(PRODUCT, POCL)
    assert {s.label for s in found} == {"product"}
    first = ["tile-packed-column", "tile-packed-whole-column", "tile-column"]
    assert [s.variant for s in found][:3] == first
    assert found[-1] is PRODUCT
    assert all(s.scheduled is not None for s in found[:-1])


def test_some_sketches_may_be_asked_for_and_others_are_refused() -> None:
    (only,) = sketched_subjects(PRODUCT, POCL, ["tile-column"])
    assert only.variant == "tile-column"
    with pytest.raises(InputError, match="no sketch of this name") as refused:
        sketched_subjects(PRODUCT, POCL, ["tile-row-column"])
    assert "tile-column" in refused.value.problems[0].allowed
    (layer,) = tiny_subjects("direct")
    assert sketched_subjects(layer, POCL) == (layer,)
    with pytest.raises(InputError, match="only a layer or a program"):
        sketched_subjects(SKETCHES[0], POCL, ["tile-column"])


def test_what_is_stored_is_valid_and_can_be_made_again_from_the_store_alone(store: Store) -> None:
    result = tuned(store, 6)
    assert result.state.tried == 6 and not result.refused
    tried: set[str] = set()
    for study in store.studies():
        program = store.program(study.program_hash)
        subject = subject_of_document(json.loads(program.json_text))
        assert subject.variant == study.variant and subject.hash() == study.program_hash
        space = space_of(subject)
        for measured in store.measurements(study):
            tried.add(study.variant)
            assignment = assignment_from_json(space, store.candidate(measured.candidate_id).chosen)
            assert not check(space, assignment)
            source = generate_kernels(subject, assignment).source
            assert hashlib.sha256(source.encode()).hexdigest() == measured.source_hash
    assert len(tried) > 1


def test_a_run_goes_on_where_it_stopped(store: Store) -> None:
    first = tuned(store, 3)
    again = tuned(store, 3)
    assert [e.candidate for e in again.front] == [e.candidate for e in first.front]
    more = tuned(store, 5)
    assert more.state.tried == 5
    stored = [m.candidate_id for study in store.studies() for m in store.measurements(study)]
    assert len(stored) == len(set(stored)) == 5


SPACES: dict[str, Space] = {}


def space_of(subject: Subject) -> Space:
    if subject.variant not in SPACES:
        options = with_suits(subject, DEFAULT_OPTIONS)
        SPACES[subject.variant] = derive_space(subject, Mode.STRICT, POCL, options)
    return SPACES[subject.variant]


def asked(seed: int, count: int, slow: str = "", within: int | None = None) -> list[Candidate]:
    """What a tuner asks for if the sketch ``slow`` is slow."""
    sources = [
        source_of(subject, space_of(subject), POCL, {}, subject.hash(), index=index)
        for index, subject in enumerate(SKETCHES[:2])
    ]

    def make(*arguments, **keywords):  # pyright: ignore
        goal = {} if within is None else {"goal": FastestWithin(within)}
        return GuidedStrategy(*arguments, **keywords, **goal)  # pyright: ignore

    tuner = Tuner(sources, POCL, seed, make=make)
    found: list[Candidate] = []
    while len(found) < count:
        (candidate,) = tuner.ask()
        found.append(candidate)
        ms = 100.0 if candidate.variant == slow else 1.0 + len(found) % 3
        tuner.tell([Trial(candidate, timed(ms))])
    return found


def test_one_seed_gives_one_order_and_no_candidate_twice() -> None:
    first = [c.id for c in asked(1, 8)]
    assert [c.id for c in asked(1, 8)] == first
    assert len(set(first)) == 8
    assert [c.id for c in asked(2, 1)] != first[:1]


def test_a_slow_sketch_is_left_for_the_others() -> None:
    fastest = asked(1, 1)[0].variant
    # The first is tried alone until others are weighed.
    after = [c.variant for c in asked(1, 12, slow=fastest)]
    assert after[4:].count(fastest) < 3


def test_a_bound_on_memory_leaves_packing_out() -> None:
    plain = 4 * (16 * 16 + 16 * 32 + 16 * 32)
    found = asked(1, 2, within=plain)
    assert all(c.plan.memory_bytes <= plain for c in found)


def test_a_space_that_nothing_suits_is_told_and_the_others_go_on(store: Store) -> None:
    impossible = parse("""program "long" {
      size N = 7
      input a : [float]N
      kernel s = reduce((acc, v) => add(acc, v), 0.0, a)
    }
    """)
    subjects = sketched_subjects(subject_of_program(impossible), POCL)
    result = tune(subjects, NullDevice(POCL), store, budget=Budget(candidates=2))
    assert result.state.tried >= 1


def test_a_sketch_that_takes_long_to_solve_is_left_out_and_the_program_as_it_is_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_search, "_SOLVING_S", 1e-9)
    result = tune(SKETCHES, NullDevice(POCL), store, budget=Budget(candidates=1))
    assert result.state.tried == 1
    assert {e.subject.variant for e in result.front} == {""}
    assert any("tile-packed-column" in text and "time limit" in text for text in result.refused)


def chain(kernels: int, name: str = "k{}", loop: str = "c") -> Subject:
    """Products in a row, each of a kernel."""
    lines = ["size M = 64", "input k : [[float]M]M", "input b : [[float]M]M"]
    before = "k"
    for number in range(kernels):
        kernel = name.format(number)
        lines.append(
            f"kernel {kernel} = map#r{number}(x => join(map#{loop}{number}(y => reduce((acc, k) => "
            f"fma(k.0, k.1, acc), 0.0, zip(x, y)), transpose(b))), {before})"
        )
        before = kernel
    return subject_of_program(parse('program "chain" {\n' + "\n".join(lines) + "\n}"))


def test_a_program_s_structures_are_derived_once_for_all_of_its_sketches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All were, for each sketch that was asked for: minutes for a program of eight kernels."""
    begun: list[Program] = []

    def counted(program: Program, device: DeviceProfile) -> Combinations:
        begun.append(program)
        return Combinations(program, device)

    monkeypatch.setattr("nestmap.tuning.sketch_subjects.Combinations", counted)
    subject = chain(2, "once{}")
    found = [s.variant for s in sketched_subjects(subject, POCL, most=3)]
    assert len(found) == 3 and found[-1] == ""
    for name in found[:-1]:
        (again,) = sketched_subjects(subject, POCL, [name])
        assert again.variant == name
    assert len(begun) == 1


def test_a_derivation_that_was_broken_off_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Program, device: DeviceProfile) -> Combinations:
        raise LimitError(Problem("", "too much"))

    subject = chain(2, "broken{}")
    with monkeypatch.context() as patched:
        patched.setattr("nestmap.tuning.sketch_subjects.Combinations", broken)
        with pytest.raises(LimitError):
            sketched_subjects(subject, POCL)
    assert len(sketched_subjects(subject, POCL, most=3)) == 3


@pytest.mark.parametrize("kernels", [1, 2])
def test_names_of_sketches_are_no_longer_than_the_store_keeps_them(kernels: int) -> None:
    subject = chain(kernels, "k{}" + "x" * 48, loop="r" + "y" * 30)
    long = [s.variant for s in sketched_subjects(subject, POCL, most=6)][:-1]
    assert len(set(long)) == len(long) == 5
    assert max(map(len, long)) <= 64
    for name in long:
        (again,) = sketched_subjects(subject, POCL, [name])
        assert again.variant == name
