"""Tuning starts from the records of the layer and the device, where there are any."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.pipeline import assignment_to_json, derive_space
from nestmap.tuning import starting_points
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.run import Budget, tune
from tests.unit.tuning.fakes import TINY, ScriptedDevice, draw_once, tiny_subjects
from tests.unit.tuning.records import record
from worker.devices.null import NULL_PROFILE

(PARTIAL,) = tiny_subjects("partial")


def test_candidates_of_records_come_first_and_the_search_resumes_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    partial = PARTIAL
    space = derive_space(partial, Mode.STRICT, NULL_PROFILE, DEFAULT_OPTIONS)
    drawn = draw_once(space, 6, 99)
    slow, fast = (assignment_to_json(assignment) for assignment in drawn[4:6])
    asked: list[str] = []

    def shipped(device: str) -> tuple[object, ...]:
        asked.append(device)
        return (
            record(layer=TINY, variant="partial", choices=slow, time_ms=2.0),
            record(layer=TINY, variant="partial", choices=fast, time_ms=1.0),
            record(layer=TINY, variant="partial", choices={"mapping": {"gone": 0}}),
            record(variant="partial", choices=slow, time_ms=0.1),
        )

    monkeypatch.setattr(starting_points, "shipped_records", shipped)
    first, again = ScriptedDevice(), ScriptedDevice()
    with Store.open(tmp_path / "store.sqlite3") as store:
        known = [candidate_of(0, partial, "", drawn[index]) for index in (5, 4)]
        tune((partial,), first, store, seed=3, budget=Budget(9), draw=draw_once)
        tune((partial,), again, store, seed=3, budget=Budget(12), draw=draw_once)
        rows = {name: store.candidate(name) for name in (*first.measured, *again.measured)}
    assert [rows[name].source_hash for name in first.measured[:2]] == [
        candidate.record.source_hash for candidate in known
    ]
    assert set(asked) == {"null"}
    assert len(again.measured) == 3
    assert not set(again.measured) & set(first.measured)
