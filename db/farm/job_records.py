"""Values of jobs and their leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from db.farm.run_records import Run
from db.farm.states import AttemptEnd, JobKind, JobState


@dataclass(frozen=True, slots=True)
class NewJob:
    """A ``solve`` job that belongs to no run (those of runs are made by the run's own steps).

    Not claimed before ``not_before``; at most ``max_attempts`` claims get to work on it. Its owner
    has ``most_bytes`` stored at most with it; None for no bound.
    """

    payload: Mapping[str, Any]
    principal: str
    priority: int = 0
    not_before: datetime | None = None
    max_attempts: int = 3
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of a job; ``ending`` is None while it is under way."""

    attempt: int
    owner: str
    claimed_at: datetime
    ended_at: datetime | None
    ending: AttemptEnd | None
    reason: str


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of leased work.

    ``board_id``, ``study_id`` and ``candidate_id`` are set for ``measure`` only, ``run_id`` for
    ``measure`` and ``propose``. ``attempt`` counts claims. ``result`` is of ``solve`` alone.
    ``lease_until`` is set while it is leased.
    """

    id: str
    kind: JobKind
    state: JobState
    run_id: str | None
    board_id: str | None
    study_id: int | None
    candidate_id: str | None
    principal: str
    payload: Any
    result: Any
    priority: int
    attempt: int
    max_attempts: int
    not_before: datetime
    lease_until: datetime | None
    stage: str
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Lease:
    """What names one claim of a job; the token is drawn anew for each and stored as a hash."""

    job_id: str
    attempt: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """A job with the lease that lets its holder end it."""

    job: Job
    lease: Lease
    lease_s: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer to a heartbeat; ``cancel``: nobody wants the work any more, and its lease
    ends when it would have."""

    lease_until: datetime
    cancel: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """What the end of a lease led to.

    ``stored`` is False for a repeat of the same attempt, and for what a run that is ending has
    no use for; nothing was changed then but the job's own state. ``run`` is None for ``solve``.
    """

    job: Job
    stored: bool
    repeated: bool
    run: Run | None


@dataclass(frozen=True, slots=True)
class Swept:
    """What the sweeper did: jobs put back into the queue, and runs that ended."""

    expired: tuple[str, ...]
    ended_runs: tuple[str, ...]
