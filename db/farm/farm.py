"""The farm's database: one engine, one repository for each kind of thing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import disk_usage
from types import TracebackType
from typing import Self

from sqlalchemy import Engine, text

from db.engine import LOST, address_of, open_engine
from db.farm.artifacts import Artifacts
from db.farm.boards import Boards
from db.farm.catalogue import Catalogue
from db.farm.documents import Documents
from db.farm.events import Events
from db.farm.fronts import Fronts
from db.farm.idempotency import Idempotency
from db.farm.jobs import Jobs
from db.farm.measurements import Measurements
from db.farm.notices import BoardNotices
from db.farm.overviews import Overviews
from db.farm.owners import Owners
from db.farm.presence import Presence
from db.farm.results import Results
from db.farm.retention import Retention
from db.farm.runs import Runs
from db.farm.strikes import Strikes
from db.farm.tokens import Enrolments, Tokens
from db.farm.turns import HeldSeconds
from db.store import Store
from db.transactions import Transactions
from mapper.errors import StoreError

#: With less room on its disk a store counts as full: a transaction must still end.
_LEAST_ROOM = 4 * 1024 * 1024


def utc_now() -> datetime:
    """The default clock."""
    return datetime.now(UTC)


class Farm:
    """All repositories of one database.

    It may be used by any number of threads, and by one process: open it after a fork, not
    before. Hosts that share a PostgreSQL should keep their clocks within a second.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime] = utc_now) -> None:
        """Use :meth:`open`; an engine given here must have the newest schema."""
        transactions = Transactions(engine)
        self._transactions = transactions
        self.tokens = Tokens(transactions, now)
        self.enrolments = Enrolments(transactions, now)
        self.boards = Boards(transactions, now)
        self.runs = Runs(transactions, now)
        # Clocks of tests are set by hand, and seconds are theirs then.
        held = HeldSeconds() if now is utc_now else HeldSeconds(lambda: now().timestamp())
        self.jobs = Jobs(transactions, now, held)
        self.results = Results(transactions, now, held)
        self.strikes = Strikes(transactions, now)
        self.events = Events(transactions)
        self.artifacts = Artifacts(transactions, now)
        self.documents = Documents(transactions, now)
        self.owners = Owners(transactions)
        self.idempotency = Idempotency(transactions, now)
        self.fronts = Fronts(transactions)
        self.measurements = Measurements(transactions)
        self.retention = Retention(transactions, now)
        self.catalogue = Catalogue(transactions)
        #: What a service gathers of its calls and writes once in a while.
        self.presence = Presence(transactions)
        self.overviews = Overviews(transactions)
        #: Programs, devices, studies, candidates and measurements of any origin.
        self.store = Store(engine, now)

    @classmethod
    def open(
        cls,
        path_or_url: str | Path,
        now: Callable[[], datetime] = utc_now,
        *,
        connections: int = 10,
    ) -> Self:
        """Open an SQLite file (created if absent) or a database URL, migrated to the head.

        At most ``connections`` are open at once; further threads wait for one. Raises
        ``StoreError``.
        """
        engine = open_engine(address_of(path_or_url), connections=connections, durable=True)
        return cls(engine, now)

    def board_notices(self, told: Callable[[str], None]) -> BoardNotices:
        """Hears of boards that may have work, from every process that shares the database."""
        return BoardNotices(self._transactions.engine, told)

    def fault(self) -> str:
        """Why nothing can be written, in a few words without a path; empty if it can.

        SQLite is asked to write a number that nobody reads; where a disk is all but full it may
        still take that, so that the room is looked at, too.
        """
        engine = self._transactions.engine
        path = engine.url.database if engine.dialect.name == "sqlite" else None
        try:
            with self._transactions.write() as session:
                if path is None:
                    session.execute(text("SELECT 1"))
                else:
                    (count,) = session.execute(text("PRAGMA user_version")).one()
                    session.execute(text(f"PRAGMA user_version = {(count + 1) % 1000}"))
            if path and path != ":memory:" and disk_usage(Path(path).parent).free < _LEAST_ROOM:
                return "its disk is full"
        except StoreError as error:
            message = error.problems[0].message
            if "full" in message:
                return "its disk is full"
            if message == LOST:
                return LOST
            return "cannot be written" if path else "cannot be reached"
        return ""

    def close(self) -> None:
        """Close every connection; nothing of it must be used any more."""
        self._transactions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
