"""The search: what it proposes, that it goes on where it stopped, and what it leaves."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from mapper.constraint_rules.predicate import LocalSizeVariable, ParameterVariable
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.measurement import CompileError, Outcome, Timed, Wrong
from mapper.pipeline import assignment_to_json
from mapper.solver.space import check
from nestmap.tuning.journal import Journal
from nestmap.tuning.layer_search import (
    CONFIRMING,
    CONFIRMING_TURNS,
    Budget,
    Quest,
    Wish,
    quest,
    search,
)
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.pool import DeviceState, Pool
from nestmap.tuning.proposals.sample_and_change import SampleAndChange, readable
from nestmap.tuning.reference import Workload
from nestmap.tuning.trial import Trial, choices_key
from tests.unit.tuning.records import SMALL, record
from worker.devices.null import NULL_PROFILE

FACTS = {"device.name": "fake", "driver.version": "1", "platform.version": "1"}


class FakePool:
    """Answers at once with a time that the choices decide."""

    size = 1

    def __init__(self, outcome: Outcome | None = None) -> None:
        self._outcome = outcome
        self._queue: deque[tuple[Mapping[str, Any], Repetition]] = deque()
        self.measured: list[tuple[str, Repetition]] = []
        self.layer: LayerSpec | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def device(self) -> DeviceState:
        return DeviceState(dict(FACTS), NULL_PROFILE)

    def begin(self, layer: LayerSpec, variant: str, workload: Workload) -> None:
        self.layer = layer

    def submit(self, choices: Mapping[str, Any], how: Repetition) -> None:
        self._queue.append((choices, how))

    def drop_queued(self) -> None:
        self._queue.clear()

    def result(self, timeout_s: float) -> Trial | None:
        if not self._queue:
            return None
        choices, how = self._queue.popleft()
        self.measured.append((choices_key(choices), how))
        return Trial(choices, self._outcome or self.timed(choices), self.extra(choices))

    @staticmethod
    def timed(choices: Mapping[str, Any]) -> Timed:
        return Timed((1000 + int(choices_key(choices)[:4], 16),) * 5, 1e-7, 0.0)

    @staticmethod
    def extra(choices: Mapping[str, Any]) -> int:
        return int(choices_key(choices)[4], 16) % 2 * 64


@pytest.fixture(scope="module")
def wanted() -> Quest:
    return quest(SMALL, "direct", NULL_PROFILE)


def run(wanted: Quest, fake: FakePool, path: Path, **more: Any) -> list[Any]:
    with Journal(path, FACTS) as journal:
        return search(wanted, cast(Pool, fake), journal, **more)


def test_a_search_measures_as_many_as_asked_and_leaves_the_best(wanted: Quest, tmp_path: Path):
    fake = FakePool()
    found = run(wanted, fake, tmp_path / "j", budget=Budget(candidates=20))
    searched = [key for key, how in fake.measured if how != CONFIRMING]
    confirmed = [key for key, how in fake.measured if how == CONFIRMING]
    assert len(searched) == len(set(searched)) == 20
    # In turns, so that a machine that is slow for a while is slow for all of them.
    contenders = confirmed[: len(set(confirmed))]
    assert set(contenders) <= set(searched)
    assert confirmed == contenders * CONFIRMING_TURNS
    fastest = min(found, key=lambda record: record.time_ms)
    all_times = sorted(1000 + int(key[:4], 16) for key in searched)
    assert fastest.time_ms == all_times[0] / 1e6
    leanest = [r for r in found if r.extra_bytes == 0]
    lean_times = [1000 + int(k[:4], 16) for k in searched if int(k[4], 16) % 2 == 0]
    assert min(r.time_ms for r in leanest) == min(lean_times) / 1e6
    assert {(r.device, r.variant, r.layer) for r in found} == {("fake", "direct", SMALL)}


def test_a_search_goes_on_where_it_stopped_and_measures_nothing_twice(
    wanted: Quest, tmp_path: Path
):
    path = tmp_path / "journal.ndjson"
    first, again, more = FakePool(), FakePool(), FakePool()
    run(wanted, first, path, budget=Budget(candidates=10))
    # The process was killed while it wrote a line.
    path.write_text(path.read_text() + '{"layer": "x", "tri')
    found = run(wanted, again, path, budget=Budget(candidates=10))
    assert all(how == CONFIRMING for _, how in again.measured)
    assert found
    run(wanted, more, path, budget=Budget(candidates=16))
    searched = [key for key, how in more.measured if how != CONFIRMING]
    assert len(searched) == 6
    assert not {key for key, _ in first.measured} & set(searched)


def test_trials_of_another_device_count_for_nothing(wanted: Quest, tmp_path: Path):
    path = tmp_path / "journal.ndjson"
    run(wanted, FakePool(), path, budget=Budget(candidates=5))
    for other in ({"driver.version": "2"}, {"device.target": "haswell"}):
        with Journal(path, {**FACTS, **other}) as journal:
            assert journal.trials(wanted.key) == []
    with Journal(path, FACTS) as journal:
        assert len(journal.trials(wanted.key)) == 5


def test_another_file_is_no_journal(tmp_path: Path):
    path = tmp_path / "other.ndjson"
    path.write_text('{"schema": "nestmap/front/1"}\n')
    with pytest.raises(InputError, match="no journal"):
        Journal(path, FACTS)


@pytest.mark.parametrize("outcome", [CompileError("no"), Wrong(1.0, (0,), "bad")])
def test_what_fails_or_is_wrong_never_becomes_a_record(
    wanted: Quest, tmp_path: Path, outcome: Outcome
):
    fake = FakePool(outcome)
    assert run(wanted, fake, tmp_path / "j", budget=Budget(candidates=6)) == []
    assert not [how for _, how in fake.measured if how == CONFIRMING]


class Unsteady(FakePool):
    """Slower in each turn; what fails does so in its second."""

    def __init__(self, failing: str = "") -> None:
        super().__init__()
        self.failing = failing

    def result(self, timeout_s: float) -> Trial | None:
        trial = super().result(timeout_s)
        if trial is None:
            return None
        key = choices_key(trial.choices)
        turn = len([one for one in self.measured if one == (key, CONFIRMING)])
        if turn == 0:
            return trial
        outcome: Outcome = Timed((turn * 10_000,) * 3, turn * 1e-7, 0.0)
        if turn == 2 and key == self.failing:
            outcome = CompileError("no")
        return replace(trial, outcome=outcome, relative_error=turn * 1e-7)


def test_a_record_has_the_times_of_all_turns_and_their_largest_error(wanted: Quest, tmp_path: Path):
    found = run(wanted, Unsteady(), tmp_path / "j", budget=Budget(candidates=6))
    assert {record.time_ms for record in found} == {0.02}
    assert {record.trials for record in found} == {3 * CONFIRMING_TURNS}
    assert {record.relative_error for record in found} == {CONFIRMING_TURNS * 1e-7}


def test_what_fails_in_a_later_turn_is_no_record_and_gets_no_more_turns(
    wanted: Quest, tmp_path: Path
):
    path = tmp_path / "j"
    records = run(wanted, Unsteady(), path, budget=Budget(candidates=6))
    failing = choices_key(records[0].choices)
    fake = Unsteady(failing)
    rest = run(wanted, fake, path, budget=Budget(candidates=6))
    assert [r.choices for r in rest] == [r.choices for r in records[1:]]
    assert fake.measured.count((failing, CONFIRMING)) == 2


def test_records_are_tried_first_and_timed_again(wanted: Quest, tmp_path: Path):
    known = SampleAndChange(wanted.space, 7).propose(3)[2]
    choices = assignment_to_json(known)
    fake = FakePool()
    found = run(
        wanted,
        fake,
        tmp_path / "j",
        budget=Budget(candidates=4),
        known=[record(choices=choices), record(choices={"mapping": {"no such map": 0}})],
    )
    assert fake.measured[0][0] == choices_key(choices)
    assert choices in [dict(r.choices) for r in found]


def test_proposals_are_valid_and_never_the_same_twice(wanted: Quest):
    proposals = SampleAndChange(wanted.space, 1, explored=6)
    seen: set[str] = set()
    for _ in range(6):
        batch = proposals.propose(5)
        assert len(batch) == 5
        for assignment in batch:
            assert not check(wanted.space, assignment)
            key = choices_key(assignment_to_json(assignment))
            assert key not in seen
            seen.add(key)
        choices = [assignment_to_json(a) for a in batch]
        proposals.tell(
            [(a, Trial(c, FakePool.timed(c))) for a, c in zip(batch, choices, strict=True)]
        )


def test_later_proposals_are_changes_of_what_was_good(wanted: Quest):
    proposals = SampleAndChange(wanted.space, 3, explored=1)
    parent = proposals.propose(1)[0]
    proposals.tell([(parent, Trial(assignment_to_json(parent), Timed((10,), 0.0, 0.0)))])
    changed = proposals.propose(30)

    def differences(assignment: Mapping[Any, int]) -> int:
        return sum(
            assignment[v] != value
            for v, value in parent.items()
            if not isinstance(v, LocalSizeVariable)
        )

    near = [a for a in changed if differences(a) <= 12]
    far = [a for a in SampleAndChange(wanted.space, 4).propose(10) if differences(a) <= 12]
    assert len(near) > len(changed) // 2 > len(far)


def test_a_space_that_is_exhausted_ends_the_search(tmp_path: Path):
    whole = quest(SMALL, "direct", NULL_PROFILE)
    one = SampleAndChange(whole.space, 0).propose(1)[0]
    choices = assignment_to_json(one)
    pins = [f"{name}={code}" for name, code in choices["mapping"].items()]
    pins += [f"{name}={value}" for name, value in choices["parameters"].items()]
    pins += [
        f"{kernel}.{d}={size}"
        for kernel, sizes in choices["local_sizes"].items()
        for d, size in enumerate(sizes)
    ]
    pinned = quest(SMALL, "direct", NULL_PROFILE, Wish(tuple(pins)))
    fake = FakePool()
    found = run(pinned, fake, tmp_path / "j", budget=Budget())
    assert [dict(r.choices) for r in found] == [choices]


def test_pins_hold_for_every_candidate(tmp_path: Path):
    pinned = quest(SMALL, "direct", NULL_PROFILE, Wish(("th=2",), ("tw=1",)))
    for assignment in SampleAndChange(pinned.space, 0).propose(8):
        values = {v.name: x for v, x in assignment.items() if isinstance(v, ParameterVariable)}
        assert values["th"] == 2 and values["tw"] != 1


def test_stored_choices_that_are_not_valid_any_more_are_left_out(wanted: Quest):
    fine = assignment_to_json(SampleAndChange(wanted.space, 0).propose(1)[0])
    broken = {**fine, "parameters": {**fine["parameters"], "th": 12345}}
    partial = {"mapping": fine["mapping"]}
    unknown = json.loads(json.dumps(fine))
    unknown["mapping"]["no such map"] = 0
    found = readable(wanted.space, [broken, partial, unknown, fine])
    assert [assignment_to_json(a) for a in found] == [fine]
