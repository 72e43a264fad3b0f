"""What a ``propose`` job found, checked before a transaction and stored within one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from db.canonical import canonical_json, content_hash, written_hash
from db.farm.artifacts import check_content, missing_artifacts, put_artifact
from db.farm.checking import (
    MAX_EVENT_BYTES,
    MAX_FACTS_BYTES,
    MAX_PAYLOAD_BYTES,
    checked_hash,
    checked_integer,
    checked_json,
    checked_text,
)
from db.farm.identifiers import JOB_PREFIX, new_identifiers
from db.farm.lifecycle import job_values
from db.farm.notices import notify_boards
from db.farm.owners import ROW_BYTES
from db.farm.run_records import DeviceState, Proposal, ProposedCandidate, StudySpec
from db.farm.states import JobKind, RunState
from db.farm.tables import JobRow, RunArtifactRow, RunRow, RunStudyRow
from db.farm.turns import next_ranks
from db.tables import CandidateRow, DeviceRow, ProgramRow, StudyRow
from db.transactions import insert_all_absent, insert_if_absent, inserted_key, inserted_keys
from mapper.errors import InputError, LimitError, Problem, StoreError

MAX_CANDIDATES = 500
MAX_STUDIES = 100
_STUDY_KEY = ("program_hash", "device_id", "mode", "seed", "label", "variant")
_DEVICE = select(DeviceRow.id).where(DeviceRow.fingerprint == bindparam("fingerprint"))
_STUDY = select(StudyRow.id).where(
    *(getattr(StudyRow, name) == bindparam(name) for name in _STUDY_KEY)
)
_INT64 = 1 << 63


class CheckedProgram(NamedTuple):
    """A program as canonical JSON, by its hash, and the hash of what was written."""

    hash: str
    text: str
    written: str


@dataclass(frozen=True, slots=True)
class CheckedProposal:
    """A proposal with its programs, one a study, and the hashes of its artifacts."""

    proposal: Proposal
    programs: tuple[CheckedProgram, ...]
    artifact_hashes: tuple[str, ...]


def check_proposal(proposal: Proposal) -> CheckedProposal:
    """Everything that can be known wrong without the database: ``InputError``, ``LimitError``."""
    if len(proposal.candidates) > MAX_CANDIDATES or len(proposal.studies) > MAX_STUDIES:
        found = f"{len(proposal.candidates)} candidates, {len(proposal.studies)} studies"
        allowed = f"{MAX_CANDIDATES} candidates, {MAX_STUDIES} studies"
        raise LimitError(Problem("proposal", "is too large", found, allowed))
    checked_json("strategy_state", proposal.strategy_state, MAX_PAYLOAD_BYTES)
    checked_json("report", proposal.report, MAX_EVENT_BYTES // 2)
    checked_text("device.name", proposal.device.name)
    checked_json("device.facts", proposal.device.facts, MAX_FACTS_BYTES)
    programs = tuple(
        _check_study(f"studies/{number}", study) for number, study in enumerate(proposal.studies)
    )
    for number, candidate in enumerate(proposal.candidates):
        _check_candidate(f"candidates/{number}", candidate, programs)
    return CheckedProposal(
        proposal, programs, tuple(check_content(content) for content in proposal.artifacts)
    )


def _check_study(path: str, study: StudySpec) -> CheckedProgram:
    checked_text(f"{path}/program_schema", study.program_schema, most=64, least=1)
    checked_text(f"{path}/variant", study.variant, most=64)
    checked_text(f"{path}/mode", study.mode, most=64)
    checked_integer(f"{path}/seed", study.seed, -_INT64)
    try:
        document = json.loads(study.program_json)
        text = canonical_json(document)
    except ValueError as error:
        raise InputError(Problem(f"{path}/program_json", f"not JSON: {error}")) from error
    name = content_hash(text)
    return CheckedProgram(name, text, written_hash(study.program_schema, document, name))


def _check_candidate(
    path: str, candidate: ProposedCandidate, programs: tuple[CheckedProgram, ...]
) -> None:
    checked_integer(f"{path}/study", candidate.study, 0, len(programs) - 1)
    record = candidate.record
    if record.program_hash != programs[candidate.study].hash:
        raise InputError(
            Problem(
                f"{path}/record",
                "is of another program than its study",
                record.program_hash[:80],
                programs[candidate.study].hash,
            )
        )
    checked_hash(f"{path}/record/source_hash", record.source_hash)
    checked_integer(f"{path}/record/memory_bytes", record.memory_bytes)
    checked_text(f"{path}/record/nestmap_version", record.nestmap_version, most=64)
    checked_json(f"{path}/payload", candidate.payload, MAX_PAYLOAD_BYTES)
    for name in candidate.artifacts:
        checked_hash(f"{path}/artifacts", name)


def store_proposal(
    session: Session, run: RunRow, checked: CheckedProposal, now: datetime
) -> tuple[int, int]:
    """Store it for a run whose row is locked; how many ``measure`` jobs were added, and what its
    artifacts and programs count for the run's owner (:mod:`db.farm.owners`).

    ``InputError`` if a job refers to an artifact that is not there.
    """
    # Rows that runs share are written in the order of their keys, table by table, so that two
    # proposals at once never wait for each other in a circle.
    proposal = checked.proposal
    contents = zip(checked.artifact_hashes, proposal.artifacts, strict=True)
    n_bytes = 0
    for name, content in sorted(contents, key=lambda pair: pair[0]):
        n_bytes += put_artifact(session, content, name, run.principal, now)
    wanted = {name for candidate in proposal.candidates for name in candidate.artifacts}
    missing = missing_artifacts(session, wanted.difference(checked.artifact_hashes))
    if missing:
        raise InputError(
            Problem("candidates", "refer to artifacts that are not stored", sorted(missing)[0])
        )
    insert_all_absent(
        session, RunArtifactRow, [{"run_id": run.id, "hash": h} for h in sorted(wanted)]
    )
    device_id = _device(session, proposal.device)
    programs = {
        program.hash: {
            "hash": program.hash,
            "schema": study.program_schema,
            "json_text": program.text,
            "written_hash": program.written,
            "principal": run.principal,
            "touched_at": now,
        }
        for study, program in zip(proposal.studies, checked.programs, strict=True)
    }
    rows = [programs[name] for name in sorted(programs)]
    for name in inserted_keys(session, ProgramRow, rows):
        n_bytes += len(str(programs[name]["json_text"])) + ROW_BYTES
    studies = [
        _study(session, run, study, program.hash, device_id, now)
        for study, program in zip(proposal.studies, checked.programs, strict=True)
    ]
    candidates = {candidate.record.id: candidate for candidate in proposal.candidates}
    insert_all_absent(
        session, CandidateRow, [_candidate_values(candidates[name]) for name in sorted(candidates)]
    )
    number = len(proposal.candidates)
    ids = new_identifiers(JOB_PREFIX, now, number)
    ranks = next_ranks(session, run.priority, run.principal, number, run.board_id)
    added = insert_all_absent(
        session,
        JobRow,
        [
            _measure_job(job_id, candidate, studies[candidate.study], run, rank, now)
            for job_id, candidate, rank in zip(ids, proposal.candidates, ranks, strict=True)
        ],
    )
    if added:
        notify_boards(session, run)
    return added, n_bytes


def other_device_study(
    session: Session,
    run: RunRow,
    job: JobRow,
    device: DeviceState | None,
    facts: Mapping[str, Any],
    now: datetime,
) -> int:
    """The study that a measurement belongs to: the job's, or its like on another device where
    the facts contradict those of ``device``, which is the job's."""
    if device is None or job.study_id is None:
        raise StoreError(f"job {job.id} has lost its study")
    seen = {name: facts.get(name, value) for name, value in device.facts.items()}
    if seen == device.facts:
        return job.study_id
    study = session.get_one(StudyRow, job.study_id)
    device_id = _device(session, DeviceState(device.name, seen))
    key = {
        "program_hash": study.program_hash,
        "device_id": device_id,
        "mode": study.mode,
        "seed": study.seed,
        "label": study.label,
        "variant": study.variant,
    }
    return _open_study(session, run, key, now)


def study_label(run: RunRow) -> str:
    """The label of a run's studies; two runs never share one."""
    return f"{run.label}@{run.id}"


def _device(session: Session, device: DeviceState) -> int:
    fingerprint = content_hash(canonical_json([device.name, device.facts]))
    row = {"fingerprint": fingerprint, "name": device.name, "facts": dict(device.facts)}
    found = session.execute(_DEVICE, {"fingerprint": fingerprint}).scalar()
    if found is None:
        insert_if_absent(session, DeviceRow, row)
        found = session.execute(_DEVICE, {"fingerprint": fingerprint}).scalar_one()
    return found


def _study(
    session: Session,
    run: RunRow,
    study: StudySpec,
    program_hash: str,
    device_id: int,
    now: datetime,
) -> int:
    key = {
        "program_hash": program_hash,
        "device_id": device_id,
        "mode": study.mode,
        "seed": study.seed,
        "label": study_label(run),
        "variant": study.variant,
    }
    return _open_study(session, run, key, now)


def _open_study(session: Session, run: RunRow, key: dict[str, Any], now: datetime) -> int:
    study_id = inserted_key(session, StudyRow, {**key, "created_at": now})
    if study_id is None:
        return session.execute(_STUDY, key).scalar_one()
    # No other run has a study of this label, so that a study is its run's from the first.
    insert_if_absent(session, RunStudyRow, {"run_id": run.id, "study_id": study_id})
    return study_id


def _candidate_values(candidate: ProposedCandidate) -> dict[str, Any]:
    record = candidate.record
    return {
        "id": record.id,
        "program_hash": record.program_hash,
        "parameters": record.parameters,
        "mapping": record.mapping,
        "local_sizes": record.local_sizes,
        "source_hash": record.source_hash,
        "memory_bytes": record.memory_bytes,
        "nestmap_version": record.nestmap_version,
    }


def _measure_job(
    job_id: str,
    candidate: ProposedCandidate,
    study_id: int,
    run: RunRow,
    rank: int,
    now: datetime,
) -> dict[str, Any]:
    record = candidate.record
    return job_values(
        job_id,
        JobKind.MEASURE,
        now,
        run_id=run.id,
        board_id=run.board_id,
        study_id=study_id,
        candidate_id=record.id,
        memory_bytes=record.memory_bytes,
        source_hash=record.source_hash,
        nestmap_version=record.nestmap_version,
        principal=run.principal,
        payload=dict(candidate.payload),
        rank=rank,
        held=run.state == RunState.PAUSED,
    )
