"""The store: the only door to the database.

Every method is one transaction. Whatever the database refuses comes out as
:class:`mapper.errors.StoreError`; an identifier that names nothing as ``InputError``.
One store belongs to one process: open it after a fork, not before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, Row, func, select, update

from db.canonical import canonical_json, content_hash, written_hash
from db.codecs import decode_outcome, encode_outcome
from db.engine import address_of, open_engine
from db.front_walk import front_corners, front_rows
from db.records import (
    CandidateRecord,
    FrontPoint,
    StoredDevice,
    StoredMeasurement,
    StoredProgram,
    Study,
)
from db.tables import CandidateRow, DeviceRow, MeasurementRow, ProgramRow, StudyRow
from db.transactions import Transactions, insert_if_absent
from mapper.errors import InputError, Problem, StoreError
from mapper.measurement import OUTCOME_KINDS, Outcome


def utc_now() -> datetime:
    """The default clock of a store."""
    return datetime.now(UTC)


class Store:
    """Programs, devices, studies, candidates and measurements in one database."""

    def __init__(self, engine: Engine, now: Callable[[], datetime] = utc_now) -> None:
        """Use :meth:`open`; an engine given here must have the newest schema."""
        self._transactions = Transactions(engine)
        self._now = now

    @classmethod
    def open(cls, path_or_url: str | Path, now: Callable[[], datetime] = utc_now) -> Self:
        """Open an SQLite file (created if absent) or a database URL, migrated to the head.

        Raises ``StoreError`` if it cannot be written, is no database, or is newer than
        this nestmap.
        """
        return cls(open_engine(address_of(path_or_url)), now)

    def close(self) -> None:
        """Close every connection; the store must not be used any more."""
        self._transactions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Programs and devices

    def add_program(self, schema: str, json_text: str) -> str:
        """Store a program once and return its hash; key order and spaces do not matter."""
        try:
            document = json.loads(json_text)
            text = canonical_json(document)
        except ValueError as error:
            raise InputError(Problem("program", f"not JSON: {error}")) from error
        program_hash = content_hash(text)
        row = {"hash": program_hash, "schema": schema, "json_text": text}
        row["written_hash"] = written_hash(schema, document, program_hash)
        with self._transactions.write() as session:
            if not insert_if_absent(session, ProgramRow, row):
                # One that somebody has posted is not dropped before a study refers to it.
                posted = update(ProgramRow).where(ProgramRow.hash == program_hash)
                session.execute(
                    posted.where(ProgramRow.touched_at.is_not(None)).values(touched_at=self._now()),
                    execution_options={"synchronize_session": False},
                )
        return program_hash

    def program(self, program_hash: str) -> StoredProgram:
        """The program of a hash."""
        with self._transactions.read() as session:
            row = session.get(ProgramRow, program_hash)
            if row is None:
                raise _absent("program", program_hash)
            return stored_program(row)

    def under_schedules(self, program_hash: str) -> frozenset[str]:
        """The hashes of what is stored of a program with schedules."""
        row = ProgramRow
        wanted = select(row.hash).where(row.written_hash == program_hash, row.hash != program_hash)
        with self._transactions.read() as session:
            return frozenset(session.scalars(wanted))

    def add_device(self, name: str, facts: Mapping[str, Any]) -> int:
        """Store a device with its driver and versions once and return its id.

        ``facts`` are part of its identity: leave out what changes from run to run.
        """
        fingerprint = content_hash(canonical_json([name, facts]))
        row = {"fingerprint": fingerprint, "name": name, "facts": dict(facts)}
        with self._transactions.write() as session:
            insert_if_absent(session, DeviceRow, row)
            found = select(DeviceRow.id).where(DeviceRow.fingerprint == fingerprint)
            return session.execute(found).scalar_one()

    def devices(self) -> tuple[StoredDevice, ...]:
        """All devices, oldest first."""
        with self._transactions.read() as session:
            rows = session.scalars(select(DeviceRow).order_by(DeviceRow.id))
            return tuple(StoredDevice(row.id, row.name, row.facts) for row in rows)

    # Studies

    def open_study(
        self,
        program_hash: str,
        device_id: int,
        *,
        mode: str,
        seed: int,
        label: str,
        variant: str,
    ) -> Study:
        """Begin a study, or resume the one that has the same key."""
        key = {
            "program_hash": program_hash,
            "device_id": device_id,
            "mode": mode,
            "seed": seed,
            "label": label,
            "variant": variant,
        }
        with self._transactions.write() as session:
            insert_if_absent(session, StudyRow, {**key, "created_at": self._now()})
            return stored_study(session.scalars(select(StudyRow).filter_by(**key)).one())

    def study(self, study_id: int) -> Study:
        """The study of an id."""
        with self._transactions.read() as session:
            row = session.get(StudyRow, study_id)
            if row is None:
                raise _absent("study", str(study_id))
            return stored_study(row)

    def studies(self) -> tuple[Study, ...]:
        """All studies, oldest first."""
        with self._transactions.read() as session:
            return tuple(map(stored_study, session.scalars(select(StudyRow).order_by(StudyRow.id))))

    # Candidates and measurements

    def candidate(self, candidate_id: str) -> CandidateRecord:
        """All that is needed to build a candidate again."""
        with self._transactions.read() as session:
            row = session.get(CandidateRow, candidate_id)
            if row is None:
                raise _absent("candidate", candidate_id)
            return stored_candidate(row)

    def measured_candidates(self, study: Study) -> set[str]:
        """Ids of the candidates that a resumed study need not run again."""
        ids = select(MeasurementRow.candidate_id).where(MeasurementRow.study_id == study.id)
        with self._transactions.read() as session:
            return set(session.scalars(ids))

    def add_measurement(
        self,
        study: Study,
        candidate: CandidateRecord,
        outcome: Outcome,
        memory_bytes: int,
        started_at: datetime | None = None,
    ) -> bool:
        """Store a candidate with its outcome; the first outcome in a study stays.

        Returns whether it was stored. ``started_at`` is now unless given, with a zone.
        """
        columns = encode_outcome(outcome)
        candidate_row = {
            "id": candidate.id,
            "program_hash": candidate.program_hash,
            "parameters": candidate.parameters,
            "mapping": candidate.mapping,
            "local_sizes": candidate.local_sizes,
            "source_hash": candidate.source_hash,
            "memory_bytes": candidate.memory_bytes,
            "nestmap_version": candidate.nestmap_version,
        }
        measurement_row = {
            "study_id": study.id,
            "candidate_id": candidate.id,
            "kind": columns.kind,
            "detail": columns.detail,
            "trials": columns.trials,
            "spans": columns.spans,
            "time_ms": columns.time_ms,
            "memory_bytes": memory_bytes,
            "source_hash": candidate.source_hash,
            "nestmap_version": candidate.nestmap_version,
            "started_at": started_at or self._now(),
        }
        with self._transactions.write() as session:
            insert_if_absent(session, CandidateRow, candidate_row)
            return insert_if_absent(session, MeasurementRow, measurement_row)

    def measurements(self, study: Study) -> tuple[StoredMeasurement, ...]:
        """All measurements of a study in the order in which they were stored."""
        rows = select(MeasurementRow).where(MeasurementRow.study_id == study.id)
        with self._transactions.read() as session:
            return tuple(map(stored_measurement, session.scalars(rows.order_by(MeasurementRow.id))))

    def outcomes(self, study: Study) -> dict[str, int]:
        """How many measurements ended in each kind of outcome, kinds of none included."""
        counts = (
            select(MeasurementRow.kind, func.count())
            .where(MeasurementRow.study_id == study.id)
            .group_by(MeasurementRow.kind)
        )
        with self._transactions.read() as session:
            found = {kind: count for kind, count in session.execute(counts)}
        return {kind: found.get(kind, 0) for kind in OUTCOME_KINDS}

    def front(self, study: Study) -> tuple[FrontPoint, ...]:
        """The exact Pareto front of time and memory, fastest first.

        Points equal in both are all on it: neither beats the other.
        """
        corners = front_corners(select(StudyRow.id).where(StudyRow.id == study.id))
        row = MeasurementRow
        rows = (
            select(row.time_ms, row.memory_bytes, row.candidate_id)
            .join(corners, front_rows(corners))
            .order_by(row.time_ms, row.memory_bytes, row.candidate_id)
        )
        with self._transactions.read() as session:
            return tuple(
                FrontPoint(time_ms, memory_bytes, candidate_id)
                for time_ms, memory_bytes, candidate_id in session.execute(rows)
                if time_ms is not None  # never, but the column allows it
            )


def _absent(what: str, found: str) -> InputError:
    return InputError(Problem(what, f"no such {what} in the store", found=found))


def stored_study(row: StudyRow) -> Study:
    """A row of studies as a value."""
    return Study(
        id=row.id,
        program_hash=row.program_hash,
        device_id=row.device_id,
        mode=row.mode,
        seed=row.seed,
        label=row.label,
        variant=row.variant,
        created_at=row.created_at,
    )


def stored_program(row: ProgramRow | Row[Any]) -> StoredProgram:
    """A row of programs as a value."""
    return StoredProgram(row.hash, row.schema, row.json_text, row.written_hash or row.hash)


def stored_candidate(row: CandidateRow) -> CandidateRecord:
    """A row of candidates as a value."""
    return CandidateRecord(
        program_hash=row.program_hash,
        parameters=row.parameters,
        mapping=row.mapping,
        local_sizes=row.local_sizes,
        source_hash=row.source_hash,
        memory_bytes=row.memory_bytes,
        nestmap_version=row.nestmap_version,
    )


def stored_measurement(row: MeasurementRow) -> StoredMeasurement:
    """A measurement; ``StoreError`` if its columns are no outcome."""
    try:
        outcome = decode_outcome(row.kind, row.detail, row.trials, row.spans)
    except StoreError as error:
        raise StoreError(Problem(f"measurements/{row.id}", str(error))) from error
    return StoredMeasurement(
        id=row.id,
        study_id=row.study_id,
        candidate_id=row.candidate_id,
        outcome=outcome,
        memory_bytes=row.memory_bytes,
        source_hash=row.source_hash,
        nestmap_version=row.nestmap_version,
        started_at=row.started_at,
    )
