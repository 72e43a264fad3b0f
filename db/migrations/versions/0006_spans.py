"""Measurements keep the spans of their trials: first start to last end, beside the summed times.

What was measured before has none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TABLES = ("measurements", "struck_measurements")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("spans", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "spans")
