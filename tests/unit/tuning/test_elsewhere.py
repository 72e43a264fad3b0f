"""What other devices took for a program's candidates tells of them here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from db.records import StoredMeasurement, Study
from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.cost.analytic import rank_correlation
from mapper.errors import InputError, Problem, StoreError
from mapper.host_plan import HostPlan
from mapper.measurement import CompileError, Outcome, Timed
from mapper.pipeline import derive_space, subject_of_layer
from mapper.search.goal import Fastest
from mapper.search.model_guided import Settings
from mapper.solver.space import check
from nestmap.tuning import elsewhere, guided
from nestmap.tuning.candidates import Candidate, candidate_of
from nestmap.tuning.elsewhere import FASTEST, LEAST, Elsewhere, known_elsewhere
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.strategy import random_strategy
from tests.effort import cases
from tests.unit.tuning.fakes import TINY, ScriptedDevice, draw_once, timed
from worker.devices.null import NULL_PROFILE

SUBJECT = subject_of_layer(TINY, "high-level")
MEASURED = 44


def time_of(plan: HostPlan) -> float:
    return 100 / sum(float(np.prod(launch.global_size)) for launch in plan.launches) ** 0.5


class Board(ScriptedDevice):
    """Takes longer for fewer work-items; some of the candidates fail."""

    def __init__(self, name: str, most: int = 1024) -> None:
        super().__init__(lambda number, _: CompileError("no") if number % 11 == 10 else None)
        self._profile = replace(NULL_PROFILE, name=name, max_work_group_size=most)

    def measure(self, plan: HostPlan, *, candidate: str = "", **options: object) -> Outcome:  # pyright: ignore[reportIncompatibleMethodOverride]
        outcome = super().measure(plan, candidate=candidate, **options)
        if isinstance(outcome, CompileError):
            return outcome
        return timed(time_of(plan))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """What one board measured, what another measured too little of, and this one's own."""
    with Store.open(tmp_path_factory.mktemp("elsewhere") / "store.sqlite3") as opened:
        for board, count in ((Board("one"), MEASURED), (Board("two"), LEAST), (Board("own"), 40)):
            tune([SUBJECT], board, opened, budget=Budget(count), make=random_strategy())
        yield opened


def test_what_was_measured_there_is_told_as_it_was_and_the_rest_is_ranked() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(200, 4))
    log_times = rows[:, 0] + 0.5 * np.abs(rows[:, 1])
    log_times[::20] = np.inf
    rows[:, 3] = np.nan
    found = Elsewhere("there", rows[:150], log_times[:150])
    told = found.predict(rows)
    limit = np.quantile(log_times[:150][np.isfinite(log_times[:150])], 0.9)
    assert np.array_equal(told[:150], np.minimum(log_times[:150], limit))
    new = np.isfinite(log_times[150:])
    predicted, real = told[150:][new], log_times[150:][new]
    assert rank_correlation(predicted.tolist(), real.tolist()) > 0.8


def test_candidates_that_look_alike_have_the_mean_of_their_times() -> None:
    rows = np.arange(2.0 * LEAST).reshape(-1, 2)
    rows[1] = rows[0]
    log_times = np.linspace(0, 1, LEAST)
    assert Elsewhere("there", rows, log_times).predict(rows[:1])[0] == pytest.approx(
        log_times[:2].mean()
    )


def test_fewer_than_needed_are_refused_and_any_seed_will_do() -> None:
    log_times = np.zeros(LEAST)
    rows = np.zeros((LEAST, 2))
    assert np.isfinite(Elsewhere("there", rows, log_times, 2**63 - 1).predict(rows)).all()
    log_times[0] = np.inf
    with pytest.raises(InputError, match=f"too few on there.*{LEAST - 1}"):
        Elsewhere("there", rows, log_times)


def test_a_device_with_enough_candidates_teaches_another_but_not_itself(store: Store) -> None:
    # The second has timed fewer than are needed, for some of its candidates failed.
    (found,) = known_elsewhere(store, Board("own"), [SUBJECT])[SUBJECT.hash()]
    assert (found.device, found.candidates) == ("one", MEASURED)
    names = [d.device for d in known_elsewhere(store, Board("new"), [SUBJECT])[SUBJECT.hash()]]
    assert names == ["one", "own"]
    assert known_elsewhere(store, Board("own"), [subject_of_layer(TINY, "direct")]) == {}


def test_candidates_that_cannot_be_described_here_teach_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count()

    def refusing(*arguments: Any) -> Candidate:
        if next(calls) % 10 == 0:
            raise InputError(Problem("mapping", "is of another release"))
        return candidate_of(*arguments)

    monkeypatch.setattr(elsewhere, "candidate_of", refusing)
    found = known_elsewhere(store, Board("new"), [SUBJECT])[SUBJECT.hash()]
    assert [device.candidates for device in found] == [MEASURED - 5, 36]


def test_what_several_studies_measured_counts_once(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        for seed in range(2):
            board = Board("one")
            tune(
                [SUBJECT], board, opened, seed=seed, budget=Budget(20),
                draw=lambda space, wanted, _: draw_once(space, wanted, 5), make=random_strategy(),
            )  # fmt: skip
        assert len(opened.studies()) == 2
        assert known_elsewhere(opened, Board("new"), [SUBJECT]) == {}


def test_a_device_that_is_none_teaches_no_real_one(store: Store) -> None:
    real = Board("real")
    real.facts = lambda: {"device.name": "real", "device.kind": "gpu"}
    assert known_elsewhere(store, real, [SUBJECT]) == {}


def test_a_time_of_nothing_is_none() -> None:
    now = datetime.now(UTC)
    outcomes = Timed((0,), 0.0, 0.0), CompileError("no"), timed(1.0)
    stored = [StoredMeasurement(1, 1, "x", outcome, 0, "", "", now) for outcome in outcomes]
    assert [elsewhere._log_time(one) for one in stored] == [np.inf, np.inf, 0.0]  # pyright: ignore[reportPrivateUsage]


def test_only_what_is_valid_here_may_be_chosen(store: Store) -> None:
    small = Board("new", most=4)
    space = derive_space(SUBJECT, Mode.STRICT, small.profile(), DEFAULT_OPTIONS)
    for board in (Board("new"), small):
        (found, _) = known_elsewhere(store, board, [SUBJECT])[SUBJECT.hash()]
        valid = [one for one in found.fastest if not check(space, one)]
        if board is small:
            assert found.fastest and len(valid) == len(found.fastest)
        else:
            assert len(valid) < len(found.fastest) == FASTEST


def test_no_more_are_described_than_in_all_and_the_fastest_is_among_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[Any] = []

    def noting(*arguments: Any) -> Candidate:
        described.append(arguments[-1])
        return candidate_of(*arguments)

    monkeypatch.setattr(elsewhere, "candidate_of", noting)
    one, _ = known_elsewhere(store, Board("new"), [SUBJECT], most=80)[SUBJECT.hash()]
    assert one.candidates == 40
    (alone,) = known_elsewhere(store, Board("new"), [SUBJECT], most=79)[SUBJECT.hash()]
    assert (alone.device, alone.candidates) == ("one", MEASURED)
    assert known_elsewhere(store, Board("new"), [SUBJECT], most=39) == {}
    study = next(s for s in store.studies() if s.device_id == 1)
    plan = candidate_of(0, SUBJECT, SUBJECT.hash(), one.fastest[0]).plan
    assert time_of(plan) == pytest.approx(store.front(study)[0].time_ms, rel=1e-4)
    assert one.fastest[0] == described[0]


def test_studies_that_cannot_be_read_teach_nothing_and_stop_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.measurements
    (first, *_) = store.studies()

    def measurements(study: Study) -> tuple[StoredMeasurement, ...]:
        if study.id == first.id:
            raise StoreError("a row of another release")
        return read(study)

    monkeypatch.setattr(store, "measurements", measurements)
    (found,) = known_elsewhere(store, Board("new"), [SUBJECT])[SUBJECT.hash()]
    assert found.device == "own"


def test_a_search_that_is_told_finds_what_was_fast_elsewhere(tmp_path: Path) -> None:
    """On a device whose times go by the text of a kernel nothing else tells them."""
    best: dict[str, list[float]] = {"there": [], "told": [], "untold": []}
    for seed in range(cases(1, 2)):
        with Store.open(tmp_path / f"{seed}.sqlite3") as opened:
            there, here = ScriptedDevice(), ScriptedDevice()
            there._profile = replace(NULL_PROFILE, name="there")  # pyright: ignore[reportPrivateUsage]
            random = random_strategy()
            tune([SUBJECT], there, opened, seed=seed, budget=Budget(150), make=random)
            known = known_elsewhere(opened, here, [SUBJECT])
            measured = [p.time_ms for s in opened.studies() for p in opened.front(s)]
            best["there"].append(min(measured))
        for name, told in (("told", known), ("untold", {})):
            make = partial(
                GuidedStrategy, elsewhere=told, settings=Settings(growth=12), goal=Fastest()
            )
            with Store.open(tmp_path / f"{name}{seed}.sqlite3") as opened:
                result = tune([SUBJECT], here, opened, seed=seed, budget=Budget(30), make=make)
            best[name].append(result.front[0].time_ms)
    assert np.mean(best["told"]) < np.mean(best["untold"])
    assert np.mean(best["told"]) <= 1.5 * np.mean(best["there"])


def test_what_a_device_took_is_one_column_more(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []

    class Watched(guided.Described):
        def __init__(self, memory: object, columns: np.ndarray, *more: object) -> None:
            widths.append(columns.shape[1])
            super().__init__(memory, columns, *more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(guided, "Described", Watched)
    known = known_elsewhere(store, Board("new"), [SUBJECT])
    for told in (known, {}):
        make = partial(GuidedStrategy, elsewhere=told, settings=Settings(growth=6))
        with Store.open(tmp_path / f"{len(told)}.sqlite3") as opened:
            tune([SUBJECT], Board("new"), opened, budget=Budget(2), make=make)
    assert widths[0] == widths[-1] + 2
