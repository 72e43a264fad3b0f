"""Jobs for simulated boards, at the times at which they are to become claimable.

A job comes into being as it does in service: a run with a budget, its ``propose`` job leased, and
a proposal that ends this lease and queues ``measure`` jobs in one transaction. Only the search
and the printing of kernels are left out, which happen on other hosts. Everything but that last
transaction is done beforehand; the moment in which its commit begins is when the job becomes
claimable.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, event, func, select

from db.canonical import canonical_json, content_hash
from db.engine import address_of, open_engine
from db.farm.errors import ConflictError
from db.farm.farm import Farm
from db.farm.job_records import Claim, Lease
from db.farm.run_records import (
    ArtifactContent,
    DeviceState,
    NewRun,
    Proposal,
    ProposedCandidate,
    StudySpec,
)
from db.farm.states import JobKind
from db.farm.tables import BoardRow, JobRow, RunRow, RunStudyRow
from db.records import CandidateRecord
from db.tables import MeasurementRow
from mapper.errors import StoreError

OWNER = "bench-farm"
_PROGRAM = StudySpec("nestmap/bench-farm/1", '{"bench": "farm"}', "bench", "strict", 0)
_PROGRAM_HASH = content_hash(canonical_json({"bench": "farm"}))
_LEASE_S = 3_600.0
_THREADS = 6
_CLAIMS = 5
_RUNS = 10
#: As long as a kernel's source is.
_SOURCE_BYTES = 6_000


@dataclass(frozen=True, slots=True)
class Planned:
    """A run whose proposal is to come: who measures it, and the lease that lets it come."""

    run_id: str
    board_id: str
    lease: Lease
    number: int


@dataclass(frozen=True, slots=True)
class Injected:
    """Candidates that became claimable when a commit began (``claimable_ns``, monotonic);
    ``due_ns`` is when that was to happen, ``began_ns`` when the transaction began."""

    board_id: str
    candidates: tuple[str, ...]
    due_ns: int
    began_ns: int
    claimable_ns: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a candidate's job stands in the store, and how many measurements it has there."""

    state: str
    attempt: int
    measurements: int


class Injector:
    """Writes runs and jobs into the store of a farm; a context manager."""

    def __init__(self, url: str, label: str) -> None:
        self._label = label
        self._engine: Engine = open_engine(address_of(url), connections=_THREADS, durable=True)
        self._commit_ns = threading.local()
        event.listen(self._engine, "commit", self._on_commit)
        self.farm = Farm(self._engine)
        self._pool = ThreadPoolExecutor(_THREADS, "injector")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.farm.close()

    def codes(self, count: int, prefix: str) -> list[tuple[str, str]]:
        """Names and one-time codes of boards that are to come."""
        made = self._pool.map(lambda _: self.farm.enrolments.create().code, range(count))
        return [(f"{prefix}-{number}", code) for number, code in enumerate(made)]

    def plan(self, boards: Sequence[str], count: int, each: int = 1) -> list[Planned]:
        """``count`` runs for boards in turn, each of a budget of ``each`` candidates."""

        def one(number: int) -> Planned | None:
            board_id = boards[number % len(boards)]
            new = NewRun(
                board_id, self._label, OWNER, {}, budget_candidates=each,
                most_open=1_000_000, most_candidates=10**9, most_bytes=2**50,
            )  # fmt: skip
            for _ in range(_RUNS):
                run = self.farm.runs.create(new).value
                claim = self._claimed(self.farm.jobs.of_run(run.id)[0].id)
                if claim is not None:
                    return Planned(run.id, board_id, claim.lease, number)
                # A solver worker was quicker: it finds no layer, and the run fails. Another one.
            return None

        return [planned for planned in self._pool.map(one, range(count)) if planned is not None]

    def _claimed(self, job_id: str) -> Claim | None:
        """A ``propose`` job; the sweeper may hold it for a moment to ring for it."""
        for _ in range(_CLAIMS):
            claim = self.farm.jobs.claim_work(
                (JobKind.PROPOSE,), OWNER, lease_s=_LEASE_S, job_id=job_id
            )
            if claim is not None:
                return claim
            time.sleep(0.01)
        return None

    def inject(self, planned: Planned, due_ns: int, each: int = 1) -> Injected:
        """Let the jobs of a run become claimable now."""
        found = [_candidate(planned, place) for place in range(each)]
        proposal = Proposal(
            DeviceState("simulated", {}),
            (_PROGRAM,),
            tuple(candidate for candidate, _ in found),
            tuple(artifact for _, artifact in found),
            exhausted=True,
        )
        began_ns = time.monotonic_ns()
        self.farm.results.finish_propose(planned.lease, proposal)
        return Injected(
            planned.board_id,
            tuple(candidate.record.id for candidate, _ in found),
            due_ns,
            began_ns,
            self._commit_ns.value,
        )

    def all_at_once(self, planned: Sequence[Planned], each: int) -> list[Injected]:
        """As fast as it goes: a backlog."""
        now_ns = time.monotonic_ns()
        return list(self._pool.map(lambda one: self.inject(one, now_ns, each), planned))

    def at_rate(self, planned: Sequence[Planned], rate: float, seed: int) -> list[Injected]:
        """One by one at the times of a Poisson process of so many a second, whatever has become
        of those before: an open loop."""
        drawn = random.Random(seed)
        due = time.monotonic() + 0.2
        waiting: list[Future[Injected]] = []
        for one in planned:
            due += drawn.expovariate(rate)
            time.sleep(max(0.0, due - time.monotonic()))
            waiting.append(self._pool.submit(self.inject, one, int(due * 1e9)))
        return [future.result() for future in waiting]

    def wait_until_ended(self, within_s: float) -> float:
        """Seconds until every run of this label had ended. StoreError if one had not."""
        began = time.monotonic()
        while open_runs := self._open_runs():
            if time.monotonic() - began > within_s:
                raise StoreError(f"{open_runs} runs have not ended within {within_s:g} s")
            time.sleep(0.2)
        return time.monotonic() - began

    def cancel_open(self, planned: Sequence[Planned]) -> None:
        """Cancel what has not ended; measurements under way are kept when they come."""

        def one(run_id: str) -> None:
            with contextlib.suppress(ConflictError):  # it has ended meanwhile
                if not self.farm.runs.run(run_id).state.ended:
                    self.farm.runs.cancel(run_id)

        list(self._pool.map(one, [one.run_id for one in planned]))

    def endings(self) -> dict[str, Ending]:
        """By candidate, how all jobs of this label stand."""
        of_label = select(RunRow.id).where(RunRow.label == self._label)
        studies = select(RunStudyRow.study_id).where(RunStudyRow.run_id.in_(of_label))
        measured = (
            select(MeasurementRow.candidate_id, func.count())
            .where(MeasurementRow.study_id.in_(studies))
            .group_by(MeasurementRow.candidate_id)
        )
        jobs = select(JobRow.candidate_id, JobRow.state, JobRow.attempt).where(
            JobRow.run_id.in_(of_label), JobRow.candidate_id.is_not(None)
        )
        with self._engine.connect() as connection:
            counts: dict[str, int] = {row[0]: row[1] for row in connection.execute(measured)}
            rows = connection.execute(jobs).all()
        return {
            str(candidate): Ending(state, attempt, counts.get(str(candidate), 0))
            for candidate, state, attempt in rows
        }

    def seen_since(self, then: datetime) -> int:
        """How many boards have called since then; of each it is written every ten seconds."""
        rows = select(func.count()).where(BoardRow.last_seen >= then)
        with self._engine.connect() as connection:
            return connection.execute(rows).scalar_one()

    def _open_runs(self) -> int:
        rows = select(func.count()).where(RunRow.label == self._label, RunRow.ended_at.is_(None))
        with self._engine.connect() as connection:
            return connection.execute(rows).scalar_one()

    def _on_commit(self, connection: object) -> None:
        del connection
        self._commit_ns.value = time.monotonic_ns()


def _candidate(planned: Planned, place: int) -> tuple[ProposedCandidate, ArtifactContent]:
    """A candidate that nobody has had before, with a source of its own."""
    name = f"{planned.run_id}/{place}"
    source = f"// {name}\n".ljust(_SOURCE_BYTES, "x").encode()
    source_hash = hashlib.sha256(source).hexdigest()
    record = CandidateRecord(
        program_hash=_PROGRAM_HASH,
        parameters={"theta": 5, "rho": 1, "place": place},
        mapping={"run": planned.run_id},
        local_sizes={"convolution": [16, 4, 1]},
        source_hash=source_hash,
        memory_bytes=20_000_000 + planned.number,
        nestmap_version="bench",
    )
    payload: dict[str, Any] = {
        "schema": "nestmap/measure-job/1",
        "candidate": record.id,
        "source": source_hash,
        "timeout_s": 60.0,
    }
    proposed = ProposedCandidate(0, record, payload, (source_hash,))
    return proposed, ArtifactContent(source, "text/x-opencl")
