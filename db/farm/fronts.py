"""Exact time-memory fronts over any set of studies, and the best within a bound."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import aliased

from db.farm.checking import checked_integer, checked_number
from db.farm.selection import Selection, conditions_of, studies_of
from db.front_walk import front_corners, front_rows
from db.tables import MeasurementRow, StudyRow
from db.transactions import Transactions

#: In the order of the fields of :class:`StudiedPoint`.
_COLUMNS = (
    MeasurementRow.time_ms,
    MeasurementRow.memory_bytes,
    MeasurementRow.candidate_id,
    MeasurementRow.id,
    MeasurementRow.study_id,
    StudyRow.program_hash,
    StudyRow.variant,
    StudyRow.device_id,
    MeasurementRow.started_at,
)


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
        """The fastest candidate that allocates at most ``most_bytes``; of equals the smallest.

        It is on the front: whatever is as fast and smaller would be taken instead.
        """
        if most_bytes is not None:
            checked_integer("most_bytes", most_bytes)
        front = self.front(selection)
        return next((p for p in front if most_bytes is None or p.memory_bytes <= most_bytes), None)

    def fastest_by_program(self, selection: Selection) -> dict[str, StudiedPoint]:
        """The fastest candidate of each program that has one, by the program's hash; of equals
        the smallest. One step into the index for each study, however much was measured."""
        row, study = MeasurementRow, StudyRow
        inner = aliased(MeasurementRow)
        best = (
            select(inner.id)
            .where(
                inner.study_id == study.id,
                inner.time_ms.is_not(None),
                *conditions_of(selection, inner),
            )
            .order_by(inner.time_ms, inner.memory_bytes, inner.candidate_id)
            .limit(1)
            .correlate(study)
            .scalar_subquery()
        )
        rows = (
            select(*_COLUMNS)
            .select_from(study)
            .join(row, row.id == best)
            .where(study.id.in_(studies_of(selection)))
            .order_by(row.time_ms, row.memory_bytes, row.candidate_id)
        )
        found: dict[str, StudiedPoint] = {}
        with self._transactions.read() as session:
            for values in session.execute(rows):
                point = StudiedPoint(*values)
                found.setdefault(point.program_hash, point)
        return found

    def smallest(
        self, selection: Selection, *, most_ms: float | None = None
    ) -> StudiedPoint | None:
        """The candidate that allocates least and takes at most ``most_ms``; of equals the
        fastest. It is on the front."""
        if most_ms is not None:
            checked_number("most_ms", most_ms, 0.0, 1e15)
        front = [p for p in self.front(selection) if most_ms is None or p.time_ms <= most_ms]
        return min(front, key=lambda p: (p.memory_bytes, p.time_ms, p.candidate_id), default=None)


def front_statement(selection: Selection) -> Select[*tuple[Any, ...]]:
    """Select the front's points, ready for :class:`StudiedPoint`."""
    row, study = MeasurementRow, StudyRow
    corners = front_corners(
        studies_of(selection), lambda measured: conditions_of(selection, measured)
    )
    return (
        select(*_COLUMNS)
        .join(study, study.id == row.study_id)
        .join(corners, front_rows(corners))
        .where(*conditions_of(selection))
        .order_by(row.time_ms, row.memory_bytes, row.candidate_id)
    )
