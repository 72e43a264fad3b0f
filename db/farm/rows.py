"""Rows to the values that leave the store."""

from __future__ import annotations

from datetime import datetime

from db.farm.job_records import Attempt, Job
from db.farm.lifecycle import active_s
from db.farm.records import Artifact, Board, Event, Token
from db.farm.run_records import Progress, Run
from db.farm.states import (
    AttemptEnd,
    BoardState,
    EventKind,
    JobKind,
    JobState,
    RunState,
    Scope,
)
from db.farm.tables import (
    ArtifactRow,
    BoardRow,
    EventRow,
    JobAttemptRow,
    JobRow,
    RunRow,
    TokenRow,
)
from db.farm.turns import priority_of
from mapper.measurement import OUTCOME_KINDS


def token_of(row: TokenRow) -> Token:
    """A token; its hash stays behind."""
    return Token(
        id=row.id,
        scope=Scope(row.scope),
        board_id=row.board_id,
        label=row.label,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


def board_of(row: BoardRow) -> Board:
    """A board."""
    return Board(
        id=row.id,
        name=row.name,
        profile=row.profile,
        facts=row.facts,
        health=row.health,
        state=BoardState(row.state),
        reason=row.reason,
        state_by=row.state_by,
        agent_version=row.agent_version,
        created_at=row.created_at,
        last_seen=row.last_seen,
    )


def run_of(row: RunRow, now: datetime) -> Run:
    """A run as it is ``now``: the seconds of one that is running go on."""
    progress = Progress(
        proposed=row.proposed,
        outcomes={kind: getattr(row, kind.replace("-", "_")) for kind in OUTCOME_KINDS},
        lost=row.lost,
        best_ms=row.best_ms,
        best_memory_bytes=row.best_memory_bytes,
        best_candidate_id=row.best_candidate_id,
        active_s=active_s(row, now),
    )
    return Run(
        id=row.id,
        board_id=row.board_id,
        label=row.label,
        principal=row.principal,
        request=row.request,
        state=RunState(row.state),
        reason=row.reason,
        priority=row.priority,
        low_water=row.low_water,
        budget_candidates=row.budget_candidates,
        budget_seconds=row.budget_seconds,
        exhausted=row.exhausted,
        progress=progress,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def job_of(row: JobRow) -> Job:
    """A job."""
    return Job(
        id=row.id,
        kind=JobKind(row.kind),
        state=JobState(row.state),
        run_id=row.run_id,
        board_id=row.board_id,
        study_id=row.study_id,
        candidate_id=row.candidate_id,
        principal=row.principal,
        payload=row.payload,
        result=row.result,
        priority=priority_of(row.rank),
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        not_before=row.not_before,
        lease_until=row.lease_until,
        stage=row.stage,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def attempt_of(row: JobAttemptRow) -> Attempt:
    """One claim of a job."""
    return Attempt(
        attempt=row.attempt,
        owner=row.owner,
        claimed_at=row.claimed_at,
        ended_at=row.ended_at,
        ending=None if row.ending is None else AttemptEnd(row.ending),
        reason=row.reason,
    )


def event_of(row: EventRow) -> Event:
    """An event."""
    return Event(
        id=row.id,
        run_id=row.run_id,
        board_id=row.board_id,
        kind=EventKind(row.kind),
        payload=row.payload,
        at=row.at,
    )


def artifact_of(row: ArtifactRow) -> Artifact:
    """An artifact without its bytes."""
    return Artifact(row.hash, row.size, row.media_type, row.created_at)
