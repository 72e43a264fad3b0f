"""Owners have a row: what their proposals cost, whichever of their runs it was, and how many bytes
they have stored.

Attempts know what was charged for them when their leases ran out. Programs and artifacts know for
whom they were stored first: those of before for nobody, so that they are counted for nobody, and
such programs are kept for good. Requests of runs, and jobs without a run, are counted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)

#: Each counts 4,096 bytes beside its texts.
COUNTED = """
    INSERT INTO owners (principal, owed_turns, stored_bytes)
    SELECT principal, 0, sum(n_bytes) FROM (
        SELECT principal, length(CAST(request AS TEXT)) + 4096 AS n_bytes FROM runs
        UNION ALL
        SELECT principal, length(CAST(payload AS TEXT)) + coalesce(length(CAST(result AS TEXT)), 0)
        + 4096 FROM jobs WHERE run_id IS NULL
    ) AS counted GROUP BY principal
"""


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("owed_turns", sa.Integer(), nullable=False),
        sa.Column("owed_at", TIME, nullable=True),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("principal", name="pk_owners"),
    )
    op.execute(COUNTED)
    op.add_column("job_attempts", sa.Column("charged", sa.Integer(), nullable=True))
    op.add_column("programs", sa.Column("principal", sa.Text(), nullable=True))
    op.add_column("programs", sa.Column("touched_at", TIME, nullable=True))
    op.add_column("artifacts", sa.Column("principal", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("artifacts", "principal")
    op.drop_column("programs", "touched_at")
    op.drop_column("programs", "principal")
    op.drop_column("job_attempts", "charged")
    op.drop_table("owners")
