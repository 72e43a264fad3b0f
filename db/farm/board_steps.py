"""Steps of boards inside a transaction that the caller has begun."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from db.farm.checking import MAX_FACTS_BYTES, checked_json, checked_text
from db.farm.errors import ConflictError
from db.farm.identifiers import BOARD_PREFIX, new_identifier
from db.farm.lifecycle import add_event
from db.farm.statements import NEW_HISTORY, OLD_HISTORY
from db.farm.states import BoardState, EventKind
from db.farm.tables import BoardRow
from db.transactions import insert_if_absent
from mapper.errors import Problem


def add_board(
    session: Session,
    now: datetime,
    name: str,
    profile: str | None,
    agent_version: str,
    facts: Mapping[str, Any],
) -> BoardRow:
    """Store a new active board; ``ConflictError`` if its name is taken."""
    checked_text("name", name, least=1)
    if profile is not None:
        checked_text("profile", profile, least=1)
    checked_text("agent_version", agent_version)
    checked_json("facts", facts, MAX_FACTS_BYTES)
    board_id = new_identifier(BOARD_PREFIX, now)
    row = {
        "id": board_id,
        "name": name,
        "profile": profile,
        "facts": dict(facts),
        "health": {},
        "state": BoardState.ACTIVE,
        "reason": "",
        "state_by": "",
        "agent_version": agent_version,
        "created_at": now,
        "last_seen": None,
    }
    if not insert_if_absent(session, BoardRow, row):
        raise ConflictError(
            Problem("name", "is the name of another board", ascii(name)[:80], "a new name")
        )
    add_event(session, now, EventKind.BOARD_ENROLLED, {"name": name}, board_id=board_id)
    return session.get_one(BoardRow, board_id)


def add_history(
    session: Session, board_id: str, facts: Mapping[str, Any], now: datetime, kept: int
) -> None:
    """Add an entry to a board's history, of which the newest ``kept`` stay."""
    session.execute(NEW_HISTORY, {"board_id": board_id, "at": now, "facts": dict(facts)})
    session.execute(OLD_HISTORY, {"board": board_id, "kept": kept})
