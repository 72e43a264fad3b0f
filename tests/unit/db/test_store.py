"""What is stored comes back, once, and ranked right."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.records import CandidateRecord, FrontPoint, Study
from db.store import Store
from mapper.errors import InputError, StoreError
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
OUTCOMES: tuple[Outcome, ...] = (
    Timed((5, 3, 4), 1e-6, 12.5, {"driver": "3.0"}),
    Wrong(float("inf"), (0, 1, 2), "off by one"),
    CompileError("line 1: µ\x00 is no identifier \udc80"),
    ResourceError("CL_OUT_OF_RESOURCES"),
    Timeout(30.0),
    Crash(-11, "Segmentation fault"),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.db", now=lambda: NOW) as store:
        yield store


def some_study(store: Store, seed: int = 1) -> Study:
    program_hash = store.add_program("nestmap/program/1", '{"kernels": []}')
    device_id = store.add_device("pocl", {"driver": "3.0"})
    return store.open_study(
        program_hash, device_id, mode="sample", seed=seed, label="vgg16/24", variant="direct"
    )


def some_candidate(study: Study, number: int = 0, **changes: str) -> CandidateRecord:
    return CandidateRecord(
        program_hash=study.program_hash,
        parameters={"theta": number, "kappa": 4},
        mapping={"outer": "wrg0", "inner": "lcl0"},
        local_sizes=(16, 1, 1),
        source_hash=changes.get("source_hash", "0" * 64),
        memory_bytes=1024,
        nestmap_version=changes.get("nestmap_version", "0.1.0"),
    )


def test_a_program_is_stored_once_whatever_its_spelling(store: Store):
    first = store.add_program("nestmap/program/1", '{"b": 1, "a": "é"}')
    assert store.add_program("nestmap/program/1", '{"a":"\\u00e9","b":1}') == first
    assert store.program(first).json_text == '{"a":"\\u00e9","b":1}'
    assert store.program(first).schema == "nestmap/program/1"


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": Infinity}'])
def test_a_program_that_is_not_json_is_refused(store: Store, text: str):
    with pytest.raises(InputError, match="JSON"):
        store.add_program("nestmap/program/1", text)


def test_a_device_is_its_name_and_facts(store: Store):
    first = store.add_device("pocl", {"driver": "3.0", "units": 2})
    assert store.add_device("pocl", {"units": 2, "driver": "3.0"}) == first
    assert store.add_device("pocl", {"driver": "6.0", "units": 2}) != first
    assert [device.name for device in store.devices()] == ["pocl", "pocl"]
    assert store.devices()[0].facts == {"driver": "3.0", "units": 2}


def test_the_same_key_resumes_a_study(store: Store):
    study = some_study(store)
    assert some_study(store) == study
    assert study.created_at == NOW
    assert some_study(store, seed=2).id != study.id
    assert [found.seed for found in store.studies()] == [1, 2]
    assert store.study(study.id) == study


def test_every_outcome_comes_back(store: Store):
    study = some_study(store)
    for number, outcome in enumerate(OUTCOMES):
        assert store.add_measurement(study, some_candidate(study, number), outcome, 2048)
    found = store.measurements(study)
    assert tuple(measurement.outcome for measurement in found) == OUTCOMES
    assert {measurement.memory_bytes for measurement in found} == {2048}
    assert set(store.outcomes(study).values()) == {1}


def test_a_candidate_can_be_built_again_from_its_row(store: Store):
    study = some_study(store)
    candidate = some_candidate(study)
    store.add_measurement(study, candidate, Timeout(1.0), 0)
    assert store.candidate(candidate.id) == candidate
    assert store.candidate(candidate.id).id == candidate.id
    assert store.program(candidate.program_hash).json_text == '{"kernels":[]}'


def test_a_resumed_study_repeats_nothing(store: Store):
    study = some_study(store)
    candidate = some_candidate(study)
    assert store.add_measurement(study, candidate, Timed((7,), 0.0, 1.0), 1)
    resumed = some_study(store)
    assert store.measured_candidates(resumed) == {candidate.id}
    assert not store.add_measurement(resumed, candidate, Crash(1, "again"), 1)
    assert [found.outcome for found in store.measurements(study)] == [Timed((7,), 0.0, 1.0)]


def test_another_study_measures_the_candidate_again(store: Store):
    first, second = some_study(store), some_study(store, seed=2)
    candidate = some_candidate(first)
    later = some_candidate(first, source_hash="1" * 64, nestmap_version="0.2.0")
    assert store.add_measurement(first, candidate, Timeout(1.0), 1)
    assert later.id == candidate.id
    assert store.add_measurement(second, later, Timeout(1.0), 1)
    (measurement,) = store.measurements(second)
    assert (measurement.source_hash, measurement.nestmap_version) == ("1" * 64, "0.2.0")
    assert store.candidate(candidate.id) == candidate


def test_times_keep_their_instant(store: Store):
    study = some_study(store)
    began = datetime(2026, 5, 6, 7, 8, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    store.add_measurement(study, some_candidate(study), Timeout(1.0), 1, started_at=began)
    (measurement,) = store.measurements(study)
    assert measurement.started_at == began
    assert measurement.started_at.utcoffset() == timedelta(0)


def test_what_is_not_there_is_an_input_error(store: Store):
    for look in (store.program, store.candidate):
        with pytest.raises(InputError, match=r"no such .*feed"):
            look("feed")
    with pytest.raises(InputError, match="no such study"):
        store.study(7)


def test_what_the_database_refuses_is_a_store_error(store: Store):
    study = some_study(store)
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.open_study("feed", 1, mode="m", seed=0, label="", variant="")
    with pytest.raises(StoreError, match="too large"):
        some_study(store, seed=2**63)
    with pytest.raises(StoreError, match="surrogates"):
        store.add_device("\udc80", {})
    with pytest.raises(StoreError, match="too large"):
        store.add_measurement(study, some_candidate(study), Timeout(1.0), 2**64)
    assert store.measurements(study) == ()  # and the candidate went with it
    with pytest.raises(InputError, match="no such candidate"):
        store.candidate(some_candidate(study).id)


# Few distinct values, so that ties in one and both coordinates are common.
points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25)


def test_front_equals_the_oracle():
    seeds = count()

    # One store for all examples: what it has of earlier ones may not show up either.
    @given(points)
    def check(sizes: list[tuple[int, int]]):
        study, other = some_study(store, next(seeds)), some_study(store, next(seeds))
        all_points: list[FrontPoint] = []
        for number, (time_ns, memory) in enumerate(sizes):
            candidate, timed = some_candidate(study, number), Timed((time_ns,), 0.0, 1.0)
            store.add_measurement(study, candidate, timed, memory)
            all_points.append(FrontPoint(timed.time_ms, memory, candidate.id))
        # neither another study nor a failure may show up
        store.add_measurement(other, some_candidate(study, 98), Timed((0,), 0.0, 1.0), 0)
        store.add_measurement(study, some_candidate(study, 99), Timeout(1.0), 0)
        assert list(store.front(study)) == front_oracle(all_points)

    with Store.open(":memory:") as store:
        check()


def front_oracle(points: list[FrontPoint]) -> list[FrontPoint]:
    def beats(a: FrontPoint, b: FrontPoint) -> bool:
        no_worse = a.time_ms <= b.time_ms and a.memory_bytes <= b.memory_bytes
        return no_worse and (a.time_ms, a.memory_bytes) != (b.time_ms, b.memory_bytes)

    kept = [point for point in points if not any(beats(other, point) for other in points)]
    return sorted(kept, key=lambda point: (point.time_ms, point.memory_bytes, point.candidate_id))


def write_many(path: Path, first: int, count: int) -> None:
    """A process of the test below: opens (and maybe creates) the store, then writes."""
    with Store.open(path) as store:
        study = some_study(store)
        for number in range(first, first + count):
            store.add_measurement(study, some_candidate(study, number), Timed((1,), 0.0, 1.0), 1)


def test_processes_write_at_once(tmp_path: Path):
    path = tmp_path / "store.db"
    context = multiprocessing.get_context("spawn")
    # the ranges overlap: both processes try to store some candidates
    writers = [context.Process(target=write_many, args=(path, first, 60)) for first in (0, 40)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    with Store.open(path) as store:
        (study,) = store.studies()
        assert store.outcomes(study)["timed"] == 100
