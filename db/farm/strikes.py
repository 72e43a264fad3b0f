"""Measurements that do not count because an admin says so: struck, and brought back.

What is struck leaves the table of measurements, so that no front, no best kernel and no search can
find it, whoever writes the next query. It lies in a table of its own until the strike is lifted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, CursorResult, delete, func, insert, literal, select
from sqlalchemy.orm import Session

from db.farm.checking import checked_integer, checked_limit, checked_text, checked_time
from db.farm.errors import ConflictError, absent
from db.farm.leases import lock_board
from db.farm.lifecycle import add_event, lock_runs
from db.farm.states import EventKind
from db.farm.tables import BoardRow, RunRow, RunStudyRow, StrikeRow, StruckRow
from db.tables import MeasurementRow
from db.transactions import Transactions
from mapper.errors import Problem

#: Strikes that a board may have.
MOST_STRIKES = 1_000
_MOST_REASON = 2_000
_KEPT = tuple(column.name for column in MeasurementRow.__table__.columns if column.name != "id")


@dataclass(frozen=True, slots=True)
class Strike:
    """``since`` <= started at < ``until``; None is the first and the last of all. ``measurements``
    is how many were struck; ``lifted_at`` is set once they count again."""

    id: int
    board_id: str
    since: datetime | None
    until: datetime | None
    reason: str
    by: str
    measurements: int
    created_at: datetime
    lifted_at: datetime | None
    lifted_by: str


class Strikes:
    """Strikes measurements of boards and lifts that again; each is one transaction.
    ``AbsentError`` for an unknown board or strike."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def strike(
        self,
        board_id: str,
        reason: str,
        *,
        by: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Strike:
        """Take what the board has measured between two times out of everything that counts.

        Its runs' best times are found anew; what they have spent of their budgets stays spent.
        The two times may come in either order. ``ConflictError`` beyond a thousand strikes.
        """
        checked_text("reason", reason, most=_MOST_REASON, least=1)
        checked_text("by", by)
        for name, time in (("since", since), ("until", until)):
            if time is not None:
                checked_time(name, time)
        if since is not None and until is not None:
            since, until = min(since, until), max(since, until)
        with self._transactions.write() as session:
            now = self._now()
            lock_board(session, board_id)
            held = select(func.count()).where(StrikeRow.board_id == board_id)
            if session.execute(held).scalar_one() >= MOST_STRIKES:
                raise ConflictError(
                    Problem("device", "has too many strikes", allowed=str(MOST_STRIKES))
                )
            which = [MeasurementRow.board_id == board_id, *_between(since, until)]
            runs = _lock_runs_of(session, MeasurementRow, which)
            row = StrikeRow(
                board_id=board_id,
                since=since,
                until=until,
                reason=reason,
                principal=by,
                measurements=0,
                created_at=now,
                lifted_at=None,
                lifted_by="",
            )
            session.add(row)
            session.flush()
            columns = [MeasurementRow.__table__.c[name] for name in _KEPT]
            chosen = select(MeasurementRow.id, literal(row.id), *columns).where(*which)
            session.execute(insert(StruckRow).from_select(["id", "strike_id", *_KEPT], chosen))
            row.measurements = _deleted(session, MeasurementRow, which)
            _find_best(session, runs)
            _tell(session, EventKind.STRUCK, row, by, now)
            return _strike_of(row)

    def lift(self, board_id: str, strike_id: int, *, by: str) -> Strike:
        """Have what was struck count again. A repeat changes nothing."""
        checked_integer("strike", strike_id)
        checked_text("by", by)
        with self._transactions.write() as session:
            now = self._now()
            lock_board(session, board_id)
            row = session.get(StrikeRow, strike_id)
            if row is None or row.board_id != board_id:
                raise absent("strike", str(strike_id))
            if row.lifted_at is not None:
                return _strike_of(row)
            which = [StruckRow.strike_id == strike_id]
            runs = _lock_runs_of(session, StruckRow, which)
            struck = StruckRow.__table__.c
            columns = [struck[name] for name in _KEPT]
            # What was measured again meanwhile stays as it is now.
            _deleted(session, StruckRow, [*which, _is_back()])
            # An id may have been given anew where the newest measurements were struck.
            free = ~struck.id.in_(select(MeasurementRow.id))
            chosen = select(struck.id, *columns).where(*which, free)
            session.execute(insert(MeasurementRow).from_select(["id", *_KEPT], chosen))
            _deleted(session, StruckRow, [*which, _is_back()])
            rest = select(*columns).where(*which).order_by(struck.id)
            session.execute(insert(MeasurementRow).from_select(_KEPT, rest))
            _deleted(session, StruckRow, which)
            row.lifted_at, row.lifted_by = now, by
            _find_best(session, runs)
            _tell(session, EventKind.RESTORED, row, by, now)
            return _strike_of(row)

    def of_board(self, board_id: str, *, after: int = 0, limit: int = 100) -> tuple[Strike, ...]:
        """A board's strikes, oldest first, from behind the one with id ``after``."""
        checked_integer("after", after)
        rows = (
            select(StrikeRow)
            .where(StrikeRow.board_id == board_id, StrikeRow.id > after)
            .order_by(StrikeRow.id)
            .limit(checked_limit(limit))
        )
        with self._transactions.read() as session:
            if session.get(BoardRow, board_id) is None:
                raise absent("device", board_id)
            return tuple(_strike_of(row) for row in session.scalars(rows))


def _between(since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if since is not None:
        found.append(MeasurementRow.started_at >= since)
    if until is not None:
        found.append(MeasurementRow.started_at < until)
    return found


def _is_back() -> ColumnElement[bool]:
    """Whether a struck measurement is among the others again."""
    return (
        select(MeasurementRow.id)
        .where(
            MeasurementRow.study_id == StruckRow.study_id,
            MeasurementRow.candidate_id == StruckRow.candidate_id,
        )
        .exists()
    )


def _lock_runs_of(
    session: Session,
    table: type[MeasurementRow | StruckRow],
    which: Iterable[ColumnElement[bool]],
) -> list[RunRow]:
    """The runs that these measurements are of, locked: no result comes in meanwhile."""
    studies = select(table.study_id).where(*which).distinct()
    named = select(RunStudyRow.run_id).where(RunStudyRow.study_id.in_(studies)).distinct()
    return list(lock_runs(session, session.scalars(named).all()).values())


def _find_best(session: Session, runs: Iterable[RunRow]) -> None:
    """Set the runs' best times by what counts now."""
    row = MeasurementRow
    for run in runs:
        studies = select(RunStudyRow.study_id).where(RunStudyRow.run_id == run.id)
        best = session.execute(
            select(row.time_ms, row.memory_bytes, row.candidate_id)
            .where(row.study_id.in_(studies), row.time_ms.is_not(None))
            .order_by(row.time_ms, row.id)
            .limit(1)
        ).one_or_none()
        run.best_ms, run.best_memory_bytes, run.best_candidate_id = best or (None, None, None)


def _deleted(
    session: Session,
    table: type[MeasurementRow | StruckRow],
    which: Iterable[ColumnElement[bool]],
) -> int:
    done = session.execute(
        delete(table).where(*which), execution_options={"synchronize_session": False}
    )
    assert isinstance(done, CursorResult)
    return done.rowcount


def _tell(session: Session, kind: EventKind, row: StrikeRow, by: str, now: datetime) -> None:
    payload = {
        "strike": row.id,
        "measurements": row.measurements,
        "since": None if row.since is None else row.since.isoformat(),
        "until": None if row.until is None else row.until.isoformat(),
        "reason": row.reason,
        "by": by,
    }
    add_event(session, now, kind, payload, board_id=row.board_id)


def _strike_of(row: StrikeRow) -> Strike:
    return Strike(
        row.id,
        row.board_id,
        row.since,
        row.until,
        row.reason,
        row.principal,
        row.measurements,
        row.created_at,
        row.lifted_at,
        row.lifted_by,
    )
