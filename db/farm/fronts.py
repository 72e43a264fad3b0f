"""Exact time-memory fronts over any set of studies, and the best within a bound.

Where a selection has measurements of several boards, a board's word alone leads nothing: a point
counts once another board of the same kind has found the candidate about as fast, in whatever run,
and then with the slower of the two times: what a board exaggerates within that gains nothing.
How often a board says a thing is no reason to believe it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import Session, aliased

from db.farm.checking import checked_integer, checked_number
from db.farm.selection import Selection, conditions_of, studies_of
from db.farm.tables import RunBoardRow, RunRow, RunStudyRow
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


#: How much slower one of two measurements may be where they confirm each other.
CONFIRMED_WITHIN = 1.5


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
        """The front, fastest first; across boards only what is confirmed."""
        with self._transactions.read() as session:
            confirmed = _is_across_boards(session, selection)
            return _points(session, front_statement(selection, confirmed=confirmed))

    def claims(self, selection: Selection) -> tuple[StudiedPoint, ...]:
        """What would be on a front across boards if a board's word were enough, fastest first."""
        with self._transactions.read() as session:
            if not _is_across_boards(session, selection):
                return ()
            known = set(_points(session, front_statement(selection, confirmed=True)))
            # Where a slower time of the same candidate is confirmed by it, it claims nothing more.
            alone = front_statement(selection).where(~_is_found_again(MeasurementRow))
            return tuple(point for point in _points(session, alone) if point not in known)

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
        the smallest, across boards only what is confirmed. One step into the index for each
        study, however much was measured."""
        with self._transactions.read() as session:
            confirmed = _is_across_boards(session, selection)
            rows = self._fastest_rows(selection, confirmed=confirmed)
            found: dict[str, StudiedPoint] = {}
            for values in session.execute(rows):
                point = StudiedPoint(*values)
                found.setdefault(point.program_hash, point)
        return found

    def _fastest_rows(self, selection: Selection, *, confirmed: bool) -> Select[*tuple[Any, ...]]:
        row, study = MeasurementRow, StudyRow
        inner = aliased(MeasurementRow)
        best = (
            select(inner.id)
            .where(
                inner.study_id == study.id,
                inner.time_ms.is_not(None),
                *_conditions(selection, inner, confirmed=confirmed),
            )
            .order_by(inner.time_ms, inner.memory_bytes, inner.candidate_id)
            .limit(1)
            .correlate(study)
            .scalar_subquery()
        )
        return (
            select(*_COLUMNS)
            .select_from(study)
            .join(row, row.id == best)
            .where(study.id.in_(studies_of(selection)))
            .order_by(row.time_ms, row.memory_bytes, row.candidate_id)
        )

    def smallest(
        self, selection: Selection, *, most_ms: float | None = None
    ) -> StudiedPoint | None:
        """The candidate that allocates least and takes at most ``most_ms``; of equals the
        fastest. It is on the front."""
        if most_ms is not None:
            checked_number("most_ms", most_ms, 0.0, 1e15)
        front = [p for p in self.front(selection) if most_ms is None or p.time_ms <= most_ms]
        return min(front, key=lambda p: (p.memory_bytes, p.time_ms, p.candidate_id), default=None)


def front_statement(selection: Selection, *, confirmed: bool = False) -> Select[*tuple[Any, ...]]:
    """Select the front's points, of confirmed ones only if asked for, ready for
    :class:`StudiedPoint`."""
    row, study = MeasurementRow, StudyRow
    corners = front_corners(
        studies_of(selection),
        lambda measured: _conditions(selection, measured, confirmed=confirmed),
    )
    return (
        select(*_COLUMNS)
        .join(study, study.id == row.study_id)
        .join(corners, front_rows(corners))
        .where(*_conditions(selection, row, confirmed=confirmed))
        .order_by(row.time_ms, row.memory_bytes, row.candidate_id)
    )


def _points(session: Session, rows: Select[*tuple[Any, ...]]) -> tuple[StudiedPoint, ...]:
    return tuple(StudiedPoint(*row) for row in session.execute(rows))


def _is_across_boards(session: Session, selection: Selection) -> bool:
    """Whether a selection that names neither run, study nor board has runs of two boards."""
    if selection.run_id or selection.board_id or selection.study_ids is not None:
        return False
    meant = RunStudyRow.study_id.in_(studies_of(selection))
    own = select(RunRow.board_id).join(RunStudyRow, RunStudyRow.run_id == RunRow.id).where(meant)
    shared = (
        select(RunBoardRow.board_id)
        .join(RunStudyRow, RunStudyRow.run_id == RunBoardRow.run_id)
        .where(meant)
    )
    return len(session.execute(own.union(shared).limit(2)).all()) > 1


def _conditions(
    selection: Selection, row: type[MeasurementRow], *, confirmed: bool
) -> list[ColumnElement[bool]]:
    found = conditions_of(selection, row)
    return [*found, _is_confirmed(row)] if confirmed else found


def _is_confirmed(row: type[MeasurementRow]) -> ColumnElement[bool]:
    """Whether another board measured the candidate on such a device and found it as fast or
    somewhat faster; what no board of the farm measured is its owner's own."""
    return row.board_id.is_(None) | _is_found_again(row, slower=1.0)


def _is_found_again(
    row: type[MeasurementRow], slower: float = CONFIRMED_WITHIN
) -> ColumnElement[bool]:
    """Whether another board found the candidate about as fast, ``slower`` times so at most."""
    other, study, of_other = aliased(MeasurementRow), aliased(StudyRow), aliased(StudyRow)
    return (
        select(other.id)
        .join(of_other, of_other.id == other.study_id)
        .join(study, study.device_id == of_other.device_id)
        .where(
            study.id == row.study_id,
            other.candidate_id == row.candidate_id,
            other.board_id.is_distinct_from(row.board_id),
            other.time_ms <= row.time_ms * slower,
            row.time_ms <= other.time_ms * CONFIRMED_WITHIN,
        )
        .correlate(row)
        .exists()
    )
