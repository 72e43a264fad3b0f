"""What runs on a board measured before another began: what a new layer's search learns from."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from db.codecs import decode_outcome
from db.farm.run_records import EarlierBest, EarlierStudy
from db.farm.tables import RunRow, RunStudyRow
from db.store import stored_candidate
from db.tables import CandidateRow, MeasurementRow, ProgramRow, StudyRow

#: Runs that are looked at, the latest first: those of the same subject teach nothing.
MOST_RUNS = 100


def earlier_studies(
    session: Session, run: RunRow, most: int, of_a_study: int
) -> Iterator[EarlierStudy]:
    """Studies of the runs on the run's board that had ended when it was made and that are of
    other subjects, the latest runs first: ``most`` candidates, ``of_a_study`` of each at most.

    What ended before never changes, so that every proposal of a run learns from the same.
    """
    for study in _studies(session, run):
        if most <= 0:
            return
        rows = session.execute(
            select(
                CandidateRow,
                MeasurementRow.kind,
                MeasurementRow.detail,
                MeasurementRow.trials,
                MeasurementRow.spans,
            )
            .join(CandidateRow, CandidateRow.id == MeasurementRow.candidate_id)
            .where(MeasurementRow.study_id == study.id)
            .order_by(MeasurementRow.id)
            .limit(min(most, of_a_study))
        )
        measured = tuple(
            (stored_candidate(candidate), decode_outcome(kind, detail, trials, spans))
            for candidate, kind, detail, trials, spans in rows
        )
        most -= len(measured)
        if measured:
            yield EarlierStudy(study.label, study.json_text, study.variant, study.mode, measured)


def earlier_best(session: Session, run: RunRow, of_a_study: int) -> Iterator[EarlierBest]:
    """The fastest of each study of the runs of the same subject on the run's board that had ended
    when it was made."""
    for study in _studies(session, run, same=True):
        rows = session.execute(
            select(CandidateRow, MeasurementRow.time_ms)
            .join(CandidateRow, CandidateRow.id == MeasurementRow.candidate_id)
            .where(MeasurementRow.study_id == study.id, MeasurementRow.time_ms.is_not(None))
            .order_by(MeasurementRow.time_ms, MeasurementRow.id)
            .limit(of_a_study)
        )
        for candidate, time_ms in rows:
            if time_ms is not None and study.mode == run.request.get("mode", "strict"):
                yield EarlierBest(study.variant, stored_candidate(candidate).chosen, time_ms)


def _studies(
    session: Session, run: RunRow, *, same: bool = False
) -> list[Row[int, str, str, str, str, str]]:
    runs = session.execute(
        select(RunRow.id, RunRow.request)
        .where(RunRow.board_id == run.board_id, RunRow.ended_at <= run.created_at)
        .order_by(RunRow.ended_at.desc(), RunRow.id.desc())
        .limit(MOST_RUNS)
    )
    subject = run.request.get("subject")
    wanted = [run_id for run_id, request in runs if (request.get("subject") == subject) is same]
    studies = session.execute(
        select(
            StudyRow.id,
            RunStudyRow.run_id,
            RunRow.label,
            StudyRow.variant,
            StudyRow.mode,
            ProgramRow.json_text,
        )
        .join(RunStudyRow, RunStudyRow.study_id == StudyRow.id)
        .join(RunRow, RunRow.id == RunStudyRow.run_id)
        .join(ProgramRow, ProgramRow.hash == StudyRow.program_hash)
        .where(RunStudyRow.run_id.in_(wanted))
    ).all()
    place = {run_id: number for number, run_id in enumerate(wanted)}
    return sorted(studies, key=lambda study: (place[study.run_id], study.id))
