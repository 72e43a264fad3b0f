"""Artifacts, events and retention: what is kept is whole, what is dropped is said."""

from __future__ import annotations

import hashlib

import pytest
from sqlalchemy import text, update

from db.farm import artifacts as artifacts_module
from db.farm.errors import AbsentError
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.records import IdempotencyKey, Pruned, StoredResponse
from db.farm.retention import RetentionPolicy
from db.farm.run_records import ArtifactContent
from db.farm.states import JobKind, RunState, Scope
from db.farm.tables import ArtifactChunkRow
from mapper.errors import InputError, LimitError, StoreError
from tests.unit.db.farm_values import (
    SOURCE_HASH,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_candidate,
    some_run,
)

DAY_S = 86_400.0
KEEP_ALL = RetentionPolicy(
    events_days=None,
    idempotency_days=None,
    credentials_days=None,
    jobs_days=None,
    lone_jobs_days=None,
    artifacts_days=None,
    programs_days=None,
)


def rows_of(farm: Farm, table: str) -> int:
    with farm.store._transactions.read() as session:
        return session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()


# Artifacts


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 24, 25])
def test_bytes_come_back_whole(farm: Farm, monkeypatch: pytest.MonkeyPatch, size: int):
    monkeypatch.setattr(artifacts_module, "CHUNK_BYTES", 8)
    data = bytes(range(size))
    artifact = farm.artifacts.put(ArtifactContent(data, "text/plain"))
    assert artifact.hash == hashlib.sha256(data).hexdigest()
    assert (artifact.size, artifact.media_type) == (size, "text/plain")
    assert farm.artifacts.read(artifact.hash) == data
    assert all(len(chunk) <= 8 for chunk in farm.artifacts.chunks(artifact.hash))
    assert rows_of(farm, "artifact_chunks") == -(-size // 8)


def test_equal_bytes_are_stored_once(farm: Farm):
    first = farm.artifacts.put(ArtifactContent(b"same", "text/plain"))
    assert farm.artifacts.put(ArtifactContent(b"same", "image/png")) == first
    assert farm.artifacts.find(first.hash) == first
    assert rows_of(farm, "artifact_chunks") == 1
    assert farm.artifacts.missing([first.hash, "0" * 64]) == {"0" * 64}


@pytest.mark.parametrize("damage", [b"sane", b"", b"same and more"])
def test_damaged_bytes_are_not_given_out_as_good(farm: Farm, damage: bytes):
    artifact = farm.artifacts.put(ArtifactContent(b"same"))
    with farm.store._transactions.write() as session:
        session.execute(update(ArtifactChunkRow).values(data=damage))
    with pytest.raises(StoreError, match="the bytes are damaged"):
        farm.artifacts.read(artifact.hash)


def test_bytes_that_are_not_there_or_too_many(farm: Farm, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(AbsentError, match="no such artifact"):
        farm.artifacts.read("0" * 64)
    for name in ("../etc/passwd", "0" * 63, "A" * 64, "0" * 64 + "\n"):
        with pytest.raises(InputError, match="no SHA-256"):
            farm.artifacts.find(name)
    monkeypatch.setattr(artifacts_module, "MAX_ARTIFACT_BYTES", 3)
    with pytest.raises(LimitError, match="too large"):
        farm.artifacts.put(ArtifactContent(b"four"))


# Events


def test_events_of_a_run_are_read_from_any_place(farm: Farm):
    board = some_board(farm)
    run, other = some_run(farm, board), some_run(farm, board)
    propose(farm, range(3))
    for _ in range(3):
        finish(farm, claim(farm, board))
    everything = farm.events.events_after(run.id).events
    ids = [event.id for event in everything]
    assert ids == sorted(set(ids))
    assert {event.run_id for event in everything} == {run.id}
    found, after = [], 0
    while page := farm.events.events_after(run.id, after, limit=2).events:
        found += page
        after = page[-1].id
    assert tuple(found) == everything
    assert farm.events.newest(run.id) == ids[-1]
    assert farm.events.newest(other.id) == farm.events.events_after(other.id).events[-1].id


def test_old_events_are_dropped_and_the_gap_is_said(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(8))
    for _ in range(8):
        finish(farm, claim(farm, board))
    ids = [event.id for event in farm.events.events_after(run.id).events]
    policy = RetentionPolicy(events_kept=4)
    assert farm.retention.prune(policy).events == len(ids) - 4
    assert farm.retention.prune(policy) == Pruned()
    page = farm.events.events_after(run.id, after=ids[0])
    assert [event.id for event in page.events] == ids[-4:]
    assert page.gap
    assert not farm.events.events_after(run.id, after=ids[-5]).gap  # it has seen all before
    farm.runs.cancel(run.id)
    assert farm.events.newest(run.id) > ids[-1]


def test_event_numbers_are_not_given_again(farm: Farm, clock: Clock):
    run = some_run(farm, some_board(farm))
    farm.runs.cancel(run.id)
    newest = farm.events.newest(run.id)
    clock.advance(91 * DAY_S)
    assert farm.retention.prune(RetentionPolicy()).events > 0
    assert farm.events.events_after(run.id).events == ()
    assert farm.events.events_after(run.id).gap
    again = some_run(farm, some_board(farm, "other"))
    assert farm.events.events_after(again.id).events[0].id > newest


def test_events_of_boards_are_bounded_too(farm: Farm):
    board = some_board(farm)
    for _ in range(6):
        farm.boards.quarantine(board.id, "x", by="me")
        farm.boards.release(board.id, by="me")
    assert farm.retention.prune(RetentionPolicy(events_kept=3)).events == 10
    assert len(farm.events.of_board(board.id)) == 3


# Retention


def test_nothing_is_dropped_before_its_time(farm: Farm, clock: Clock):
    board = some_board(farm)
    some_run(farm, board, budget_candidates=1)
    propose(farm, [0])
    finish(farm, claim(farm, board))
    farm.enrolments.create()
    farm.idempotency.remember(IdempotencyKey("me", "k", "0" * 64), StoredResponse(200, None))
    assert farm.retention.prune(RetentionPolicy()) == Pruned()
    clock.advance(10_000 * DAY_S)
    assert farm.retention.prune(KEEP_ALL) == Pruned()


def test_keys_codes_and_dead_tokens_go_with_time(farm: Farm, clock: Clock):
    farm.idempotency.remember(IdempotencyKey("me", "k", "0" * 64), StoredResponse(200, None))
    farm.enrolments.create(lifetime_s=60)
    kept = farm.tokens.create(Scope.ADMIN)
    farm.tokens.revoke(farm.tokens.create(Scope.USER).token.id)
    farm.tokens.create(Scope.USER, lifetime_s=60)
    clock.advance(31 * DAY_S)
    pruned = farm.retention.prune(RetentionPolicy())
    assert pruned == Pruned(idempotency=1, enrolments=1, tokens=2)
    assert farm.tokens.verify(kept.text)


def test_jobs_go_and_what_was_measured_stays(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, budget_candidates=2, low_water=1, priority=1)
    going_on = some_run(farm, board)
    for _ in range(2):
        propose(farm, range(3))
    for _ in range(2):
        finish(farm, claim(farm, board))
    solve = farm.jobs.enqueue(NewJob({}, "me")).value
    farm.jobs.cancel(solve.id)
    ended = [r for r in farm.runs.page() if r.state is RunState.FINISHED]
    assert [r.id for r in ended] == [run.id]
    open_before = farm.jobs.counts()
    clock.advance(366 * DAY_S)
    pruned = farm.retention.prune(RetentionPolicy())
    assert pruned.jobs == 4 + 1  # one propose and three measure jobs of the run, and the solve job
    assert farm.jobs.of_run(run.id) == ()
    assert farm.jobs.counts() == open_before
    assert len(farm.runs.history(run.id).measured) == 2
    assert farm.store.candidate(some_candidate(0).id) == some_candidate(0)
    assert farm.artifacts.find(SOURCE_HASH)  # the other run still refers to it
    assert farm.jobs.of_run(going_on.id)
    farm.runs.cancel(going_on.id)
    clock.advance(366 * DAY_S)
    farm.retention.prune(RetentionPolicy())
    assert farm.artifacts.find(SOURCE_HASH) is None
    assert rows_of(farm, "artifact_chunks") == 0


def test_bytes_that_were_stored_again_are_wanted_again(farm: Farm, clock: Clock):
    artifact = farm.artifacts.put(ArtifactContent(b"input"))
    clock.advance(6 * DAY_S)
    farm.artifacts.put(ArtifactContent(b"input"))
    clock.advance(6 * DAY_S)
    assert farm.retention.prune(RetentionPolicy()) == Pruned()
    clock.advance(2 * DAY_S)
    assert farm.retention.prune(RetentionPolicy()) == Pruned(artifacts=1)
    assert farm.artifacts.find(artifact.hash) is None


def test_pruning_is_done_in_rounds(farm: Farm, clock: Clock):
    for _ in range(5):
        job = farm.jobs.enqueue(NewJob({}, "me")).value
        assert job.kind is JobKind.SOLVE
        farm.jobs.cancel(job.id)
    clock.advance(366 * DAY_S)
    rounds = [farm.retention.prune(RetentionPolicy(), limit=2).jobs for _ in range(4)]
    assert rounds == [2, 2, 1, 0]
