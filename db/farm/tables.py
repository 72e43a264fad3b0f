"""The farm's tables. A change here needs a migration: a test compares the two."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from db.farm.states import AttemptEnd, BoardState, JobKind, JobState, RunState, Scope
from db.tables import AsciiName, Base, Hash, RowId, UtcDateTime

Identifier = AsciiName(32)
Word = String(32)


def _one_of(column: str, values: Iterable[str]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"


def _where(condition: str) -> dict[str, Any]:
    """A partial index, on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class BoardRow(Base):
    """A board or host that an agent serves. ``profile`` names a shipped device profile."""

    __tablename__ = "boards"
    __table_args__ = (CheckConstraint(_one_of("state", BoardState), name="state"),)

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    profile: Mapped[str | None] = mapped_column(Text)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    health: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(Word)
    reason: Mapped[str] = mapped_column(Text)
    state_by: Mapped[str] = mapped_column(Text)
    agent_version: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen: Mapped[datetime | None] = mapped_column(UtcDateTime)


class BoardFactsRow(Base):
    """What a board said of itself at one time; a bounded number of rows a board."""

    __tablename__ = "board_facts"
    __table_args__ = (Index(None, "board_id", "id"),)

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    board_id: Mapped[str] = mapped_column(ForeignKey("boards.id"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)


class TokenRow(Base):
    """``hash`` is the SHA-256 of the secret part; ``id`` is the public part."""

    __tablename__ = "tokens"
    __table_args__ = (
        CheckConstraint(_one_of("scope", Scope), name="scope"),
        CheckConstraint("(scope = 'device') = (board_id IS NOT NULL)", name="device_has_board"),
        Index(None, "board_id"),
    )

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    hash: Mapped[str] = mapped_column(Hash)
    scope: Mapped[str] = mapped_column(Word)
    board_id: Mapped[str | None] = mapped_column(ForeignKey("boards.id"))
    label: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class EnrolmentRow(Base):
    """A one-time code by its hash; used when ``board_id`` is set."""

    __tablename__ = "enrolments"

    hash: Mapped[str] = mapped_column(Hash, primary_key=True)
    profile: Mapped[str | None] = mapped_column(Text)
    principal: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    board_id: Mapped[str | None] = mapped_column(ForeignKey("boards.id"))


class RunRow(Base):
    """One tuning request. Counters are kept here, so that progress costs one row to read."""

    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint(_one_of("state", RunState), name="state"),
        Index(None, "created_at", "id"),
        Index(None, "board_id", "created_at"),
        Index(
            "ix_runs_open",
            "state",
            **_where("state IN ('queued', 'running', 'paused', 'cancelling')"),
        ),
    )

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    board_id: Mapped[str] = mapped_column(ForeignKey("boards.id"))
    label: Mapped[str] = mapped_column(Text)
    principal: Mapped[str] = mapped_column(Text)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(Word)
    reason: Mapped[str] = mapped_column(Text)
    priority: Mapped[int] = mapped_column(Integer)
    low_water: Mapped[int] = mapped_column(Integer)
    budget_candidates: Mapped[int | None] = mapped_column(BigInteger)
    budget_seconds: Mapped[float | None] = mapped_column(Double)
    strategy_state: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    exhausted: Mapped[bool]
    proposed: Mapped[int] = mapped_column(BigInteger)
    lost: Mapped[int] = mapped_column(BigInteger)
    timed: Mapped[int] = mapped_column(BigInteger)
    wrong: Mapped[int] = mapped_column(BigInteger)
    compile_error: Mapped[int] = mapped_column(BigInteger)
    resource_error: Mapped[int] = mapped_column(BigInteger)
    timeout: Mapped[int] = mapped_column(BigInteger)
    crash: Mapped[int] = mapped_column(BigInteger)
    best_ms: Mapped[float | None] = mapped_column(Double)
    best_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    best_candidate_id: Mapped[str | None] = mapped_column(Hash)
    pruned_event_id: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    resumed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    active_s: Mapped[float] = mapped_column(Double)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RunBoardRow(Base):
    """A board that may measure a run's candidates, where that is more than the run's own board.

    A run that is tied to one board has no rows here.
    """

    __tablename__ = "run_boards"
    __table_args__ = (Index(None, "board_id"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    board_id: Mapped[str] = mapped_column(ForeignKey("boards.id"), primary_key=True)


class RunStudyRow(Base):
    """A study that a run owns: one for each variant and each state of the device's software."""

    __tablename__ = "run_studies"
    __table_args__ = (UniqueConstraint("study_id"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True)


class JobRow(Base):
    """A unit of leased work. ``lease_hash`` stays after the lease's end: a repeat is known by it.

    ``held`` is set while the run is paused, so that a claim need not look at runs. ``rank`` is
    the priority and the turn (:mod:`db.farm.turns`): queues are read off an index upwards.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(_one_of("kind", JobKind), name="kind"),
        CheckConstraint(_one_of("state", JobState), name="state"),
        CheckConstraint("(kind = 'measure') = (board_id IS NOT NULL)", name="measure_has_board"),
        CheckConstraint(
            "(kind = 'measure') = (candidate_id IS NOT NULL)", name="measure_has_candidate"
        ),
        CheckConstraint("(kind = 'measure') = (study_id IS NOT NULL)", name="measure_has_study"),
        CheckConstraint("(state = 'leased') = (lease_until IS NOT NULL)", name="leased_has_end"),
        # One live lease a board: the promise is kept by the database.
        Index("uq_jobs_live_lease", "board_id", unique=True, **_where("state = 'leased'")),
        # No candidate is measured twice in a study.
        Index("uq_jobs_candidate", "study_id", "candidate_id", unique=True),
        Index(
            "ix_jobs_board_queue",
            "board_id",
            "rank",
            "id",
            **_where("board_id IS NOT NULL AND state IN ('queued', 'leased')"),
        ),
        Index(
            "ix_jobs_work_queue",
            "rank",
            "id",
            **_where("board_id IS NULL AND state IN ('queued', 'leased')"),
        ),
        Index("ix_jobs_leases", "lease_until", **_where("state = 'leased'")),
        Index("ix_jobs_open_of_run", "run_id", **_where("state IN ('queued', 'leased')")),
        Index(None, "run_id", "id"),
    )

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    kind: Mapped[str] = mapped_column(Word)
    state: Mapped[str] = mapped_column(Word)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    board_id: Mapped[str | None] = mapped_column(ForeignKey("boards.id"))
    study_id: Mapped[int | None] = mapped_column(ForeignKey("studies.id"))
    candidate_id: Mapped[str | None] = mapped_column(ForeignKey("candidates.id"))
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    source_hash: Mapped[str | None] = mapped_column(Hash)
    nestmap_version: Mapped[str | None] = mapped_column(String(64))
    principal: Mapped[str] = mapped_column(Text)
    payload: Mapped[Any] = mapped_column(JSON, nullable=False)
    result: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    rank: Mapped[int] = mapped_column(Integer)
    held: Mapped[bool]
    attempt: Mapped[int] = mapped_column(Integer)
    max_attempts: Mapped[int] = mapped_column(Integer)
    not_before: Mapped[datetime] = mapped_column(UtcDateTime)
    lease_hash: Mapped[str | None] = mapped_column(Hash)
    lease_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stage: Mapped[str] = mapped_column(Text)
    rung_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class OwnerRow(Base):
    """What is on record of whoever makes runs and jobs, by the public part of the token.

    ``owed_turns`` are what proposals cost (:mod:`db.farm.turns`), as of ``owed_at``;
    ``stored_bytes`` what is there for the owner (:mod:`db.farm.owners`).
    """

    __tablename__ = "owners"

    principal: Mapped[str] = mapped_column(Text, primary_key=True)
    owed_turns: Mapped[int] = mapped_column(Integer)
    owed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stored_bytes: Mapped[int] = mapped_column(BigInteger)


class JobAttemptRow(Base):
    """One claim of a job, kept with how it ended. ``charged``: turns that were paid for it when
    its lease ran out, None where that never was."""

    __tablename__ = "job_attempts"
    __table_args__ = (CheckConstraint(_one_of("ending", AttemptEnd), name="ending"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    owner: Mapped[str] = mapped_column(Text)
    claimed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ending: Mapped[str | None] = mapped_column(Word)
    reason: Mapped[str] = mapped_column(Text)
    charged: Mapped[int | None] = mapped_column(Integer)


class EventRow(Base):
    """Something that happened to a run or to a board: exactly one of the two."""

    __tablename__ = "events"
    __table_args__ = (
        CheckConstraint("(run_id IS NULL) <> (board_id IS NULL)", name="one_subject"),
        Index(None, "run_id", "id"),
        Index(None, "board_id", "id"),
        # A number is never given twice, not even after the newest events were dropped.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    board_id: Mapped[str | None] = mapped_column(ForeignKey("boards.id"))
    kind: Mapped[str] = mapped_column(Word)
    payload: Mapped[dict[str, Any]] = mapped_column(JSON)
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class ArtifactRow(Base):
    """Bytes by their SHA-256; the bytes are in ``artifact_chunks``. ``principal`` is for whom they
    were stored first, None for nobody."""

    __tablename__ = "artifacts"

    hash: Mapped[str] = mapped_column(Hash, primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    media_type: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    touched_at: Mapped[datetime] = mapped_column(UtcDateTime)
    principal: Mapped[str | None] = mapped_column(Text)


class ArtifactChunkRow(Base):
    """A part of an artifact, numbered from 0."""

    __tablename__ = "artifact_chunks"

    hash: Mapped[str] = mapped_column(
        ForeignKey("artifacts.hash", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class RunArtifactRow(Base):
    """An artifact that jobs of a run refer to; it is kept as long as the run's are."""

    __tablename__ = "run_artifacts"
    __table_args__ = (Index(None, "hash"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    hash: Mapped[str] = mapped_column(ForeignKey("artifacts.hash"), primary_key=True)


class IdempotencyRow(Base):
    """What was answered to a request with an idempotency key."""

    __tablename__ = "idempotency"
    __table_args__ = (Index(None, "created_at"),)

    principal: Mapped[str] = mapped_column(String(200), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(Hash)
    status: Mapped[int] = mapped_column(Integer)
    response: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    resource: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StrikeRow(Base):
    """An admin's word that what a board measured between two times does not count; it stands
    until ``lifted_at``."""

    __tablename__ = "strikes"
    __table_args__ = (Index(None, "board_id", "id"),)

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    board_id: Mapped[str] = mapped_column(ForeignKey("boards.id"))
    since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reason: Mapped[str] = mapped_column(Text)
    principal: Mapped[str] = mapped_column(Text)
    measurements: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    lifted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    lifted_by: Mapped[str] = mapped_column(Text)


class StruckRow(Base):
    """A measurement that was struck: it lies here, where no front and no search finds it, with the
    id that it had."""

    __tablename__ = "struck_measurements"
    __table_args__ = (UniqueConstraint("study_id", "candidate_id"), Index(None, "strike_id"))

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=False)
    strike_id: Mapped[int] = mapped_column(ForeignKey("strikes.id"))
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"))
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidates.id"))
    kind: Mapped[str] = mapped_column(Word)
    detail: Mapped[dict[str, Any]] = mapped_column(JSON)
    trials: Mapped[bytes | None] = mapped_column(LargeBinary)
    time_ms: Mapped[float | None] = mapped_column(Double)
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    source_hash: Mapped[str] = mapped_column(String(64))
    nestmap_version: Mapped[str] = mapped_column(String(64))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    board_id: Mapped[str | None] = mapped_column(Identifier)
    spans: Mapped[bytes | None] = mapped_column(LargeBinary)
