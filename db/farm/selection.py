"""Which measurements are meant: by study, run, layer, device, kind and time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, select

from db.farm.checking import checked_hash, checked_integer, checked_text, checked_time
from db.farm.tables import RunRow, RunStudyRow
from db.tables import MeasurementRow, ProgramRow, StudyRow
from mapper.errors import InputError, Problem
from mapper.measurement import OUTCOME_KINDS

MOST_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Measurements that meet all conditions which are not None.

    ``program`` is a hash, and ``programs`` are: a layer is the set of its variants' programs. What
    is stored of a program under schedules is meant too. ``label`` is that of
    a run, or of a study that belongs to none. ``board_id`` means studies of that board's runs;
    ``device_ids`` states of devices as studies know them; ``candidate_id`` one candidate,
    whichever studies it is in. ``since`` <= started at < ``until``.
    """

    study_ids: frozenset[int] | None = None
    run_id: str | None = None
    program: str | None = None
    programs: frozenset[str] | None = None
    label: str | None = None
    board_id: str | None = None
    device_ids: frozenset[int] | None = None
    candidate_id: str | None = None
    mode: str | None = None
    kind: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("run_id", "label", "board_id", "mode"):
            text = getattr(self, name)
            if text is not None:
                checked_text(name, text)
        for name in ("since", "until"):
            time = getattr(self, name)
            if time is not None:
                checked_time(name, time)
        for name in ("study_ids", "programs", "device_ids"):
            _check_named(name, getattr(self, name))
        for name in ("program", "candidate_id"):
            if (value := getattr(self, name)) is not None:
                checked_hash(name, value)
        if self.kind is not None and self.kind not in OUTCOME_KINDS:
            allowed = ", ".join(OUTCOME_KINDS)
            raise InputError(Problem("kind", "no such outcome", ascii(self.kind)[:80], allowed))


def studies_of(selection: Selection) -> Select[int]:
    """Select the ids of the studies that are meant."""
    rows = select(StudyRow.id)
    if selection.study_ids is not None:
        rows = rows.where(StudyRow.id.in_(selection.study_ids))
    if selection.program is not None:
        rows = rows.where(StudyRow.program_hash.in_(_written_as({selection.program})))
    if selection.programs is not None:
        rows = rows.where(StudyRow.program_hash.in_(_written_as(selection.programs)))
    if selection.device_ids is not None:
        rows = rows.where(StudyRow.device_id.in_(selection.device_ids))
    if selection.mode is not None:
        rows = rows.where(StudyRow.mode == selection.mode)
    if selection.run_id is not None:
        rows = rows.where(StudyRow.id.in_(_of_runs(RunRow.id == selection.run_id)))
    if selection.board_id is not None:
        rows = rows.where(StudyRow.id.in_(_of_runs(RunRow.board_id == selection.board_id)))
    if selection.label is not None:
        of_run = StudyRow.id.in_(_of_runs(RunRow.label == selection.label))
        rows = rows.where(of_run | (StudyRow.label == selection.label))
    return rows


def conditions_of(
    selection: Selection, row: type[MeasurementRow] = MeasurementRow
) -> list[ColumnElement[bool]]:
    """What measurements of these studies must meet besides; ``row`` may be an alias."""
    found: list[ColumnElement[bool]] = []
    if selection.candidate_id is not None:
        found.append(row.candidate_id == selection.candidate_id)
    if selection.kind is not None:
        found.append(row.kind == selection.kind)
    if selection.since is not None:
        found.append(row.started_at >= selection.since)
    if selection.until is not None:
        found.append(row.started_at < selection.until)
    return found


def _written_as(programs: Collection[str]) -> Select[str]:
    """The hashes of these programs and of what is stored of them under schedules."""
    row = ProgramRow
    return select(row.hash).where(row.written_hash.in_(programs) | row.hash.in_(programs))


def _of_runs(condition: ColumnElement[bool]) -> Select[int]:
    return (
        select(RunStudyRow.study_id).join(RunRow, RunRow.id == RunStudyRow.run_id).where(condition)
    )


def _check_named(name: str, values: frozenset[int] | frozenset[str] | None) -> None:
    if values is None:
        return
    checked_integer(name, len(values), 0, MOST_NAMED)
    for value in values:
        if isinstance(value, str):
            checked_text(name, value)
        else:
            checked_integer(name, value)
