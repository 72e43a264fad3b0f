"""Programs know the hash of what was written: of a program with its schedule that of the program
alone, of anything else their own. So all that was tuned of a layer or program is found by it.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from db.canonical import canonical_json, content_hash

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_AT_ONCE = 100
_PROGRAMS = sa.table(
    "programs",
    sa.column("hash", sa.String),
    sa.column("schema", sa.String),
    sa.column("json_text", sa.Text),
    sa.column("written_hash", sa.String),
)
#: Programs with schedules, as this migration found them.
_SCHEDULED = "nestmap/scheduled/1"


def upgrade() -> None:
    op.add_column("programs", sa.Column("written_hash", sa.String(64), nullable=True))
    op.execute("UPDATE programs SET written_hash = hash")
    connection, row, last = op.get_bind(), _PROGRAMS.c, ""
    while found := connection.execute(
        sa.select(row.hash, row.json_text)
        .where(row.schema == _SCHEDULED, row.hash > last)
        .order_by(row.hash)
        .limit(_AT_ONCE)
    ).all():
        for name, text in found:
            written = json.loads(text).get("program")
            if written is not None:
                made = content_hash(canonical_json(written))
                change = sa.update(_PROGRAMS).where(row.hash == name).values(written_hash=made)
                connection.execute(change)
        last = found[-1].hash
    op.create_index("ix_programs_written_hash", "programs", ["written_hash"])


def downgrade() -> None:
    op.drop_index("ix_programs_written_hash", "programs")
    op.drop_column("programs", "written_hash")
