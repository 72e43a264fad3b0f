"""Names of rows sort by time and are not to be guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from db.farm.identifiers import new_identifier, new_identifiers

NOW = datetime(2026, 11, 21, 12, 0, 0, 7, tzinfo=UTC)


def test_names_sort_by_birth():
    later = [NOW + timedelta(microseconds=step) for step in (0, 1, 2, 10**6, 10**15)]
    names = [new_identifier("job_", time) for time in later]
    assert names == sorted(names)
    assert {len(name) for name in names} == {30}


def test_names_of_one_batch_keep_their_order():
    names = new_identifiers("job_", NOW, 500)
    assert names == sorted(names)
    assert len(set(names)) == 500
    assert names[-1] < new_identifier("job_", NOW + timedelta(microseconds=1))


def test_names_of_one_moment_differ_beyond_counting():
    first, second = new_identifier("run_", NOW), new_identifier("run_", NOW)
    assert first[:10] == second[:10]
    assert first[14:] != second[14:]
