"""Values for tests of the farm: a clock that is set by hand, boards, runs, proposals."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select

from db.canonical import canonical_json, content_hash
from db.farm.farm import Farm
from db.farm.identifiers import BOARD_PREFIX
from db.farm.job_records import Claim, Finished
from db.farm.records import Board
from db.farm.run_records import (
    ArtifactContent,
    DeviceState,
    NewRun,
    Proposal,
    ProposedCandidate,
    Run,
    StudySpec,
)
from db.farm.states import JobKind
from db.farm.tables import BoardRow, JobRow
from db.records import CandidateRecord
from db.tables import CandidateRow
from db.transactions import table_of
from mapper.measurement import Timed

PROGRAM = '{"kernels": []}'
PROGRAM_HASH = content_hash(canonical_json({"kernels": []}))
FACTS = {"driver.version": "3.0", "device.name": "pocl"}
SOURCE = ArtifactContent(b"kernel void conv() {}", "text/x-opencl")
SOURCE_HASH = hashlib.sha256(SOURCE.data).hexdigest()
TWO_JOB_KINDS = (JobKind.PROPOSE, JobKind.SOLVE)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        """Let it pass."""
        self.time += timedelta(seconds=seconds)


#: As many runs and candidates as a test makes.
UNBOUNDED: dict[str, Any] = {
    "most_open": 1_000_000, "most_candidates": 10**9, "most_bytes": 2**50,
}  # fmt: skip


def some_board(farm: Farm, name: str = "hikey") -> Board:
    """A board that has come in."""
    return farm.boards.add(name, profile="mali-g72", agent_version="0.1.0", facts=FACTS).board


def some_run(farm: Farm, board: Board, **changes: Any) -> Run:
    """A run on the board, just accepted."""
    values: dict[str, Any] = {"label": "vgg16/0", "principal": "me", "request": {"layer": 0}}
    values |= UNBOUNDED
    return farm.runs.create(NewRun(board.id, **(values | changes))).value


def some_candidate(
    number: int, program_hash: str = PROGRAM_HASH, memory_bytes: int | None = None
) -> CandidateRecord:
    """One of many."""
    return CandidateRecord(
        program_hash=program_hash,
        parameters={"theta": number},
        mapping={"outer": "wrg0"},
        local_sizes=[16, 1],
        source_hash=SOURCE_HASH,
        memory_bytes=1_000 - number if memory_bytes is None else memory_bytes,
        nestmap_version="0.1.0",
    )


def some_proposal(numbers: Sequence[int], **changes: Any) -> Proposal:
    """Candidates of these numbers in one study."""
    values: dict[str, Any] = {
        "device": DeviceState("pocl", FACTS),
        "studies": (StudySpec("nestmap/program/1", PROGRAM, "direct", "strict", 1),),
        "candidates": tuple(
            ProposedCandidate(0, some_candidate(n), {"candidate": n}, (SOURCE_HASH,))
            for n in numbers
        ),
        "artifacts": (SOURCE,),
    }
    return Proposal(**(values | changes))


def propose(farm: Farm, numbers: Sequence[int], **changes: Any) -> Finished:
    """Claim the next ``propose`` job and end it with these candidates."""
    claim = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
    assert claim is not None
    return farm.results.finish_propose(claim.lease, some_proposal(numbers, **changes))


def claim(farm: Farm, board: Board, lease_s: float = 30) -> Claim:
    """Claim the board's next job, which must be there."""
    found = farm.jobs.claim_for_board(board.id, lease_s=lease_s)
    assert found is not None
    return found


def timed(time_ns: int) -> Timed:
    """An outcome with this time."""
    return Timed((time_ns,), 1e-6, 12.5, {})


def finish(
    farm: Farm, claimed: Claim, time_ns: int = 1_000, facts: Mapping[str, Any] = FACTS
) -> Finished:
    """End a measurement well."""
    return farm.results.finish_measure(claimed.lease, timed(time_ns), facts=facts)


def with_work_like(farm: Farm, board: Board, count: int) -> list[str]:
    """The ids of ``count`` new boards, each with a job like the one of that board."""
    transactions = farm.store._transactions
    boards, candidates, jobs = (table_of(row) for row in (BoardRow, CandidateRow, JobRow))
    with transactions.look() as connection:
        job = connection.execute(select(jobs).where(jobs.c.board_id == board.id)).one()._asdict()
        one = connection.execute(select(boards).where(boards.c.id == board.id)).one()._asdict()
        found = select(candidates).where(candidates.c.id == job["candidate_id"])
        candidate = connection.execute(found).one()._asdict()
    names = [f"{BOARD_PREFIX}{number:026}" for number in range(count)]
    hashes = [f"{number:064x}" for number in range(count)]
    with transactions.write() as session:
        session.execute(insert(boards), [{**one, "id": n, "name": n} for n in names])
        session.execute(insert(candidates), [{**candidate, "id": h} for h in hashes])
        rows = zip(names, hashes, strict=True)
        copies = [{**job, "id": f"job_{n[4:]}", "board_id": n, "candidate_id": h} for n, h in rows]
        session.execute(insert(jobs), copies)
    return names


def proposal(farm: Farm) -> Claim:
    """Claim the next proposal."""
    found = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
    assert found is not None
    return found


def taken(farm: Farm, number: int) -> list[str]:
    """Whose the next proposals are, each done at once."""
    owners: list[str] = []
    for _ in range(number):
        claimed = proposal(farm)
        owners.append(claimed.job.principal)
        farm.results.finish_propose(claimed.lease, some_proposal([], exhausted=True))
    return owners
