"""Measurements of any selection: pages, counts, and how a run got better over time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, Text, cast, func, select

from db.farm.checking import checked_integer, checked_limit, checked_number
from db.farm.errors import absent
from db.farm.paging import within
from db.farm.selection import Selection, conditions_of, studies_of
from db.farm.tables import RunRow, RunStudyRow
from db.records import StoredMeasurement
from db.store import stored_measurement
from db.tables import MeasurementRow, StudyRow
from db.transactions import Transactions
from mapper.errors import LimitError, Problem
from mapper.measurement import OUTCOME_KINDS

#: Bytes of trials and details that one page reads; a trial has eight.
MOST_OF_A_PAGE = 2**20
#: Timed measurements that one series goes through.
MOST_OF_A_SERIES = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StudiedMeasurement:
    """A measurement with what its study is about. ``run_id`` and ``board_id`` are None for
    what was tuned without the farm."""

    measurement: StoredMeasurement
    program_hash: str
    variant: str
    mode: str
    device_id: int
    run_id: str | None
    board_id: str | None


@dataclass(frozen=True, slots=True)
class Improvement:
    """A measurement that beat the best time before it; ``number`` counts outcomes of every
    kind, from 1."""

    number: int
    at: datetime
    time_ms: float
    memory_bytes: int
    candidate_id: str


@dataclass(frozen=True, slots=True)
class Volume:
    """The hypervolume (ms times bytes that the front dominates below the reference) after
    ``number`` outcomes."""

    number: int
    at: datetime
    hypervolume: float


@dataclass(frozen=True, slots=True)
class VolumeSeries:
    """Hypervolume over time with its reference point: by default the worst of all points, so
    that it only grows."""

    reference_ms: float
    reference_bytes: float
    volumes: tuple[Volume, ...]


class Measurements:
    """Reads measurements. Their order is that in which they were stored."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def measurement(self, measurement_id: int) -> StudiedMeasurement:
        """The measurement of an id; ``AbsentError`` if there is none."""
        checked_integer("measurement", measurement_id)
        with self._transactions.read() as session:
            rows = _rows().where(MeasurementRow.id == measurement_id)
            found = session.execute(rows).one_or_none()
            if found is None:
                raise absent("measurement", str(measurement_id))
            return _studied(*found)

    def page(
        self,
        selection: Selection,
        *,
        limit: int = 100,
        after: int | None = None,
        newest_first: bool = False,
    ) -> tuple[StudiedMeasurement, ...]:
        """The first of :meth:`page_and_more`."""
        return self.page_and_more(selection, limit=limit, after=after, newest_first=newest_first)[0]

    def page_and_more(
        self,
        selection: Selection,
        *,
        limit: int = 100,
        after: int | None = None,
        newest_first: bool = False,
        most_bytes: int = MOST_OF_A_PAGE,
    ) -> tuple[tuple[StudiedMeasurement, ...], bool]:
        """Measurements from behind the one with id ``after`` (the last of the page before), and
        whether there are more.

        They are one at least, ``limit`` at most, and fewer where their trials and details have
        more than ``most_bytes``: a board may send 100,000 trials of each.
        """
        row = MeasurementRow
        size = func.length(cast(row.detail, Text))
        for times in (row.trials, row.spans):
            size += func.coalesce(func.length(times), 0)
        sizes = select(row.id, size).where(
            row.study_id.in_(studies_of(selection)), *conditions_of(selection)
        )
        if after is not None:
            checked_integer("after", after)
            sizes = sizes.where(row.id < after if newest_first else row.id > after)
        order = row.id.desc() if newest_first else row.id
        sizes = sizes.order_by(order).limit(checked_limit(limit) + 1)
        with self._transactions.read() as session:
            found = session.execute(sizes).all()
            ids = within(((number, n_bytes) for number, n_bytes in found[:limit]), most_bytes)
            rows = _rows().where(row.id.in_(ids)).order_by(order)
            page = tuple(_studied(*one) for one in session.execute(rows)) if ids else ()
        return page, len(found) > len(page)

    def counts(self, selection: Selection) -> dict[str, int]:
        """How many measurements ended in each kind of outcome, kinds of none included."""
        row = MeasurementRow
        meant = (row.study_id.in_(studies_of(selection)), *conditions_of(selection))
        # Only what is timed has a time, so that the index of the front counts them: of 100,000
        # no row is looked at. What failed is few.
        timed = select(func.count()).where(*meant, row.time_ms.is_not(None))
        failed = (
            select(row.kind, func.count()).where(*meant, row.time_ms.is_(None)).group_by(row.kind)
        )
        with self._transactions.read() as session:
            found = {kind: count for kind, count in session.execute(failed)}
            found["timed"] = session.execute(timed).scalar_one()
            return {kind: found.get(kind, 0) for kind in OUTCOME_KINDS}

    def improvements(self, selection: Selection, *, limit: int = 1_000) -> tuple[Improvement, ...]:
        """The best time so far, at each measurement that bettered it; thinned evenly to
        ``limit``, first and last always among them."""
        row = MeasurementRow
        numbered = (
            select(
                row.id,
                row.time_ms,
                func.row_number().over(order_by=row.id).label("number"),
                func.min(row.time_ms).over(order_by=row.id, rows=(None, -1)).label("best_before"),
            )
            .where(row.study_id.in_(studies_of(selection)), *conditions_of(selection))
            .subquery()
        )
        better = numbered.c
        rows = (
            select(better.number, row.started_at, row.time_ms, row.memory_bytes, row.candidate_id)
            .join(numbered, better.id == row.id)
            .where(
                better.time_ms.is_not(None),
                better.best_before.is_(None) | (better.time_ms < better.best_before),
            )
            .order_by(better.number)
        )
        checked_limit(limit)
        with self._transactions.read() as session:
            return _thinned([Improvement(*found) for found in session.execute(rows)], limit)

    def hypervolume(
        self,
        selection: Selection,
        *,
        limit: int = 1_000,
        reference: tuple[float, float] | None = None,
    ) -> VolumeSeries:
        """How much of time and memory the front dominates, at each measurement that changed
        it; ``reference`` is ``(ms, bytes)``.

        ``LimitError`` beyond a million timed measurements.
        """
        checked_limit(limit)
        if reference is not None:
            checked_number("reference.time_ms", reference[0], 0.0, 1e15)
            checked_number("reference.memory_bytes", reference[1], 0.0, 1e19)
        row = MeasurementRow
        numbered = (
            select(
                row.id,
                row.time_ms,
                row.memory_bytes,
                func.row_number().over(order_by=row.id).label("number"),
            )
            .where(row.study_id.in_(studies_of(selection)), *conditions_of(selection))
            .subquery()
        )
        point = numbered.c
        rows = (
            select(point.number, point.id, point.time_ms, point.memory_bytes)
            .where(point.time_ms.is_not(None))
            .order_by(point.number)
            .limit(MOST_OF_A_SERIES + 1)
        )
        with self._transactions.read() as session:
            found = session.execute(rows).all()
            if len(found) > MOST_OF_A_SERIES:
                raise LimitError(
                    Problem("selection", "has too many measurements", allowed=f"{MOST_OF_A_SERIES}")
                )
            sizes = [(ms, size) for _, _, ms, size in found]
            ms, size = reference or (
                max((point[0] for point in sizes), default=0.0),
                max((point[1] for point in sizes), default=0),
            )
            kept = _thinned(list(growing_volumes(sizes, (ms, size))), limit)
            # Times are read for the few that are shown: parsing them all would cost most.
            ids = [found[index].id for index, _ in kept]
            times = session.execute(select(row.id, row.started_at).where(row.id.in_(ids)))
            at = {measurement_id: time for measurement_id, time in times}
            volumes = (
                Volume(found[index].number, at[found[index].id], volume) for index, volume in kept
            )
            return VolumeSeries(ms, size, tuple(volumes))


def growing_volumes(
    points: Iterable[tuple[float, float]], reference: tuple[float, float]
) -> Iterator[tuple[int, float]]:
    """``(index, hypervolume)`` after each point that enlarges it; both coordinates are
    minimised. Points that are not below the reference in both add nothing."""
    front: list[tuple[float, float]] = []  # ascending in the first, descending in the second
    volume = 0.0
    for index, (first, second) in enumerate(points):
        if first >= reference[0] or second >= reference[1]:
            continue
        place = bisect_left(front, (first, second))
        if place and front[place - 1][1] <= second:
            continue
        if place < len(front) and front[place] == (first, second):
            continue
        end = place
        while end < len(front) and front[end][1] >= second:
            end += 1
        # The new area: a staircase between this point's sides, step by step.
        ceiling = front[place - 1][1] if place else reference[1]
        left = first
        for step in [*front[place:end], (front[end][0] if end < len(front) else reference[0], 0.0)]:
            volume += (step[0] - left) * (ceiling - second)
            left, ceiling = step
        front[place:end] = [(first, second)]
        yield index, volume


def _rows() -> Select[*tuple[Any, ...]]:
    return (
        select(
            MeasurementRow,
            StudyRow.program_hash,
            StudyRow.variant,
            StudyRow.mode,
            StudyRow.device_id,
            RunRow.id,
            RunRow.board_id,
        )
        .join(StudyRow, StudyRow.id == MeasurementRow.study_id)
        .outerjoin(RunStudyRow, RunStudyRow.study_id == StudyRow.id)
        .outerjoin(RunRow, RunRow.id == RunStudyRow.run_id)
    )


def _studied(row: MeasurementRow, *about: Any) -> StudiedMeasurement:
    return StudiedMeasurement(stored_measurement(row), *about)


def _thinned(values: list[T], limit: int) -> tuple[T, ...]:
    if len(values) <= limit:
        return tuple(values)
    if limit == 1:
        return (values[-1],)
    last = len(values) - 1
    return tuple(values[round(number * last / (limit - 1))] for number in range(limit))
