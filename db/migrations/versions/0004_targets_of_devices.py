"""The target that a device's compiler generates code for is one of its facts.

PoCL says it in the device's version, and nobody set another before: measurements of before were
made with that one. A device is found by the hash of its facts, which is made anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FACT = "device.target"
TOLD = re.compile(r"HSTR: \S*?-linux-gnu-(\S+)")

devices = sa.table(
    "devices",
    sa.column("id", sa.Integer()),
    sa.column("fingerprint", sa.String()),
    sa.column("name", sa.Text()),
    sa.column("facts", sa.JSON()),
)


def upgrade() -> None:
    for row in op.get_bind().execute(sa.select(devices)).all():
        target = told(row.facts)
        if target and FACT not in row.facts:
            write(row.id, row.name, {**row.facts, FACT: target})


def downgrade() -> None:
    # A target that was set tells devices apart: it stays.
    for row in op.get_bind().execute(sa.select(devices)).all():
        if FACT in row.facts and row.facts[FACT] == told(row.facts):
            write(row.id, row.name, {k: v for k, v in row.facts.items() if k != FACT})


def told(facts: dict[str, Any]) -> str:
    """The target in the device's version, as PoCL writes it; empty where there is none."""
    found = TOLD.search(str(facts.get("device.version", "")))
    return found.group(1) if found else ""


def write(row_id: int, name: str, facts: dict[str, Any]) -> None:
    # As db.canonical writes it at this revision.
    text = json.dumps([name, facts], sort_keys=True, separators=(",", ":"), allow_nan=False)
    fingerprint = hashlib.sha256(text.encode("utf-8")).hexdigest()
    op.get_bind().execute(
        sa.update(devices)
        .where(devices.c.id == row_id)
        .values(fingerprint=fingerprint, facts=facts)
    )
