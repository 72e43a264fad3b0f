"""Measurements know their board, what a board measured can be struck, and jobs go by turns.

Boards of before are known by the jobs that are still there, else by the run: one of several boards
has the name of its own board then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = sa.String(32)
HASH = sa.String(64)
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)

BOARD_OF_JOB = """
    SELECT jobs.board_id FROM jobs
    WHERE jobs.study_id = measurements.study_id
    AND jobs.candidate_id = measurements.candidate_id
"""
BOARD_OF_RUN = """
    SELECT runs.board_id FROM run_studies JOIN runs ON runs.id = run_studies.run_id
    WHERE run_studies.study_id = measurements.study_id
"""


def upgrade() -> None:
    # Turns within a priority: there were none before.
    op.execute("UPDATE jobs SET rank = rank * 1000000")
    op.add_column("measurements", sa.Column("board_id", NAME, nullable=True))
    op.execute(f"UPDATE measurements SET board_id = coalesce(({BOARD_OF_JOB}), ({BOARD_OF_RUN}))")
    op.create_index("ix_measurements_candidate_id", "measurements", ["candidate_id"])
    op.create_table(
        "strikes",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("board_id", NAME, nullable=False),
        sa.Column("since", TIME, nullable=True),
        sa.Column("until", TIME, nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("measurements", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("lifted_at", TIME, nullable=True),
        sa.Column("lifted_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_strikes_board_id"),
        sa.PrimaryKeyConstraint("id", name="pk_strikes"),
    )
    op.create_index("ix_strikes_board_id_id", "strikes", ["board_id", "id"])
    op.create_table(
        "struck_measurements",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("strike_id", NUMBER, nullable=False),
        sa.Column("study_id", NUMBER, nullable=False),
        sa.Column("candidate_id", HASH, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("trials", sa.LargeBinary(), nullable=True),
        sa.Column("time_ms", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("source_hash", HASH, nullable=False),
        sa.Column("nestmap_version", sa.String(64), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("board_id", NAME, nullable=True),
        sa.ForeignKeyConstraint(
            ["strike_id"], ["strikes.id"], name="fk_struck_measurements_strike_id"
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name="fk_struck_measurements_study_id"
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name="fk_struck_measurements_candidate_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_struck_measurements"),
        sa.UniqueConstraint(
            "study_id", "candidate_id", name="uq_struck_measurements_study_id_candidate_id"
        ),
    )
    op.create_index("ix_struck_measurements_strike_id", "struck_measurements", ["strike_id"])


def downgrade() -> None:
    # Rounded down, for negative numbers too; the time of a job's coming tells turns apart again.
    op.execute("UPDATE jobs SET rank = (rank + 1000000000) / 1000000 - 1000")
    # What is struck was not to count, and nothing before this revision could keep it from that.
    op.drop_table("struck_measurements")
    op.drop_table("strikes")
    op.drop_index("ix_measurements_candidate_id", "measurements")
    op.drop_column("measurements", "board_id")
