"""Owners have a row: what their proposals cost lasts, whichever of their runs it was.

Attempts know what was charged for them when their leases ran out.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("owed_turns", sa.Integer(), nullable=False),
        sa.Column("owed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("principal", name="pk_owners"),
    )
    op.add_column("job_attempts", sa.Column("charged", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("job_attempts", "charged")
    op.drop_table("owners")
