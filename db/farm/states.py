"""States of boards, runs and jobs, and the steps that a run may take."""

from __future__ import annotations

from enum import StrEnum

from db.farm.errors import ConflictError
from mapper.errors import Problem


class Scope(StrEnum):
    """What a token is for."""

    ADMIN = "admin"
    USER = "user"
    DEVICE = "device"


class BoardState(StrEnum):
    """Whether a board gets work: only an active one does."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"


class RunState(StrEnum):
    """Where a run is. ``queued`` until its first candidates are there."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the run."""
        return self in _ENDED


_ENDED = frozenset({RunState.CANCELLED, RunState.FINISHED, RunState.FAILED})

#: Each state with those that may follow it. A paused run may still end: a measurement that was
#: under way can spend its budget.
RUN_STEPS: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset(
        {
            RunState.RUNNING,
            RunState.PAUSED,
            RunState.CANCELLING,
            RunState.CANCELLED,
            RunState.FINISHED,
            RunState.FAILED,
        }
    ),
    RunState.RUNNING: frozenset(
        {
            RunState.PAUSED,
            RunState.CANCELLING,
            RunState.CANCELLED,
            RunState.FINISHED,
            RunState.FAILED,
        }
    ),
    RunState.PAUSED: frozenset(
        {
            RunState.QUEUED,
            RunState.RUNNING,
            RunState.CANCELLING,
            RunState.CANCELLED,
            RunState.FINISHED,
            RunState.FAILED,
        }
    ),
    RunState.CANCELLING: frozenset({RunState.CANCELLED}),
    RunState.CANCELLED: frozenset(),
    RunState.FINISHED: frozenset(),
    RunState.FAILED: frozenset(),
}


def require_step(before: RunState, after: RunState) -> None:
    """Raise ``ConflictError`` unless a run may go from ``before`` to ``after``."""
    if after not in RUN_STEPS[before]:
        allowed = ", ".join(sorted(RUN_STEPS[before])) or "nothing: the run has ended"
        raise ConflictError(
            Problem(
                "run.state", f"a {before} run cannot become {after}", found=before, allowed=allowed
            )
        )


class JobKind(StrEnum):
    """What a job wants: candidates of a run, an answer of the solver, a measurement."""

    PROPOSE = "propose"
    SOLVE = "solve"
    MEASURE = "measure"


class JobState(StrEnum):
    """Where a job is. It ends once: ``done``, ``failed`` and ``cancelled`` are final."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the job is final."""
        return self not in (JobState.QUEUED, JobState.LEASED)


class AttemptEnd(StrEnum):
    """How one attempt of a job ended."""

    DONE = "done"
    EXPIRED = "expired"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EventKind(StrEnum):
    """What an event tells; its payload is a JSON object."""

    RUN_CREATED = "run-created"
    RUN_STATE = "run-state"
    PROPOSED = "proposed"
    MEASURED = "measured"
    JOB_EXPIRED = "job-expired"
    JOB_RETRIED = "job-retried"
    JOB_FAILED = "job-failed"
    BOARD_ENROLLED = "board-enrolled"
    BOARD_STATE = "board-state"
    STRUCK = "measurements-struck"
    RESTORED = "measurements-restored"
