"""The exact time-memory front as a walk along an index.

A point is on the front if no other is at least as good in time and memory and better in one;
equal points keep each other. From each point of a study's front the next one is the first in
``(time_ms, memory_bytes)`` that has less memory: along the index ``(study_id, time_ms,
memory_bytes)`` every entry is looked at once, and a row itself only for what is on the front.
A window function over the same index (the least memory of all faster points) gives the same
answer and takes several times as long, since it computes a value for every row.

The front of a union is the front of the fronts' union, so that what is left of several studies
is few points, which a window then ranks together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import CTE, ColumnElement, Select, Subquery, func, select
from sqlalchemy.orm import aliased

from db.tables import MeasurementRow, StudyRow

#: What measurements must meet besides; it is called with the table or an alias of it.
Conditions = Callable[[type[MeasurementRow]], Sequence[ColumnElement[bool]]]


def front_corners(studies: Select[int], conditions: Conditions = lambda row: ()) -> Subquery:
    """``(study_id, time_ms, memory_bytes)`` of the points on the front of all these studies."""
    return _ranked_together(_corners(studies, conditions))


def front_rows(corners: Subquery) -> ColumnElement[bool]:
    """The measurements at these points, equal ones included: a condition to join on."""
    row = MeasurementRow
    return (
        (corners.c.study_id == row.study_id)
        & (corners.c.time_ms == row.time_ms)
        & (corners.c.memory_bytes == row.memory_bytes)
    )


def _corners(studies: Select[int], conditions: Conditions) -> CTE:
    """One measurement for each point of each study's own front."""
    row, first, following = MeasurementRow, aliased(MeasurementRow), aliased(MeasurementRow)
    fastest = (
        select(first.id)
        .where(first.study_id == StudyRow.id, first.time_ms.is_not(None))
        .where(*conditions(first))
        .order_by(first.time_ms, first.memory_bytes)
        .limit(1)
        .correlate(StudyRow)
        .scalar_subquery()
    )
    walk = (
        select(row.id, row.study_id, row.time_ms, row.memory_bytes)
        .select_from(StudyRow)
        .join(row, row.id == fastest)
        .where(StudyRow.id.in_(studies))
        .cte("walk", recursive=True)
    )
    smaller = (
        select(following.id)
        .where(
            following.study_id == walk.c.study_id,
            following.time_ms > walk.c.time_ms,
            following.memory_bytes < walk.c.memory_bytes,
            *conditions(following),
        )
        .order_by(following.time_ms, following.memory_bytes)
        .limit(1)
        .correlate(walk)
        .scalar_subquery()
    )
    return walk.union_all(
        select(row.id, row.study_id, row.time_ms, row.memory_bytes)
        .select_from(walk)
        .join(row, row.id == smaller)
    )


def _ranked_together(points: CTE) -> Subquery:
    """Points with less memory than all that are faster, or as fast and smaller: these come in
    a peer group of their own before, and equal points are peers."""
    least_before = func.min(points.c.memory_bytes).over(
        order_by=(points.c.time_ms, points.c.memory_bytes), groups=(None, -1)
    )
    ranked = select(
        points.c.study_id,
        points.c.time_ms,
        points.c.memory_bytes,
        least_before.label("least_before"),
    ).subquery()
    point = ranked.c
    return (
        select(point.study_id, point.time_ms, point.memory_bytes)
        .where(point.least_before.is_(None) | (point.memory_bytes < point.least_before))
        .subquery()
    )
