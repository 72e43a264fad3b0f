"""Notices between processes that share a PostgreSQL: these boards may have work now.

A notice is a hint. It goes out with the commit that made the work, and is lost where nobody
listens; whoever relies on it looks into the queue from time to time as well. SQLite has none:
its writers are one process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, String, bindparam, func, select, text, union
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from db.farm.tables import RunBoardRow, RunRow

_CHANNEL = "nestmap_boards"
_LOOK_S = 0.5
_AGAIN_S = 1.0
_boards = union(
    select(bindparam("board", type_=String).label("board_id")),
    select(RunBoardRow.board_id).where(RunBoardRow.run_id == bindparam("run")),
).subquery()
_TELL = select(func.pg_notify(_CHANNEL, _boards.c.board_id))


def notify_boards(session: Session, run: RunRow) -> None:
    """Tell who listens, when this transaction commits, that the run's boards may have work."""
    if session.get_bind().dialect.name != "postgresql":
        return
    session.execute(_TELL, {"run": run.id, "board": run.board_id})


class BoardNotices:
    """A thread that hears notices, between :meth:`start` and :meth:`close`.

    ``told`` gets the id of a board, in that thread.
    """

    def __init__(self, engine: Engine, told: Callable[[str], None]) -> None:
        self._engine = engine
        self._told = told
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board-notices", daemon=True)
        self._listening = False

    @property
    def listening(self) -> bool:
        """Whether notices come at the moment; without them the queue has to be looked at."""
        return self._listening

    def start(self) -> None:
        """Begin to listen, where the database has notices."""
        if self._engine.dialect.name == "postgresql":
            self._thread.start()

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        from psycopg import Error  # only who has a PostgreSQL has the driver

        while not self._ended.is_set():
            try:
                self._listen()
            except (SQLAlchemyError, Error):
                # The server restarts: whoever asks for `listening` looks more often meanwhile.
                self._ended.wait(_AGAIN_S)
            finally:
                self._listening = False

    def _listen(self) -> None:
        options = {"isolation_level": "AUTOCOMMIT"}
        with self._engine.connect().execution_options(**options) as connection:
            driver: Any = connection.connection.driver_connection
            connection.execute(text(f"LISTEN {_CHANNEL}"))
            # It must not go back to the pool, where it would gather notices nobody reads.
            connection.detach()
            self._listening = True
            while not self._ended.is_set():
                for notice in driver.notifies(timeout=_LOOK_S):
                    self._told(notice.payload)
                    if self._ended.is_set():
                        return
