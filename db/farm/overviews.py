"""Bulk reads for pages that show much at once: clouds of points, reasons of failures, leases.

Only the columns that a page shows are read, so that 100,000 measurements are not 100,000 objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from db.farm.checking import checked_integer, checked_limit
from db.farm.fronts import StudiedPoint, front_statement
from db.farm.selection import Selection, conditions_of, studies_of
from db.farm.states import JobState
from db.farm.tables import JobRow
from db.records import StoredMeasurement
from db.store import stored_measurement
from db.tables import MeasurementRow
from db.transactions import Transactions

#: Multiplied with an id this gives the order in which dominated points are left out: it does not
#: change while points come in, and is not that of their making (Knuth, TAOCP 3, section 6.4).
_SCATTER = 2_654_435_761
_MODULUS = 2**32
MOST_POINTS = 200_000
MOST_FAILURES = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """A timed measurement, without its trials."""

    measurement_id: int
    study_id: int
    candidate_id: str
    time_ms: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Cloud:
    """Timed points of a selection. ``total`` is how many there are, ``front`` the ids of the
    measurements on the front, all of which are among ``points``; ``newest`` is the highest id of
    a measurement of any kind, from which a later read goes on."""

    points: tuple[Point, ...]
    front: tuple[int, ...]
    total: int
    newest: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Measurements that failed in one way: their number, the last one, and its message."""

    kind: str
    message: str
    number: int
    measurement_id: int
    candidate_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A measurement under way."""

    job_id: str
    board_id: str
    run_id: str | None
    candidate_id: str | None
    stage: str
    attempt: int
    lease_until: datetime | None


class Overviews:
    """Reads for pages."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def cloud(self, selection: Selection, *, most: int, after: int = 0) -> Cloud:
        """At most ``most`` points behind the measurement ``after``: the whole front, and of the
        others an even sample that stays the same while more come in."""
        checked_integer("most", most, 1, MOST_POINTS)
        checked_integer("after", after)
        row = MeasurementRow
        meant = (row.study_id.in_(studies_of(selection)), *conditions_of(selection))
        timed = (*meant, row.time_ms.is_not(None), row.id > after)
        columns = (row.id, row.study_id, row.candidate_id, row.time_ms, row.memory_bytes)
        with self._transactions.read() as session:
            newest = session.execute(select(func.max(row.id)).where(*meant)).scalar() or 0
            total = session.execute(
                select(func.count()).where(*meant, row.time_ms.is_not(None))
            ).scalar_one()
            front = [_of_front(found) for found in session.execute(front_statement(selection))]
            rows = select(*columns).where(*timed)
            if total > most:
                rows = rows.order_by((row.id * _SCATTER) % _MODULUS).limit(most)
            of_front = {point.measurement_id for point in front}
            others = [_point(found) for found in session.execute(rows) if found[0] not in of_front]
        kept = [point for point in front if point.measurement_id > after]
        kept += others[: max(0, most - len(kept))]
        kept.sort(key=lambda point: point.measurement_id)
        return Cloud(tuple(kept), tuple(sorted(of_front)), total, newest)

    def failures(self, selection: Selection, *, newest: int = 2_000) -> tuple[Failure, ...]:
        """What went wrong, by kind and message, most frequent first; of more than ``newest``
        failures the newest."""
        checked_integer("newest", newest, 1, MOST_FAILURES)
        row = MeasurementRow
        rows = (
            select(row.id, row.kind, row.detail, row.candidate_id, row.started_at)
            .where(
                row.study_id.in_(studies_of(selection)),
                row.time_ms.is_(None),
                *conditions_of(selection),
            )
            .order_by(row.id.desc())
            .limit(newest)
        )
        groups: dict[tuple[str, str], Failure] = {}
        with self._transactions.read() as session:
            for one, kind, detail, candidate, at in session.execute(rows):
                key = (kind, _message(detail))
                known = groups.get(key)
                groups[key] = (
                    Failure(*key, 1, one, candidate, at)
                    if known is None
                    else replace(known, number=known.number + 1)
                )
        return tuple(sorted(groups.values(), key=lambda found: (-found.number, found.kind)))

    def measurements(self, ids: Iterable[int]) -> dict[int, StoredMeasurement]:
        """Those of these measurements that are there, by id; at most 1,000."""
        wanted = sorted({checked_integer("measurement", one) for one in ids})
        checked_limit(max(1, len(wanted)))
        rows = select(MeasurementRow).where(MeasurementRow.id.in_(wanted))
        with self._transactions.read() as session:
            return {row.id: stored_measurement(row) for row in session.scalars(rows)}

    def middle(self, selection: Selection) -> Point | None:
        """The timed measurement in the middle, by time; of an even number the faster one."""
        row = MeasurementRow
        timed = (
            row.study_id.in_(studies_of(selection)),
            row.time_ms.is_not(None),
            *conditions_of(selection),
        )
        with self._transactions.read() as session:
            total = session.execute(select(func.count()).where(*timed)).scalar_one()
            # By the index alone: of the others no row is looked at.
            middle = (
                select(row.id)
                .where(*timed)
                .order_by(row.time_ms, row.id)
                .offset((max(total, 1) - 1) // 2)
                .limit(1)
                .scalar_subquery()
            )
            rows = select(
                row.id, row.study_id, row.candidate_id, row.time_ms, row.memory_bytes
            ).where(row.id == middle)
            found = session.execute(rows).one_or_none()
            return None if found is None else _point(found)

    def held_jobs(self, *, limit: int = 200) -> tuple[HeldJob, ...]:
        """Measurements that boards hold a lease on, in the order of their jobs."""
        job = JobRow
        rows = (
            select(
                job.id, job.board_id, job.run_id, job.candidate_id, job.stage, job.attempt,
                job.lease_until,
            )
            .where(job.state == JobState.LEASED, job.board_id.is_not(None))
            .order_by(job.id)
            .limit(checked_limit(limit))
        )  # fmt: skip
        with self._transactions.read() as session:
            return tuple(HeldJob(*found) for found in session.execute(rows))


def _point(row: Sequence[Any]) -> Point:
    return Point(*row)


def _of_front(row: Any) -> Point:
    found = StudiedPoint(*row)
    return Point(
        found.measurement_id,
        found.study_id,
        found.candidate_id,
        found.time_ms,
        found.memory_bytes,
    )


def _message(detail: Mapping[str, Any]) -> str:
    """What an outcome that is not timed says of itself, in one line."""
    if "after_s" in detail:
        return f"no result after {detail['after_s']} s"
    lines = str(detail.get("message", "")).strip().splitlines()
    text = lines[0][:300] if lines else ""
    if "exit_code" in detail:
        return f"{text} (exit code {detail['exit_code']})".strip()
    return text
