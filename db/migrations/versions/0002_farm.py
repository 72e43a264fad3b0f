"""The farm: boards, tokens, runs, jobs with leases, events, artifacts, idempotency keys."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Written out, not imported: a migration says what the tables were, not what they are now.
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HASH = sa.String(64)
NAME = sa.String(32)
RUN_STATES = "'queued', 'running', 'paused', 'cancelling', 'cancelled', 'finished', 'failed'"
TIME = sa.DateTime(timezone=True)


def where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("hash", HASH, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.String(128), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("touched_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_artifacts"),
    )
    op.create_table(
        "boards",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("health", sa.JSON(), nullable=False),
        sa.Column("state", NAME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state_by", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_seen", TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('active', 'quarantined', 'disabled')", name=op.f("ck_boards_state")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_boards"),
        sa.UniqueConstraint("name", name="uq_boards_name"),
    )
    op.create_table(
        "idempotency",
        sa.Column("principal", sa.String(200), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("body_hash", HASH, nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("response", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("principal", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_created_at", "idempotency", ["created_at"])
    op.create_table(
        "artifact_chunks",
        sa.Column("hash", HASH, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["hash"], ["artifacts.hash"], name="fk_artifact_chunks_hash", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("hash", "number", name="pk_artifact_chunks"),
    )
    op.create_table(
        "board_facts",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("board_id", NAME, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_board_facts_board_id"),
        sa.PrimaryKeyConstraint("id", name="pk_board_facts"),
    )
    op.create_index("ix_board_facts_board_id_id", "board_facts", ["board_id", "id"])
    op.create_table(
        "enrolments",
        sa.Column("hash", HASH, nullable=False),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=True),
        sa.Column("board_id", NAME, nullable=True),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_enrolments_board_id"),
        sa.PrimaryKeyConstraint("hash", name="pk_enrolments"),
    )
    op.create_table(
        "runs",
        sa.Column("id", NAME, nullable=False),
        sa.Column("board_id", NAME, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("state", NAME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("low_water", sa.Integer(), nullable=False),
        sa.Column("budget_candidates", sa.BigInteger(), nullable=True),
        sa.Column("budget_seconds", sa.Double(), nullable=True),
        sa.Column("strategy_state", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("exhausted", sa.Boolean(), nullable=False),
        sa.Column("proposed", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.BigInteger(), nullable=False),
        sa.Column("timed", sa.BigInteger(), nullable=False),
        sa.Column("wrong", sa.BigInteger(), nullable=False),
        sa.Column("compile_error", sa.BigInteger(), nullable=False),
        sa.Column("resource_error", sa.BigInteger(), nullable=False),
        sa.Column("timeout", sa.BigInteger(), nullable=False),
        sa.Column("crash", sa.BigInteger(), nullable=False),
        sa.Column("best_ms", sa.Double(), nullable=True),
        sa.Column("best_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("best_candidate_id", HASH, nullable=True),
        sa.Column("pruned_event_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("resumed_at", TIME, nullable=True),
        sa.Column("active_s", sa.Double(), nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.CheckConstraint(f"state IN ({RUN_STATES})", name=op.f("ck_runs_state")),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_runs_board_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_board_id_created_at", "runs", ["board_id", "created_at"])
    op.create_index("ix_runs_created_at_id", "runs", ["created_at", "id"])
    op.create_index(
        "ix_runs_open",
        "runs",
        ["state"],
        **where("state IN ('queued', 'running', 'paused', 'cancelling')"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", NAME, nullable=False),
        sa.Column("hash", HASH, nullable=False),
        sa.Column("scope", NAME, nullable=False),
        sa.Column("board_id", NAME, nullable=True),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("last_used_at", TIME, nullable=True),
        sa.CheckConstraint(
            "(scope = 'device') = (board_id IS NOT NULL)", name=op.f("ck_tokens_device_has_board")
        ),
        sa.CheckConstraint("scope IN ('admin', 'user', 'device')", name=op.f("ck_tokens_scope")),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_tokens_board_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_index("ix_tokens_board_id", "tokens", ["board_id"])
    op.create_table(
        "events",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("run_id", NAME, nullable=True),
        sa.Column("board_id", NAME, nullable=True),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.CheckConstraint(
            "(run_id IS NULL) <> (board_id IS NULL)", name=op.f("ck_events_one_subject")
        ),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_events_board_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_board_id_id", "events", ["board_id", "id"])
    op.create_index("ix_events_run_id_id", "events", ["run_id", "id"])
    op.create_table(
        "jobs",
        sa.Column("id", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("state", NAME, nullable=False),
        sa.Column("run_id", NAME, nullable=True),
        sa.Column("board_id", NAME, nullable=True),
        sa.Column("study_id", ROW_ID, nullable=True),
        sa.Column("candidate_id", HASH, nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("source_hash", HASH, nullable=True),
        sa.Column("nestmap_version", HASH, nullable=True),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", TIME, nullable=False),
        sa.Column("lease_hash", HASH, nullable=True),
        sa.Column("lease_until", TIME, nullable=True),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("rung_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.CheckConstraint(
            "(kind = 'measure') = (board_id IS NOT NULL)", name=op.f("ck_jobs_measure_has_board")
        ),
        sa.CheckConstraint(
            "(kind = 'measure') = (candidate_id IS NOT NULL)",
            name=op.f("ck_jobs_measure_has_candidate"),
        ),
        sa.CheckConstraint(
            "(kind = 'measure') = (study_id IS NOT NULL)", name=op.f("ck_jobs_measure_has_study")
        ),
        sa.CheckConstraint(
            "(state = 'leased') = (lease_until IS NOT NULL)", name=op.f("ck_jobs_leased_has_end")
        ),
        sa.CheckConstraint("kind IN ('propose', 'solve', 'measure')", name=op.f("ck_jobs_kind")),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'done', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_jobs_board_id"),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidates.id"], name="fk_jobs_candidate_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_jobs_run_id"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_jobs_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index(
        "ix_jobs_board_queue",
        "jobs",
        ["board_id", "rank", "id"],
        **where("board_id IS NOT NULL AND state IN ('queued', 'leased')"),
    )
    op.create_index("ix_jobs_leases", "jobs", ["lease_until"], **where("state = 'leased'"))
    op.create_index(
        "ix_jobs_open_of_run", "jobs", ["run_id"], **where("state IN ('queued', 'leased')")
    )
    op.create_index("ix_jobs_run_id_id", "jobs", ["run_id", "id"])
    op.create_index(
        "ix_jobs_work_queue",
        "jobs",
        ["rank", "id"],
        **where("board_id IS NULL AND state IN ('queued', 'leased')"),
    )
    op.create_index("uq_jobs_candidate", "jobs", ["study_id", "candidate_id"], unique=True)
    op.create_index(
        "uq_jobs_live_lease", "jobs", ["board_id"], unique=True, **where("state = 'leased'")
    )
    op.create_table(
        "run_artifacts",
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("hash", HASH, nullable=False),
        sa.ForeignKeyConstraint(["hash"], ["artifacts.hash"], name="fk_run_artifacts_hash"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_artifacts_run_id"),
        sa.PrimaryKeyConstraint("run_id", "hash", name="pk_run_artifacts"),
    )
    op.create_index("ix_run_artifacts_hash", "run_artifacts", ["hash"])
    op.create_table(
        "run_studies",
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("study_id", ROW_ID, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_studies_run_id"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_run_studies_study_id"),
        sa.PrimaryKeyConstraint("run_id", "study_id", name="pk_run_studies"),
        sa.UniqueConstraint("study_id", name="uq_run_studies_study_id"),
    )
    op.create_table(
        "job_attempts",
        sa.Column("job_id", NAME, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("claimed_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("ending", NAME, nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "ending IN ('done', 'expired', 'failed', 'cancelled')",
            name=op.f("ck_job_attempts_ending"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_attempts_job_id"),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_job_attempts"),
    )


def downgrade() -> None:
    for table in (
        "job_attempts",
        "run_studies",
        "run_artifacts",
        "jobs",
        "events",
        "tokens",
        "runs",
        "enrolments",
        "board_facts",
        "artifact_chunks",
        "idempotency",
        "boards",
        "artifacts",
    ):
        op.drop_table(table)
