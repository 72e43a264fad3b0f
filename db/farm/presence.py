"""Who called when, gathered and written together.

A thousand boards that wait call twenty times a second and have nothing to say but that they live.
A transaction for each of these calls costs more than all the rest of it, so that a service keeps
them for a moment and writes all of them at once. What a crash forgets is a second of that.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from db.farm.statements import CALLED, NEW_HISTORY, OLD_HISTORY, USED_NOW
from db.transactions import Transactions

#: The history of a board gets an entry at most this often, from one service.
HISTORY_EVERY_S = 60.0
#: Entries kept of each board: a week of one every ten minutes, a day of one every 86 s.
HISTORY_KEPT = 1_000
#: The last use of a token is written at most this often.
USE_WRITTEN_EVERY_S = 60.0
#: A transaction holds the rows of so many boards at most.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class _Call:
    at: datetime
    facts: Mapping[str, Any]
    health: Mapping[str, Any]


class Presence:
    """Calls of boards and uses of tokens since the last :meth:`write`; for any thread."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._lock = threading.Lock()
        self._boards: dict[str, _Call] = {}
        self._tokens: dict[str, datetime] = {}
        self._noted: dict[str, datetime] = {}

    def board_called(
        self, board_id: str, at: datetime, facts: Mapping[str, Any], health: Mapping[str, Any]
    ) -> None:
        """The board, which exists, has called; its facts are those on record."""
        with self._lock:
            self._boards[board_id] = _Call(at, facts, health)

    def token_used(self, token_id: str, at: datetime) -> None:
        """The token, which exists, was used."""
        with self._lock:
            self._tokens[token_id] = at

    def write(self) -> int:
        """Write what has gathered; how many boards and tokens it was about."""
        with self._lock:
            # In the order of their names, so that two services never wait in a circle.
            boards, self._boards = sorted(self._boards.items()), {}
            tokens, self._tokens = sorted(self._tokens.items()), {}
        for start in range(0, len(boards), _AT_ONCE):
            self._write_boards(boards[start : start + _AT_ONCE])
        if tokens:
            since = timedelta(seconds=USE_WRITTEN_EVERY_S)
            with self._transactions.write(durable=False) as session:
                session.execute(
                    USED_NOW,
                    [{"token": name, "used": at, "before": at - since} for name, at in tokens],
                )
        return len(boards) + len(tokens)

    def _write_boards(self, calls: list[tuple[str, _Call]]) -> None:
        due = [(name, call) for name, call in calls if self._is_due(name, call.at)]
        with self._transactions.write(durable=False) as session:
            session.execute(
                CALLED,
                [{"board": name, "seen": c.at, "new_health": dict(c.health)} for name, c in calls],
            )
            if due:
                session.execute(
                    NEW_HISTORY,
                    [
                        {"board_id": name, "at": call.at, "facts": {**call.facts, **call.health}}
                        for name, call in due
                    ],
                )
                session.execute(
                    OLD_HISTORY, [{"board": name, "kept": HISTORY_KEPT} for name, _ in due]
                )
        self._noted.update((name, call.at) for name, call in due)

    def _is_due(self, board_id: str, at: datetime) -> bool:
        before = self._noted.get(board_id)
        return before is None or (at - before).total_seconds() >= HISTORY_EVERY_S
