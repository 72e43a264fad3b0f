"""Boards: who serves, in which state, seen when, and how it has been over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.farm.board_steps import add_board, add_history
from db.farm.checking import (
    MAX_FACTS_BYTES,
    checked_json,
    checked_limit,
    checked_text,
    shown_text,
)
from db.farm.errors import ConflictError, absent
from db.farm.leases import lock_board, take_from_board
from db.farm.lifecycle import add_event
from db.farm.paging import before
from db.farm.presence import HISTORY_EVERY_S, HISTORY_KEPT, Presence
from db.farm.records import Board, BoardFacts, Enrolled, Keyset
from db.farm.rows import board_of
from db.farm.statements import BOARD, NEWEST_HISTORY
from db.farm.states import BoardState, EventKind, Scope
from db.farm.tables import BoardFactsRow, BoardRow
from db.farm.tokens import add_token
from db.transactions import Transactions
from mapper.errors import Problem

#: Presence is written at most this often, unless something else has changed.
SEEN_WRITTEN_EVERY_S = 10.0
#: ``state_by`` of what a board's own agent says.
AGENT = "agent"


class Boards:
    """Adds boards, notes their presence and sets their state. ``AbsentError`` for an unknown
    one."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def add(
        self,
        name: str,
        *,
        profile: str | None = None,
        agent_version: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> Enrolled:
        """A board with its device token, without a code: for the embedded worker and admins.

        ``ConflictError`` if the name is taken.
        """
        with self._transactions.write() as session:
            now = self._now()
            row = add_board(session, now, name, profile, agent_version, facts or {})
            label = f"agent of {name}"[:200]
            token = add_token(session, Scope.DEVICE, now, label, row.id, None)
            return Enrolled(board_of(row), token)

    def board(self, board_id: str) -> Board:
        """The board of an id."""
        with self._transactions.read() as session:
            row = session.get(BoardRow, board_id)
            if row is None:
                raise absent("board", board_id)
            return board_of(row)

    def find(self, name: str) -> Board | None:
        """The board of a name."""
        checked_text("name", name)
        with self._transactions.read() as session:
            row = session.scalars(select(BoardRow).filter_by(name=name)).one_or_none()
            return None if row is None else board_of(row)

    def page(
        self, *, limit: int = 50, after: Keyset | None = None, state: BoardState | None = None
    ) -> tuple[Board, ...]:
        """Boards, newest first, from behind ``after``."""
        rows = select(BoardRow).order_by(BoardRow.created_at.desc(), BoardRow.id.desc())
        if after is not None:
            rows = rows.where(before(BoardRow.created_at, BoardRow.id, after))
        if state is not None:
            rows = rows.where(BoardRow.state == state)
        with self._transactions.read() as session:
            return tuple(map(board_of, session.scalars(rows.limit(checked_limit(limit)))))

    def counts(self) -> dict[BoardState, int]:
        """How many boards are in each state, states of none included."""
        rows = select(BoardRow.state, func.count()).group_by(BoardRow.state)
        with self._transactions.read() as session:
            found = {state: count for state, count in session.execute(rows)}
            return {state: found.get(state, 0) for state in BoardState}

    def seen(
        self,
        board_id: str,
        *,
        agent_version: str | None = None,
        facts: Mapping[str, Any] | None = None,
        health: Mapping[str, Any] | None = None,
        later: Presence | None = None,
    ) -> Board:
        """The board has called, with what it says of itself; what is None stays as it was.

        Written only where version or facts have changed or the time on record is 10 s old:
        a temperature changes at every call. Facts and health together enter the history at most
        once a minute, of which 1,000 entries stay. ``later`` gathers what need not be written now:
        all but a first call, another version and other facts.
        """
        if agent_version is not None:
            checked_text("agent_version", agent_version)
        for name, value in (("facts", facts), ("health", health)):
            if value is not None:
                checked_json(name, value, MAX_FACTS_BYTES)
        with self._transactions.look() as connection:
            found = connection.execute(BOARD, {"board": board_id}).one_or_none()
        if found is None:
            raise absent("board", board_id)
        row = cast("BoardRow", found)
        now = self._now()
        changed = _changed(row, agent_version, facts)
        if not changed and not _is_old(row, now):
            return board_of(row)
        if later is not None and not changed:
            later.board_called(board_id, now, row.facts, row.health if health is None else health)
            return board_of(row)
        with self._transactions.write(durable=False) as session:
            now = self._now()
            row = lock_board(session, board_id)
            row.last_seen = now
            row.agent_version = row.agent_version if agent_version is None else agent_version
            row.facts = row.facts if facts is None else dict(facts)
            row.health = row.health if health is None else dict(health)
            if (facts is not None or health is not None) and _history_is_due(
                session, board_id, now
            ):
                add_history(session, board_id, {**row.facts, **row.health}, now, HISTORY_KEPT)
            return board_of(row)

    def quarantine(self, board_id: str, reason: str, *, by: str) -> Board:
        """Give the board no more work; what it is doing may end. ``by`` is :data:`AGENT` or the
        id of a token. ``ConflictError`` if it is disabled."""
        with self._transactions.write() as session:
            row = lock_board(session, board_id)
            _require_not(row, BoardState.DISABLED, "cannot be quarantined")
            if row.state == BoardState.QUARANTINED and by == AGENT:
                return board_of(row)
            return self._set_state(session, row, BoardState.QUARANTINED, reason, by)

    def release(self, board_id: str, *, by: str) -> Board:
        """Give the board work again. An agent lifts only its own quarantine; ``ConflictError``
        if somebody else set it or the board is disabled. A repeat is allowed."""
        with self._transactions.write() as session:
            row = lock_board(session, board_id)
            _require_not(row, BoardState.DISABLED, "cannot be released")
            if row.state == BoardState.ACTIVE:
                return board_of(row)
            if by == AGENT and row.state_by != AGENT:
                raise ConflictError(
                    Problem("board.state", "was quarantined by somebody else", row.reason)
                )
            return self._set_state(session, row, BoardState.ACTIVE, "", by)

    def disable(self, board_id: str, reason: str, *, by: str) -> Board:
        """Take the board out of service until :meth:`enable`; new runs on it are refused, and what
        it is measuring is queued again: its result is not wanted."""
        with self._transactions.write() as session:
            row = lock_board(session, board_id)
            take_from_board(session, board_id, self._now(), "the board was disabled")
            return self._set_state(session, row, BoardState.DISABLED, reason, by)

    def enable(self, board_id: str, *, by: str) -> Board:
        """Put a disabled board back into service. A repeat is allowed."""
        with self._transactions.write() as session:
            row = lock_board(session, board_id)
            if row.state != BoardState.DISABLED:
                return board_of(row)
            return self._set_state(session, row, BoardState.ACTIVE, "", by)

    def history(
        self, board_id: str, *, after: int = 0, limit: int = 1_000
    ) -> tuple[BoardFacts, ...]:
        """What the board said of itself over time, oldest first, after an entry's id."""
        rows = (
            select(BoardFactsRow)
            .where(BoardFactsRow.board_id == board_id, BoardFactsRow.id > after)
            .order_by(BoardFactsRow.id)
            .limit(checked_limit(limit))
        )
        with self._transactions.read() as session:
            return tuple(BoardFacts(row.id, row.at, row.facts) for row in session.scalars(rows))

    def _set_state(
        self, session: Session, row: BoardRow, state: BoardState, reason: str, by: str
    ) -> Board:
        checked_text("by", by)
        row.state, row.reason, row.state_by = state, shown_text(reason), by
        payload = {"state": state, "reason": row.reason, "by": by}
        add_event(session, self._now(), EventKind.BOARD_STATE, payload, board_id=row.id)
        return board_of(row)


def _is_old(row: BoardRow, now: datetime) -> bool:
    return row.last_seen is None or (now - row.last_seen).total_seconds() >= SEEN_WRITTEN_EVERY_S


def _changed(row: BoardRow, agent_version: str | None, facts: Mapping[str, Any] | None) -> bool:
    return (
        row.last_seen is None
        or (agent_version is not None and agent_version != row.agent_version)
        or (facts is not None and dict(facts) != row.facts)
    )


def _history_is_due(session: Session, board_id: str, now: datetime) -> bool:
    newest = session.execute(NEWEST_HISTORY, {"board": board_id}).scalar()
    return newest is None or (now - newest).total_seconds() >= HISTORY_EVERY_S


def _require_not(row: BoardRow, state: BoardState, message: str) -> None:
    if row.state == state:
        raise ConflictError(Problem("board.state", message, found=f"{row.state}: {row.reason}"))
