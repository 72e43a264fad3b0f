"""Runs that several boards measure."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.String(32)


def upgrade() -> None:
    op.create_table(
        "run_boards",
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("board_id", NAME, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_boards_run_id"),
        sa.ForeignKeyConstraint(["board_id"], ["boards.id"], name="fk_run_boards_board_id"),
        sa.PrimaryKeyConstraint("run_id", "board_id", name="pk_run_boards"),
    )
    op.create_index("ix_run_boards_board_id", "run_boards", ["board_id"])


def downgrade() -> None:
    op.drop_table("run_boards")
