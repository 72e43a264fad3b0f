"""Exact time-memory fronts over any set of studies, and the best within a bound.

A point is on the front if no other is at least as good in time and memory and better in one;
equal points keep each other. The front of a union is the front of the fronts' union: each
study's is read off the index ``(study_id, time_ms, memory_bytes)`` in order, and only what is
left of them is sorted together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Subquery, func, select

from db.farm.checking import checked_integer, checked_number
from db.farm.selection import Selection, conditions_of, studies_of
from db.tables import MeasurementRow, StudyRow
from db.transactions import Transactions


@dataclass(frozen=True, slots=True)
class StudiedPoint:
    """A measured candidate with its place in the store; ``time_ms`` is the median."""

    time_ms: float
    memory_bytes: int
    candidate_id: str
    measurement_id: int
    study_id: int
    program_hash: str
    variant: str
    device_id: int
    started_at: datetime


class Fronts:
    """Fronts and epsilon-constraint answers of a selection of measurements."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def front(self, selection: Selection) -> tuple[StudiedPoint, ...]:
        """The front, fastest first."""
        with self._transactions.read() as session:
            return tuple(StudiedPoint(*row) for row in session.execute(front_statement(selection)))

    def fastest(
        self, selection: Selection, *, most_bytes: int | None = None
    ) -> StudiedPoint | None:
        """The fastest candidate that allocates at most ``most_bytes``; of equals the smallest."""
        row = MeasurementRow
        rows = _timed(selection)
        if most_bytes is not None:
            rows = rows.where(row.memory_bytes <= checked_integer("most_bytes", most_bytes))
        return self._first(rows.order_by(row.time_ms, row.memory_bytes, row.candidate_id))

    def smallest(
        self, selection: Selection, *, most_ms: float | None = None
    ) -> StudiedPoint | None:
        """The candidate that allocates least and takes at most ``most_ms``; of equals the
        fastest."""
        row = MeasurementRow
        rows = _timed(selection)
        if most_ms is not None:
            rows = rows.where(row.time_ms <= checked_number("most_ms", most_ms, 0.0, 1e15))
        return self._first(rows.order_by(row.memory_bytes, row.time_ms, row.candidate_id))

    def _first(self, rows: Select[*tuple[Any, ...]]) -> StudiedPoint | None:
        with self._transactions.read() as session:
            found = session.execute(rows.limit(1)).one_or_none()
            return None if found is None else StudiedPoint(*found)


def front_statement(selection: Selection) -> Select[*tuple[Any, ...]]:
    """Select the front's points, ready for :class:`StudiedPoint`."""
    row = MeasurementRow
    least_before = func.min(row.memory_bytes).over(
        partition_by=row.study_id, order_by=(row.time_ms, row.memory_bytes), groups=(None, -1)
    )
    # Only columns of the index: rows themselves are fetched for the front alone.
    points = (
        select(row.id, row.time_ms, row.memory_bytes, least_before.label("least_before"))
        .where(_of_studies(selection), row.time_ms.is_not(None), *conditions_of(selection))
        .subquery("points")
    )
    front = _unbeaten(points)
    if selection.one_study is None:
        front = _unbeaten(_ranked_together(front))
    return (
        _columns()
        .join(front, front.c.id == row.id)
        .order_by(row.time_ms, row.memory_bytes, row.candidate_id)
    )


def _ranked_together(points: Subquery) -> Subquery:
    least_before = func.min(points.c.memory_bytes).over(
        order_by=(points.c.time_ms, points.c.memory_bytes), groups=(None, -1)
    )
    return select(
        points.c.id, points.c.time_ms, points.c.memory_bytes, least_before.label("least_before")
    ).subquery()


def _unbeaten(points: Subquery) -> Subquery:
    """Points with less memory than all that are faster, or as fast and smaller: these come in
    a peer group of their own before, and equal points are peers."""
    point = points.c
    return (
        select(point.id, point.time_ms, point.memory_bytes)
        .where(point.least_before.is_(None) | (point.memory_bytes < point.least_before))
        .subquery()
    )


def _columns() -> Select[*tuple[Any, ...]]:
    row, study = MeasurementRow, StudyRow
    return select(
        row.time_ms,
        row.memory_bytes,
        row.candidate_id,
        row.id,
        row.study_id,
        study.program_hash,
        study.variant,
        study.device_id,
        row.started_at,
    ).join(study, study.id == row.study_id)


def _timed(selection: Selection) -> Select[*tuple[Any, ...]]:
    row = MeasurementRow
    return _columns().where(
        _of_studies(selection), row.time_ms.is_not(None), *conditions_of(selection)
    )


def _of_studies(selection: Selection) -> ColumnElement[bool]:
    return MeasurementRow.study_id.in_(studies_of(selection))
