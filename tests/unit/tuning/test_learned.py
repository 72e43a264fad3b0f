"""What was measured of some layers tells how candidates of another rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from db.records import StoredMeasurement, Study
from db.store import Store
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.cost.analytic import rank_correlation
from mapper.errors import InputError, LimitError, NestmapError, Problem, StoreError
from mapper.host_plan import HostPlan
from mapper.layer_sets import layer_of_name
from mapper.measurement import CompileError, Outcome
from mapper.pipeline import derive_space, subject_of_layer
from mapper.profiles import load_profile
from mapper.search.model_guided import Settings
from nestmap.subjects import subject_of_document
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.learned import (
    LEAST_OF_A_GROUP,
    LEAST_SHARE,
    MOST_OF_A_STUDY,
    Group,
    LearnedModel,
    groups_of_store,
    learned_for,
    share_of_examples,
    with_layer,
)
from nestmap.tuning.policy import device_identity
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sources import Source
from nestmap.tuning.strategy import random_strategy
from tests.unit.tuning.fakes import TINY, ScriptedDevice, timed

WIDE = replace(TINY, height=12, width=12, name="wide")
DEEP = replace(TINY, filters=8, name="deep")
VARIANT = "high-level"
MEASURED = 24


class WorkItemsDevice(ScriptedDevice):
    """More work-items are faster, and everything takes longer on a large layer."""

    def measure(self, plan: HostPlan, *, candidate: str = "", **options: object) -> Outcome:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().measure(plan, candidate=candidate, **options)
        items = sum(float(np.prod(launch.global_size)) for launch in plan.launches)
        return timed(plan.memory_bytes / 100 / items**0.5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Random candidates of three layers."""
    with Store.open(tmp_path_factory.mktemp("learned") / "store.sqlite3") as opened:
        for layer in (TINY, WIDE, DEEP):
            subject = subject_of_layer(layer, VARIANT)
            budget = Budget(MEASURED)
            tune([subject], WorkItemsDevice(), opened, budget=budget, make=random_strategy())
        yield opened


def _groups(store: Store) -> dict[str, Group]:
    device = WorkItemsDevice()
    device_id = store.add_device(device.profile().name, device_identity(device.facts()))
    return {group.name: group for group in groups_of_store(store, device_id, device.profile())}


def test_candidates_of_a_new_layer_are_ranked_by_what_others_took(store: Store) -> None:
    groups = _groups(store)
    assert set(groups) == {f"{name}/{VARIANT}" for name in ("tiny", "wide", "deep")}
    new = groups.pop(f"wide/{VARIANT}")
    model = LearnedModel(list(groups.values()))
    predicted = model.predict(new.rows, new.rows)
    assert rank_correlation(predicted.tolist(), new.log_times.tolist()) > 0.8
    assert np.median(predicted) == pytest.approx(0, abs=0.3)


def test_what_is_tuned_teaches_nothing_of_itself(store: Store) -> None:
    subject = subject_of_layer(WIDE, VARIANT)
    model = learned_for(store, WorkItemsDevice(), [subject])
    assert sorted(model.groups) == [f"deep/{VARIANT}", f"tiny/{VARIANT}"]


def test_too_few_measurements_are_refused(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "empty.sqlite3") as empty,
        pytest.raises(InputError, match="too few"),
    ):
        learned_for(empty, WorkItemsDevice(), [])
    few = Group("few", np.zeros((9, 5)), np.full(9, np.inf))
    few.log_times[: LEAST_OF_A_GROUP - 1] = 0.0
    with pytest.raises(InputError, match=f"found {LEAST_OF_A_GROUP - 1};"):
        LearnedModel([few])


def test_any_seed_that_a_run_may_have_will_do() -> None:
    rows = np.arange(80.0).reshape(16, 5)
    group = Group("x", rows, rows[:, 0])
    assert np.isfinite(LearnedModel([group], 2**63 - 1).predict(rows, rows)).all()


def test_a_study_that_cannot_be_read_teaches_nothing_and_stops_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.measurements

    def measurements(study: Study) -> tuple[StoredMeasurement, ...]:
        if study.label == "deep":
            raise StoreError("a row of another release")
        return read(study)

    monkeypatch.setattr(store, "measurements", measurements)
    subject = subject_of_layer(WIDE, VARIANT)
    assert learned_for(store, WorkItemsDevice(), [subject]).groups == (f"tiny/{VARIANT}",)


def test_failures_are_learned_as_slow() -> None:
    rows = np.zeros((40, 5))
    rows[:, 0] = np.arange(40) % 2
    log_times = np.where(rows[:, 0] == 1, np.inf, np.linspace(0, 1, 40))
    found = LearnedModel([Group("x", rows, log_times)]).predict(rows[:2], rows)
    assert found[1] > found[0] + 0.3


def test_tuning_parameters_are_matched_by_name() -> None:
    """Of two programs with other parameters before and behind it, ``tile`` means the same."""
    generator = np.random.default_rng(0)

    def group(name: str, parameters: tuple[str, ...]) -> Group:
        rows = np.hstack([np.zeros((60, 4)), generator.integers(0, 6, (60, 2)).astype(float)])
        tile = rows[:, 4 + parameters.index("tile")]
        return Group(name, rows, -tile / 3, parameters)

    model = LearnedModel([group("one", ("tile", "unroll")), group("two", ("tile", "vector"))])
    new = group("three", ("chunk", "tile"))
    predicted = model.predict(new.rows, new.rows, new.parameters)
    assert rank_correlation(predicted.tolist(), new.log_times.tolist()) > 0.9


def test_layers_of_all_sizes_are_learned_from_alike(store: Store) -> None:
    device = WorkItemsDevice()
    device_id = store.add_device(device.profile().name, device_identity(device.facts()))
    found = list(groups_of_store(store, device_id, device.profile(), most=60))
    assert [len(group.rows) for group in found] == [20, 20, 20]
    assert len(list(groups_of_store(store, device_id, device.profile(), most=40))) == 2
    assert share_of_examples(1) == MOST_OF_A_STUDY
    assert share_of_examples(10_000) == LEAST_SHARE


def test_a_stored_program_is_known_to_be_of_the_layer_it_is_named_after() -> None:
    """A store holds the program alone."""
    subject = subject_of_layer(layer_of_name("squeezenet1_1/4"), "direct")
    stored = subject_of_document(subject.to_json(), "squeezenet1_1/4")
    assert stored.layer is None
    assert with_layer(stored, "squeezenet1_1/4", "direct").layer == subject.layer
    assert with_layer(stored, "squeezenet1_1/8", "direct") is stored
    assert with_layer(stored, "squeezenet1_1/4", "no-such") is stored
    assert with_layer(stored, "mine", "direct") is stored


def test_a_search_starts_from_what_was_learned(store: Store, tmp_path: Path) -> None:
    """Its first candidates are by the guess."""
    subject = subject_of_layer(WIDE, VARIANT)
    learned = learned_for(store, WorkItemsDevice(), [subject])
    best: dict[str, float] = {}
    for name, make in {
        "learned": partial(
            GuidedStrategy, learned=learned, settings=Settings(guessed_start=6, growth=12)
        ),
        "random": random_strategy(),
    }.items():
        with Store.open(tmp_path / f"{name}.sqlite3") as opened:
            found = tune([subject], WorkItemsDevice(), opened, budget=Budget(6), make=make)
            best[name] = found.front[0].time_ms
    assert best["learned"] <= best["random"]


def test_the_analytic_strategy_tries_each_candidate_once(tmp_path: Path) -> None:
    subject = subject_of_layer(TINY, VARIANT)
    make = partial(GuidedStrategy, analytic=True, settings=Settings(growth=6))
    device = ScriptedDevice(lambda number, _: CompileError("no") if number == 2 else None)
    with Store.open(tmp_path / "store.sqlite3") as opened:
        found = tune([subject], device, opened, budget=Budget(10), make=make)
    assert found.state.tried == len(set(device.measured)) == 10


def test_an_analytic_search_whose_start_runs_into_a_limit_goes_on_without() -> None:
    def start(*_: object) -> list[Mapping[Variable, int]]:
        raise LimitError(Problem("", "too large for the solver"))

    subject = subject_of_layer(TINY, VARIANT)
    space = derive_space(subject, Mode.STRICT, load_profile("pocl"), RuleOptions())
    refused: list[NestmapError] = []
    strategy = GuidedStrategy(
        [Source(0, subject, space, subject.hash())], load_profile("pocl"), 0,
        refused=lambda source, error: refused.append(error), settings=Settings(growth=6),
        analytic=True, start=start,
    )  # fmt: skip
    assert strategy.ask() is not None and strategy.ask() is not None
    assert [error.problems[0].message for error in refused] == ["too large for the solver"]
