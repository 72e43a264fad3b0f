"""Programs, devices, studies, candidates and measurements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not imported: a migration says what the tables were, not what they are now.
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HASH = sa.String(64)
KINDS = "'timed', 'wrong', 'compile-error', 'resource-error', 'timeout', 'crash'"


def upgrade() -> None:
    op.create_table(
        "programs",
        sa.Column("hash", HASH, nullable=False),
        sa.Column("schema", sa.String(64), nullable=False),
        sa.Column("json_text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_programs"),
    )
    op.create_table(
        "devices",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("fingerprint", HASH, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("fingerprint", name="uq_devices_fingerprint"),
    )
    op.create_table(
        "studies",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("program_hash", HASH, nullable=False),
        sa.Column("device_id", ROW_ID, nullable=False),
        sa.Column("mode", sa.String(64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("variant", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
        sa.ForeignKeyConstraint(["program_hash"], ["programs.hash"], "fk_studies_program_hash"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], "fk_studies_device_id"),
        sa.UniqueConstraint(
            "program_hash", "device_id", "mode", "seed", "label", "variant", name="uq_studies_key"
        ),
    )
    op.create_table(
        "candidates",
        sa.Column("id", HASH, nullable=False),
        sa.Column("program_hash", HASH, nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("mapping", sa.JSON(), nullable=False),
        sa.Column("local_sizes", sa.JSON(), nullable=False),
        sa.Column("source_hash", sa.String(64), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("nestmap_version", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_candidates"),
        sa.ForeignKeyConstraint(["program_hash"], ["programs.hash"], "fk_candidates_program_hash"),
    )
    op.create_table(
        "measurements",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("study_id", ROW_ID, nullable=False),
        sa.Column("candidate_id", HASH, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("trials", sa.LargeBinary(), nullable=True),
        sa.Column("time_ms", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("source_hash", sa.String(64), nullable=False),
        sa.Column("nestmap_version", sa.String(64), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], "fk_measurements_study_id"),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], "fk_measurements_candidate_id"
        ),
        sa.UniqueConstraint(
            "study_id", "candidate_id", name="uq_measurements_study_id_candidate_id"
        ),
        sa.CheckConstraint(f"kind IN ({KINDS})", name=op.f("ck_measurements_kind")),
        sa.CheckConstraint(
            "(kind = 'timed') = (time_ms IS NOT NULL)", name=op.f("ck_measurements_timed_has_time")
        ),
        sa.CheckConstraint(
            "(kind = 'timed') = (trials IS NOT NULL)",
            name=op.f("ck_measurements_timed_has_trials"),
        ),
    )
    op.create_index(
        "ix_measurements_study_id_time_ms_memory_bytes",
        "measurements",
        ["study_id", "time_ms", "memory_bytes"],
    )


def downgrade() -> None:
    for table in ("measurements", "candidates", "studies", "devices", "programs"):
        op.drop_table(table)
