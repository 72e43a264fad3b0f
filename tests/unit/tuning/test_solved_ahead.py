"""Sketches that processes solve beside the search."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from db.store import Store
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, Problem
from mapper.pipeline import Subject, derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.limits import Cancelled, Watch
from mapper.solver.space import Space
from nestmap.tuning import run
from nestmap.tuning.drawing import cheapest_ms
from nestmap.tuning.fewer_sizes import solved_for_search
from nestmap.tuning.kernel_parts import kernel_parts
from nestmap.tuning.part_search import PartSearch
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sketch_subjects import (
    PossibleSketch,
    Tuned,
    possible_subjects,
    sketched_subjects,
    with_suits,
)
from nestmap.tuning.solved_ahead import Begun, SolvedAhead
from nestmap.tuning.sources import Source
from worker.devices.null import NullDevice

H200 = load_profile("h200")
PRODUCT = subject_of_program(
    parse("""program "product" {
  size K = 32
  size M = 32
  size N = 32
  input a : [[float]K]M
  input b : [[float]N]K
  kernel c = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}
""")
)
SKETCHES = sketched_subjects(PRODUCT, H200)[:4]


def space_of(subject: Subject) -> Space:
    return derive_space(subject, Mode.STRICT, H200, with_suits(subject, DEFAULT_OPTIONS))


def never(subject: Subject) -> Space:
    raise InputError(Problem("subject", "has no space", subject.label))


def at_leisure(subject: Subject) -> Space:
    time.sleep(30.0)
    return space_of(subject)


POSSIBLE = [s for s in possible_subjects(PRODUCT, H200) if isinstance(s, PossibleSketch)]


@pytest.fixture(scope="module")
def ahead() -> Iterator[SolvedAhead]:
    tuned = [POSSIBLE[0], *SKETCHES[1:], PossibleSketch(PRODUCT, "blocks-of-nothing", H200)]
    with SolvedAhead(tuned, range(len(tuned)), space_of, H200, 2) as solved:
        yield solved


def begun_of(ahead: SolvedAhead, place: int) -> Begun:
    sketch = ahead.sketch(place)
    assert sketch is not None
    begun = sketch.begun()
    assert begun is not None
    return begun


@pytest.mark.parametrize("place", range(len(SKETCHES)))
def test_a_process_derives_and_solves_what_the_search_would(ahead: SolvedAhead, place: int) -> None:
    begun = begun_of(ahead, place)
    assert begun.subject == SKETCHES[place]
    space = space_of(SKETCHES[place])
    assert begun.space == space
    parts = kernel_parts(SKETCHES[place].require_program(), space)
    assert [part.key for part in begun.parts] == [part.key for part in parts]
    watch = Watch()
    for number, part in enumerate(parts):
        found = begun.opener(number)(watch)
        wanted = solved_for_search(part.space, Watch())
        assert found.space.count_joint() == wanted.count_joint() > 0
        assert found.space.watch is watch


def test_a_sketch_that_does_not_apply_is_none(ahead: SolvedAhead) -> None:
    assert begun_of(ahead, len(SKETCHES)) == Begun(None)


def test_a_search_begins_with_what_a_process_found_cheapest(ahead: SolvedAhead) -> None:
    begun = begun_of(ahead, 1)
    (part,) = begun.parts
    cost = part.cost(H200)
    solve = begun.opener(0)
    opened = solve(Watch())
    costs = sorted(drawn.cost_ms for drawn in opened.drawn)
    assert len(costs) > 100
    # The cheapest were changed to cheaper ones.
    assert costs[0] <= cheapest_ms(opened.space, cost, 256)
    first = opened.drawn[0]
    search = PartSearch(part.space, cost, 1, [first.assignment], solve=solve)
    assert search.expected_ms == costs[0]
    found = [search.next() for _ in range(4)]
    assert [drawn.cost_ms for drawn in found[:1] if drawn] == costs[:1]
    assert all(drawn is not None and drawn.key != first.key for drawn in found)
    # What was timed is gone on from.
    assert found[0] is not None
    search.tell(found[0], 1.0)
    assert all(search.next() is not None for _ in range(200))


def test_what_no_process_is_asked_for_has_none(ahead: SolvedAhead) -> None:
    assert ahead.sketch(99) is None


def test_what_an_ended_process_had_under_way_is_for_who_asks() -> None:
    with SolvedAhead(SKETCHES, [1, 2], space_of, H200, 1) as solved:
        one, other = solved.sketch(1), solved.sketch(2)
        assert one is not None and other is not None and one.begun() is not None
        for process in solved._processes._processes:  # pyright: ignore[reportPrivateUsage]
            process.kill()
            process.join()
        assert other.begun() is None
    source = Source(0, POSSIBLE[2], space_of, ahead=other)
    assert source.exists and source.subject == SKETCHES[2]


def test_a_space_that_cannot_be_derived_is_an_error_for_who_asks() -> None:
    with SolvedAhead(SKETCHES, [1], never, H200, 1) as solved:
        sketch = solved.sketch(1)
        assert sketch is not None
        with pytest.raises(InputError, match="has no space"):
            sketch.begun()


def test_nobody_waits_for_a_space_longer_than_wanted() -> None:
    started = time.monotonic()
    with SolvedAhead(SKETCHES, [1], at_leisure, H200, 1) as solved:
        sketch = solved.sketch(1)
        assert sketch is not None and not sketch.is_begun
        with pytest.raises(Cancelled):
            sketch.begun(lambda: Watch(cancelled=lambda: time.monotonic() - started > 0.5))
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("tuned", [SKETCHES, POSSIBLE], ids=["derived", "possible"])
def test_a_run_tries_sketches_that_processes_solved(
    tuned: Sequence[Tuned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[SolvedAhead] = []

    def kept(*given, **named):  # pyright: ignore
        begun.append(SolvedAhead(*given, **named))  # pyright: ignore
        return begun[-1]

    monkeypatch.setattr(run, "SolvedAhead", kept)
    monkeypatch.setattr(run, "solving_processes", lambda size: 2)  # pyright: ignore
    with Store.open(tmp_path / "store.sqlite3") as store:
        result = tune(tuned, NullDevice(H200), store, seed=1, budget=Budget(40))
        tried = {study.variant: study for study in store.studies()}
        assert result.state.tried == 40 and not result.refused
        assert sum(bool(list(store.measurements(s))) for s in tried.values()) > 1
    assert len(begun) == 1 and begun[0].sketch(0) is not None
