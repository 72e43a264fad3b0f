"""Candidates, measurements and fronts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from api.baselines import Baseline
from api.schemas.solving import Hash
from db.codecs import encode_outcome
from db.farm.fronts import StudiedPoint
from db.farm.measurements import Improvement, StudiedMeasurement, Volume
from db.records import CandidateRecord, Study
from mapper.measurement import Timed


def readable(value: Any) -> Any:
    """A JSON value whose texts have UTF-8: half of a surrogate pair, as drivers write them, is
    spelled out."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {readable(name): readable(item) for name, item in value.items()}
        case list():
            return [readable(item) for item in value]
        case _:
            return value


class CandidateDocument(BaseModel):
    """What was chosen, and all that is needed to build it again."""

    id: Hash
    program: Hash
    parameters: dict[str, Any]
    mapping: Any
    local_sizes: Any
    source_hash: str
    memory_bytes: int
    nestmap_version: str

    @classmethod
    def of(cls, candidate_id: str, found: CandidateRecord) -> CandidateDocument:
        """The document of a candidate."""
        return cls(
            id=candidate_id,
            program=found.program_hash,
            parameters=dict(found.parameters),
            mapping=found.mapping,
            local_sizes=found.local_sizes,
            source_hash=found.source_hash,
            memory_bytes=found.memory_bytes,
            nestmap_version=found.nestmap_version,
        )


class MeasurementDocument(BaseModel):
    """One candidate's outcome in one study. `run` and `device` are null for what was tuned
    without the farm; `device_name` is what the device calls itself."""

    id: int
    study: int
    run: str | None
    device: str | None
    device_name: str
    program: Hash
    variant: str
    mode: str
    candidate: Hash
    outcome: str
    time_ms: float | None = Field(
        description="What candidates are compared by: the median of the spans, of the trials "
        "where there are none; null unless timed"
    )
    span_ms: float | None = Field(
        description="Median of the spans; null where none were measured, or not timed"
    )
    memory_bytes: int
    trials_ns: list[int] | None = Field(description="Times of the launches of each trial, summed")
    spans_ns: list[int] | None = Field(
        description="First start to last end of each trial, in the order of the trials"
    )
    detail: dict[str, Any]
    source_hash: str
    nestmap_version: str
    started_at: datetime

    @classmethod
    def of(cls, found: StudiedMeasurement, device_name: str) -> MeasurementDocument:
        """The document of a measurement."""
        stored = found.measurement
        columns = encode_outcome(stored.outcome)
        timed = stored.outcome if isinstance(stored.outcome, Timed) else None
        spanned = timed if timed is not None and timed.spans_ns else None
        return cls(
            id=stored.id,
            study=stored.study_id,
            run=found.run_id,
            device=found.board_id,
            device_name=readable(device_name),
            program=found.program_hash,
            variant=found.variant,
            mode=found.mode,
            candidate=stored.candidate_id,
            outcome=columns.kind,
            time_ms=columns.time_ms,
            span_ms=None if spanned is None else spanned.span_ms,
            memory_bytes=stored.memory_bytes,
            trials_ns=None if timed is None else list(timed.trials_ns),
            spans_ns=None if spanned is None else list(spanned.spans_ns),
            detail=readable(columns.detail),
            source_hash=stored.source_hash,
            nestmap_version=stored.nestmap_version,
            started_at=stored.started_at,
        )


class MeasurementPage(BaseModel):
    """Measurements in the order in which they were stored, or backwards."""

    items: list[MeasurementDocument]
    next: str | None


class StudyDocument(BaseModel):
    """One search for one program on one state of a device."""

    id: int
    label: str
    variant: str
    mode: str
    seed: int
    program: Hash
    device_id: int = Field(description="The device with one state of its software")
    device_name: str
    created_at: datetime

    @classmethod
    def of(cls, study: Study, device_name: str) -> StudyDocument:
        """The document of a study."""
        return cls(
            id=study.id,
            label=study.label,
            variant=study.variant,
            mode=study.mode,
            seed=study.seed,
            program=study.program_hash,
            device_id=study.device_id,
            device_name=readable(device_name),
            created_at=study.created_at,
        )


class StudyPage(BaseModel):
    """Studies, oldest first."""

    items: list[StudyDocument]
    next: str | None


class FrontPointDocument(BaseModel):
    """A measured candidate that no other beats in both time and memory."""

    time_ms: float
    memory_bytes: int
    candidate: Hash
    measurement: int
    study: int
    program: Hash
    variant: str
    device_name: str
    started_at: datetime

    @classmethod
    def of(cls, point: StudiedPoint, device_name: str) -> FrontPointDocument:
        """The document of a point."""
        return cls(
            time_ms=point.time_ms,
            memory_bytes=point.memory_bytes,
            candidate=point.candidate_id,
            measurement=point.measurement_id,
            study=point.study_id,
            program=point.program_hash,
            variant=point.variant,
            device_name=readable(device_name),
            started_at=point.started_at,
        )


class Front(BaseModel):
    """The front, fastest first, within the bounds asked for.

    `fastest` and `smallest` answer the epsilon-constraint questions: the least time within
    `max_memory_bytes`, the least memory within `max_time_ms`. Of several boards, points count that
    another board of the same kind has confirmed, in any run: neither of the two times is more than
    one and a half times the other.
    """

    points: list[FrontPointDocument]
    unconfirmed: list[FrontPointDocument] = Field(
        description="Across boards: what would be on the front if one board's word were enough"
    )
    fastest: FrontPointDocument | None
    smallest: FrontPointDocument | None
    measured: int = Field(description="Measurements of every kind that were looked at")
    outcomes: dict[str, int]


class BaselineDocument(BaseModel):
    """Another way to compute the layer of a run, by its fastest kernel on the run's device."""

    variant: str
    description: str
    point: FrontPointDocument | None = Field(description="Null where none has been timed yet")
    run: str | None = Field(description="That measured it; null for what was tuned without one")
    time_over_best: float | None = Field(description="Its time over that of the run's best kernel")

    @classmethod
    def of(cls, found: Baseline, device_name: str) -> BaselineDocument:
        """The document of a baseline."""
        point = found.point
        return cls(
            variant=found.variant,
            description=found.description,
            point=None if point is None else FrontPointDocument.of(point, device_name),
            run=found.run_id,
            time_over_best=found.time_over_best,
        )


class BaselinesDocument(BaseModel):
    """The best kernel of a run and what it is held against: measured ones fastest first, then
    those that are still to be measured. None for a program that is no layer."""

    best: FrontPointDocument | None
    baselines: list[BaselineDocument]


class ImprovementDocument(BaseModel):
    """A measurement that beat the best time before it."""

    number: int
    at: datetime
    time_ms: float
    memory_bytes: int
    candidate: Hash

    @classmethod
    def of(cls, found: Improvement) -> ImprovementDocument:
        """The document of an improvement."""
        return cls(
            number=found.number,
            at=found.at,
            time_ms=found.time_ms,
            memory_bytes=found.memory_bytes,
            candidate=found.candidate_id,
        )


class VolumeDocument(BaseModel):
    """The hypervolume after a number of outcomes, in ms times bytes."""

    number: int
    at: datetime
    hypervolume: float

    @classmethod
    def of(cls, found: Volume) -> VolumeDocument:
        """The document of a volume."""
        return cls(number=found.number, at=found.at, hypervolume=found.hypervolume)


class Series(BaseModel):
    """How a search got better with each outcome."""

    improvements: list[ImprovementDocument]
    hypervolume: list[VolumeDocument]
    reference_ms: float
    reference_bytes: float
