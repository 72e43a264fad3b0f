"""A stored candidate with all that pages say of it: gathered once, for a page or a comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.layer_programs import layer_of, programs_of
from api.problems import not_found
from api.services import Services
from api.solver_pool import Answer
from db.farm.errors import AbsentError
from db.farm.farm import Farm
from db.farm.measurements import StudiedMeasurement
from db.farm.records import Board
from db.farm.run_records import Run
from db.farm.selection import Selection
from db.records import CandidateRecord, StoredDevice, StoredProgram, Study
from mapper.errors import InputError, StoreError
from mapper.layer_sets import is_layer_name, layer_of_name
from mapper.measurement import Timed
from mapper.profiles import profile_names

#: Measurements of one candidate that its page lists, and candidates a prediction is fitted to.
MOST_MEASUREMENTS = 50
MOST_FITTED = 16
#: A sample of so many times as many is taken first: the whole front is in it, which is small.
_FITTED_OF = 8
#: So long a page waits for a prediction.
PREDICTION_S = 40.0
MOST_SOURCE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate, every time that it was measured (newest first), and the one that is meant.

    ``run`` and ``board`` are those of the meant measurement; None for what was tuned without
    the farm.
    """

    id: str
    record: CandidateRecord
    program: StoredProgram
    measurements: tuple[StudiedMeasurement, ...]
    meant: StudiedMeasurement | None
    study: Study | None
    device: StoredDevice | None
    run: Run | None
    board: Board | None
    source: str | None

    @property
    def chosen(self) -> dict[str, Any]:
        """The mapping with parameters and local sizes, as every command reads it."""
        return {
            "mapping": self.record.mapping,
            "parameters": dict(self.record.parameters),
            "local_sizes": self.record.local_sizes,
        }

    @property
    def has_mapping(self) -> bool:
        """Whether what was chosen reads as a mapping with local sizes; a store takes anything."""
        return isinstance(self.record.mapping, Mapping) and isinstance(
            self.record.local_sizes, Mapping
        )

    @property
    def timed(self) -> Timed | None:
        """The outcome of the meant measurement, if it has times."""
        outcome = None if self.meant is None else self.meant.measurement.outcome
        return outcome if isinstance(outcome, Timed) else None

    @property
    def layer_name(self) -> str | None:
        """The named layer that it computes, where that is known."""
        named = None if self.run is None else self.run.request.get("subject", {}).get("name")
        if named is None and self.study is not None:
            named = self.study.label.partition("@")[0]
        if named is None or not is_layer_name(named):
            return None
        programs = programs_of(layer_of_name(named)).values()
        return named if self.program.written_hash in programs else None

    @property
    def label(self) -> str:
        """What is computed, in a word or two: a run's own label may speak of the run alone."""
        subject = {} if self.run is None else self.run.request.get("subject", {})
        document = subject.get("document")
        named = document.get("name") if isinstance(document, Mapping) else None
        label = "" if self.run is None else self.run.label
        return self.layer_name or (str(named) if named else label) or self.program.hash[:10]

    @property
    def subject_path(self) -> str:
        """The page of what it computes."""
        return f"/layers/{self.layer_name or self.program.hash}"

    def about(self) -> dict[str, Any]:
        """What a solver child is asked about: subject, variant, mode and the device's limits."""
        subject, variant = self.subject()
        fields: dict[str, Any] = {"subject": subject, "device": self.profile()}
        if variant:
            fields["variant"] = variant
        if self.meant is not None and self.meant.mode == "paper":
            fields["mode"] = "paper"
        return fields

    def subject(self) -> tuple[dict[str, Any], str]:
        """The subject and, where it is a layer, the variant; else the program alone."""
        variant = "" if self.meant is None else self.meant.variant
        if self.layer_name is not None and variant:
            return {"name": self.layer_name}, variant
        asked = None if self.run is None else self.run.request.get("subject")
        if isinstance(asked, dict) and variant:
            layer = layer_of(asked)
            # Of a variant that is gone there is the stored program alone.
            if layer is not None and self.program.written_hash in programs_of(layer).values():
                return asked, variant
        return {"document": json.loads(self.program.json_text)}, ""

    def profile(self) -> str | dict[str, Any]:
        """The limits that hold: of the board that measured it, else of a like profile."""
        if self.board is not None:
            limits = self.board.limits
            if limits and isinstance(limits, str | dict):
                return limits
        return like_profile("" if self.device is None else self.device.name, self._facts())

    def _facts(self) -> Mapping[str, Any]:
        return {} if self.device is None else self.device.facts


def like_profile(name: str, facts: Mapping[str, Any]) -> str:
    """The shipped profile that a device without one is judged by; ``pocl`` where none fits."""
    text = f"{name} {facts.get('device.name', '')} {facts.get('platform.version', '')}".lower()
    fitting = (p for p in profile_names() if all(word in text for word in p.split("-")))
    return next(fitting, "pocl")


async def load_candidate(
    services: Services, candidate_id: str, measurement_id: int | None = None
) -> Candidate:
    """A candidate with its measurements; ProblemError 404 where there is none.

    Meant is the measurement of the id, else the newest one with a time, else the newest one.
    """
    found = await services.database(_load, services.farm, candidate_id, measurement_id)
    if found is None:
        raise not_found("candidate", candidate_id)
    return found


def _load(farm: Farm, candidate_id: str, measurement_id: int | None) -> Candidate | None:
    try:
        record = farm.store.candidate(candidate_id)
    except InputError:
        return None
    program = farm.store.program(record.program_hash)
    measured = farm.measurements.page(
        Selection(programs=frozenset({program.hash}), candidate_id=candidate_id),
        limit=MOST_MEASUREMENTS,
        newest_first=True,
    )
    meant = _meant(measured, measurement_id)
    study = device = run = board = None
    if meant is not None:
        study = farm.store.study(meant.measurement.study_id)
        device = next((d for d in farm.store.devices() if d.id == meant.device_id), None)
        run = None if meant.run_id is None else farm.runs.run(meant.run_id)
        board = None if meant.board_id is None else farm.boards.board(meant.board_id)
    source = _source(farm, meant.measurement.source_hash if meant else record.source_hash)
    return Candidate(
        candidate_id, record, program, measured, meant, study, device, run, board, source
    )


def _meant(
    measured: tuple[StudiedMeasurement, ...], measurement_id: int | None
) -> StudiedMeasurement | None:
    wanted = next((m for m in measured if m.measurement.id == measurement_id), None)
    timed = next((m for m in measured if isinstance(m.measurement.outcome, Timed)), None)
    return wanted or timed or (measured[0] if measured else None)


def _source(farm: Farm, source_hash: str) -> str | None:
    """The source that really ran; None where it is kept no more, or never was."""
    found = farm.artifacts.find(source_hash)
    if found is None or found.size > MOST_SOURCE_BYTES:
        return None
    try:
        return farm.artifacts.read(source_hash).decode("utf-8", "replace")
    except (AbsentError, StoreError):
        return None


async def predicted(services: Services, candidate: Candidate) -> Answer:
    """What the cost model expects of a candidate, its constants fitted to others of the study and
    never to itself. SolverProblem, also after :data:`PREDICTION_S`."""
    measured: list[dict[str, Any]] = []
    if candidate.meant is not None:
        study_id = candidate.meant.measurement.study_id
        measured = await services.database(neighbours, services.farm, study_id, candidate.id)
    question = {
        "kind": "prediction",
        **candidate.about(),
        "mapping": candidate.chosen,
        "measured": measured,
    }
    return await services.solving.ask(question, services.solving.limits(PREDICTION_S))


def neighbours(farm: Farm, study_id: int, candidate_id: str) -> list[dict[str, Any]]:
    """Up to :data:`MOST_FITTED` other timed candidates of a study with their times, evenly over
    the search: the first ones are random, the last ones all good."""
    cloud = farm.overviews.cloud(
        Selection(study_ids=frozenset({study_id})), most=_FITTED_OF * MOST_FITTED
    )
    timed = [
        point for point in cloud.points if point.candidate_id != candidate_id and point.time_ms > 0
    ]
    if len(timed) > MOST_FITTED:
        timed = [timed[place * len(timed) // MOST_FITTED] for place in range(MOST_FITTED)]
    records = farm.catalogue.candidates(point.candidate_id for point in timed)
    return [
        {
            "mapping": records[point.candidate_id].mapping,
            "parameters": dict(records[point.candidate_id].parameters),
            "local_sizes": records[point.candidate_id].local_sizes,
            "time_ms": point.time_ms,
        }
        for point in timed
    ]
