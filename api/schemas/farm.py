"""Runs, candidates, measurements and fronts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from api.schemas.solving import Seed, StatedFields, Strict, Subject
from api.schemas.types import MAX_WHOLE, NO_NUL, Flag, Number, VariantName, Whole
from db.farm.identifiers import BOARD_PREFIX, RUN_PREFIX
from db.farm.run_records import Run

DEFAULT_CANDIDATES = 100
_LEARNING = ("auto", "guided")
MAX_VARIANTS = 24
MAX_STAND_INS = 255

DeviceId = Annotated[str, StringConstraints(pattern=f"^{BOARD_PREFIX}[0-9a-z]{{26}}$")]
RunId = Annotated[str, StringConstraints(pattern=f"^{RUN_PREFIX}[0-9a-z]{{26}}$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
ProtocolName = Annotated[str, StringConstraints(max_length=64, pattern=NO_NUL)]
Amount = Annotated[Whole, Field(ge=-MAX_WHOLE, le=MAX_WHOLE)]
RunStateName = Literal[
    "queued", "running", "paused", "cancelling", "cancelled", "finished", "failed"
]


def _different(names: list[str]) -> list[str]:
    """Two studies of one variant would measure the same."""
    if len(set(names)) < len(names):
        raise ValueError("one is named twice")
    return names


class Budget(Strict):
    """When a run ends; without either it goes on until the space is exhausted."""

    candidates: Whole | None = Field(default=None, ge=1, le=MAX_WHOLE)
    seconds: Number | None = Field(default=None, gt=0.001, le=366 * 86_400)


class RunRequest(StatedFields):
    """Tune a layer or program on a device. `where` speaks of the names of one variant, so that a
    layer's is to be named."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "device": "dev_01kafz3v9m3t4w5x6y7z8a9b0c",
                    "subject": {"name": "vgg16/7"},
                    "variants": ["direct"],
                    "budget": {"candidates": 100},
                }
            ]
        },
    )

    device: DeviceId
    stand_ins: Annotated[list[DeviceId], Field(max_length=MAX_STAND_INS)] = Field(
        default=[],
        description="Devices of the same profile that measure candidates of this run too, when "
        "they have nothing else to do: the run goes on when a device is lost",
    )
    subject: Subject
    variants: (
        Annotated[
            list[VariantName],
            Field(min_length=1, max_length=MAX_VARIANTS, json_schema_extra={"uniqueItems": True}),
            AfterValidator(_different),
        ]
        | None
    ) = Field(
        default=None,
        description="A layer's variants or a program's sketches, each a study of its own; if "
        "absent the sketches; of a layer with `pin`, `forbid` or `where`, or in paper mode, "
        "`direct` and `partial`",
    )
    mode: Literal["strict", "paper"] = "strict"
    strategy: Literal["auto", "guided", "analytic", "random"] = Field(
        default="auto",
        description="How candidates are chosen: by models that learn from the outcomes "
        "(`guided`, which `auto` is), by the predictions of the analytic model alone "
        "(`analytic`), or at random",
    )
    transfer: Flag = Field(
        default=False,
        description="`guided` and `auto` only: learn first from what runs on the device that had "
        "ended before measured of other layers; a run without any such fails",
    )
    seed: Seed = 0
    protocol: Annotated[dict[ProtocolName, Amount | Number], Field(max_length=20)] | None = Field(
        default=None, description="How a candidate is measured: `warmup`, `repetitions`, …"
    )
    budget: Budget = Budget(candidates=DEFAULT_CANDIDATES)
    label: Label | None = Field(default=None, description="The subject's name unless given")
    priority: Whole = Field(
        default=0,
        ge=-100,
        le=100,
        description="Runs of one priority take turns by their owners; higher ones come before all "
        "of these, so that only admins ask for more than 0. Below 0: after the runs of others",
    )
    low_water: Whole = Field(
        default=4, ge=1, le=1_000, description="More are proposed when fewer wait"
    )

    @field_validator("transfer")
    @classmethod
    def _for_what_learns(cls, transfer: bool, info: ValidationInfo) -> bool:
        if transfer and info.data.get("strategy", "auto") not in _LEARNING:
            raise ValueError(f"only the strategies {' and '.join(_LEARNING)} learn")
        return transfer

    def for_proposers(self, subject: dict[str, Any]) -> dict[str, Any]:
        """What is kept with the run for whoever proposes its candidates; ``subject`` is the
        resolved one (nestmap/tasks/run_requests.py reads it)."""
        fields = self.model_dump(
            include={"variants", "mode", "strategy", "seed", "protocol"}, exclude_none=True
        )
        if self.transfer:
            fields["transfer"] = True
        if self.stand_ins:
            fields["stand_ins"] = self.stand_ins
        return {"subject": subject, **fields, **self.stated()}


class RunProgress(BaseModel):
    """How far a run is."""

    proposed: int
    measured: int
    lost: int = Field(description="Candidates whose jobs failed three times")
    outcomes: dict[str, int]
    best_ms: float | None
    best_memory_bytes: int | None
    best_candidate: str | None
    active_s: float


class RunDocument(BaseModel):
    """A tuning run."""

    id: str
    device: str
    stand_ins: list[str]
    label: str
    owner: str = Field(description="The token that made it: it and admins pause, resume, cancel")
    state: RunStateName
    reason: str
    request: dict[str, Any]
    priority: int
    budget: Budget
    exhausted: bool
    progress: RunProgress
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, run: Run) -> RunDocument:
        """The document of a run."""
        progress = run.progress
        return cls(
            id=run.id,
            device=run.board_id,
            stand_ins=list(run.request.get("stand_ins", [])),
            label=run.label,
            owner=run.principal,
            state=run.state.value,
            reason=run.reason,
            request=dict(run.request),
            priority=run.priority,
            budget=Budget(candidates=run.budget_candidates, seconds=run.budget_seconds),
            exhausted=run.exhausted,
            progress=RunProgress(
                proposed=progress.proposed,
                measured=progress.measured,
                lost=progress.lost,
                outcomes=dict(progress.outcomes),
                best_ms=progress.best_ms,
                best_memory_bytes=progress.best_memory_bytes,
                best_candidate=progress.best_candidate_id,
                active_s=progress.active_s,
            ),
            created_at=run.created_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
        )


class RunPage(BaseModel):
    """Runs, newest first."""

    items: list[RunDocument]
    next: str | None
