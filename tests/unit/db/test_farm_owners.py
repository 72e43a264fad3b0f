"""Owners: a total of bytes that is exact, debts of proposals, leases that are paid once."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Text, cast, func, select

from db.farm.errors import ConflictError
from db.farm.farm import Farm
from db.farm.job_records import Claim, NewJob
from db.farm.owners import ROW_BYTES, Owner
from db.farm.retention import RetentionPolicy
from db.farm.run_records import ArtifactContent
from db.farm.states import JobKind, RunState
from db.farm.tables import ArtifactRow, JobRow, RunRow
from db.farm.turns import HeldSeconds
from db.tables import ProgramRow
from tests.unit.db.farm_values import (
    PROGRAM_HASH,
    SOURCE,
    Clock,
    claim,
    finish,
    proposal,
    propose,
    some_board,
    some_proposal,
    some_run,
    taken,
)
from tests.unit.db.test_farm_concurrency import at_once

PROGRAM_TYPE = "nestmap/program/1"
DAY_S = 86_400.0


def bytes_of(farm: Farm, principal: str) -> int:
    """What an owner has stored, which must be what its rows add up to."""
    row = JobRow
    answered = func.coalesce(func.length(cast(row.result, Text)), 0)
    sizes: list[tuple[Any, Any, Any]] = [
        (RunRow, func.length(cast(RunRow.request, Text)), True),
        (row, func.length(cast(row.payload, Text)) + answered, row.run_id.is_(None)),
        (ArtifactRow, ArtifactRow.size, True),
        (ProgramRow, func.length(ProgramRow.json_text), True),
    ]
    total = 0
    with farm.store._transactions.read() as session:
        for table, size, which in sizes:
            found = select(size).where(table.principal == principal)
            if which is not True:
                found = found.where(which)
            total += sum(n_bytes + ROW_BYTES for n_bytes in session.scalars(found))
    assert farm.owners.stored_bytes(principal) == total
    return total


def test_runs_of_one_owner_owe_together(farm: Farm, clock: Clock) -> None:
    """Each new run of whoever's proposals took minutes came at once: it had no debt of its own."""
    board = some_board(farm)
    for _ in range(3):
        some_run(farm, board, principal="hostile")
        claimed = proposal(farm)
        for _ in range(9):
            clock.advance(20)
            farm.jobs.heartbeat(claimed.lease, lease_s=30)
        farm.results.finish_propose(claimed.lease, some_proposal([], exhausted=True))
    for _ in range(12):
        some_run(farm, board, principal="honest")
    some_run(farm, board, principal="hostile")
    assert taken(farm, 12) == ["honest"] * 12
    # The debt goes down with the time, and is none where nobody waits.
    some_run(farm, board, principal="honest")
    clock.advance(700)
    some_run(farm, board, principal="hostile")
    assert taken(farm, 2).count("hostile") == 1


def test_a_lease_that_is_taken_back_is_paid_once(farm: Farm, clock: Clock) -> None:
    board = some_board(farm)
    for _ in range(2):
        some_run(farm, board, principal="unlucky")
    # Another process gave it out, so that the store's clock says how long it was held.
    farm.jobs._held_seconds = farm.results._held_seconds = HeldSeconds(lambda: 0.0)
    claimed = proposal(farm)
    other = other_job(farm, claimed)
    before = rank_of(farm, other)
    for _ in range(3):
        clock.advance(40)
        farm.jobs.expire()
        farm.jobs.heartbeat(claimed.lease, lease_s=30)
    farm.jobs._held_seconds = farm.results._held_seconds = HeldSeconds(lambda: clock().timestamp())
    clock.advance(5)
    farm.results.finish_propose(claimed.lease, some_proposal([], exhausted=True))
    # 125 s in all; before, 30 + 70 + 110 of leases that ran out and 125 once more.
    assert rank_of(farm, other) - before == 125


def other_job(farm: Farm, claimed: Claim) -> str:
    """The one proposal that waits beside that."""
    with farm.store._transactions.read() as session:
        ids = session.scalars(select(JobRow.id).where(JobRow.id != claimed.job.id)).all()
    (found,) = ids
    return found


def rank_of(farm: Farm, job_id: str) -> int:
    with farm.store._transactions.read() as session:
        return session.get_one(JobRow, job_id).rank


def test_what_runs_bring_is_counted_and_ends_them(farm: Farm) -> None:
    """Arrays of cancelled runs, a year of them, were nobody's."""
    board = some_board(farm)
    run = some_run(farm, board, principal="hostile")
    before = bytes_of(farm, "hostile")
    inputs = ArtifactContent(b"i" * 100_000)
    propose(farm, [1], artifacts=(SOURCE, inputs))
    brought = bytes_of(farm, "hostile") - before
    assert brought >= 100_000 + len(SOURCE.data) + 3 * ROW_BYTES
    # Another's run of the same adds nothing to anybody.
    finish(farm, claim(farm, board))
    some_run(farm, board, principal="other")
    farm.runs.cancel(run.id)
    propose(farm, [2], artifacts=(SOURCE, inputs))
    assert bytes_of(farm, "other") < 2 * ROW_BYTES
    again = some_run(farm, board, principal="hostile")
    assert farm.runs.end_beyond(10**6, 200_000) == ()
    assert farm.runs.end_beyond(10**6, 100_000) == (again.id,)
    ended = farm.runs.run(again.id)
    assert (ended.state, ended.reason) == (RunState.FINISHED, "bytes of its owner")


def test_operations_are_kept_for_days_and_then_given_back(farm: Farm, clock: Clock) -> None:
    payload = {"request": {"kind": "count"}, "é": "x" * 5_000}
    job = farm.jobs.enqueue(NewJob(payload, "hostile", most_bytes=20_000)).value
    with pytest.raises(ConflictError, match="too many bytes"):
        farm.jobs.enqueue(NewJob(payload, "hostile", most_bytes=15_000))
    asked = bytes_of(farm, "hostile")
    found = farm.jobs.claim_work((JobKind.SOLVE,), "test", lease_s=30, job_id=job.id)
    assert found is not None
    farm.results.finish_solve(found.lease, {"items": ["a" * 30_000], "end": {}})
    assert bytes_of(farm, "hostile") > asked + 30_000
    with pytest.raises(ConflictError):  # the answer was longer than there was room for
        farm.jobs.enqueue(NewJob({}, "hostile", most_bytes=20_000))
    clock.advance(DAY_S)
    assert farm.retention.prune(RetentionPolicy()).jobs == 0
    clock.advance(2 * DAY_S)
    assert farm.retention.prune(RetentionPolicy()).jobs == 1
    assert bytes_of(farm, "hostile") == 0


def test_documents_and_kernels_that_nobody_uses_are_given_back(farm: Farm, clock: Clock) -> None:
    owner = Owner("somebody", 2**20)
    farm.artifacts.put(ArtifactContent(b"kernel void f() {}"), owner)
    unused, _ = farm.documents.put(PROGRAM_TYPE, '{"n":1}', owner)
    used, _ = farm.documents.put(PROGRAM_TYPE, '{"n":2}', owner)
    tuned, is_new = farm.documents.put(PROGRAM_TYPE, '{"kernels":[]}', owner)
    assert is_new and tuned == PROGRAM_HASH
    nobodys = farm.store.add_program(PROGRAM_TYPE, '{"n":3}')
    board = some_board(farm)
    some_run(farm, board, principal="other")
    propose(farm, [1])
    finish(farm, claim(farm, board))
    clock.advance(60 * DAY_S)
    assert farm.documents.used(used).schema == PROGRAM_TYPE
    assert farm.documents.put(PROGRAM_TYPE, '{"n":2}', owner) == (used, False)
    clock.advance(60 * DAY_S)
    pruned = farm.retention.prune(RetentionPolicy(programs_days=90))
    assert (pruned.programs, pruned.artifacts) == (1, 1)
    kept = farm.catalogue.documents([PROGRAM_TYPE])
    assert {item.hash for item in kept} == {used, tuned, nobodys}
    assert bytes_of(farm, "somebody") == 2 * ROW_BYTES + 7 + len('{"kernels":[]}')
    assert farm.documents.put(PROGRAM_TYPE, '{"n":1}', owner) == (unused, True)


def test_a_document_that_is_tuned_again_is_used(farm: Farm, clock: Clock):
    name, _ = farm.documents.put(PROGRAM_TYPE, '{"n":1}', Owner("somebody", 2**20))
    clock.advance(100 * DAY_S)
    assert farm.store.add_program(PROGRAM_TYPE, '{"n": 1}') == name
    assert farm.retention.prune(RetentionPolicy()).programs == 0
    clock.advance(100 * DAY_S)
    assert farm.retention.prune(RetentionPolicy()).programs == 1
    assert bytes_of(farm, "somebody") == 0


def test_of_many_at_once_only_those_get_in_for_whom_there_is_room(farm: Farm):
    def put(number: int) -> object:
        text = f'"{number}{"x" * 10_000}"'
        return farm.documents.put(PROGRAM_TYPE, text, Owner("greedy", 50_000))

    answers = at_once(put)
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert len(answers) - len(refused) == 3
    assert all(isinstance(answer, ConflictError) for answer in refused)
    assert bytes_of(farm, "greedy") == 3 * (10_003 + ROW_BYTES)


def test_who_prunes_at_once_gives_back_once(farm: Farm, clock: Clock):
    owner = Owner("somebody", 2**30)
    for number in range(12):
        farm.documents.put(PROGRAM_TYPE, f'{{"n":{number}}}', owner)
        farm.artifacts.put(ArtifactContent(b"x" * number), owner)
        farm.jobs.cancel(farm.jobs.enqueue(NewJob({"n": number}, "somebody")).value.id)
    run = some_run(farm, some_board(farm), principal="somebody")
    clock.advance(100 * DAY_S)
    pruned = at_once(lambda _: farm.retention.prune(RetentionPolicy()))
    assert not [each for each in pruned if isinstance(each, Exception)]
    assert [sum(getattr(each, kind) for each in pruned) for kind in ("programs", "artifacts")] == [
        12,
        12,
    ]
    assert sum(each.jobs for each in pruned) == 12
    assert bytes_of(farm, "somebody") == len('{"layer":0}') + ROW_BYTES
    assert farm.runs.run(run.id).principal == "somebody"
