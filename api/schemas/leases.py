"""The lease protocol `nestmap/lease/1` (docs/decisions/0015): what boards send and get."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from api.schemas.solving import Strict
from api.schemas.types import MAX_WHOLE, NO_NUL, JsonObject, Number, ProfileName, Timestamp, Whole

MAX_TRIALS = 100_000
MAX_MESSAGE = 20_000
MAX_LOG = 100_000
#: A day.
MAX_COMPILE_MS = 86_400_000
MAX_TIMEOUT_S = 86_400

Facts = JsonObject
Text = Annotated[str, StringConstraints(pattern=NO_NUL)]
Version = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NO_NUL)]
LeaseToken = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=NO_NUL)]
Attempt = Annotated[Whole, Field(ge=0, lt=2**31)]
Message = Annotated[str, StringConstraints(max_length=MAX_MESSAGE, pattern=NO_NUL)]
#: JSON has no NaN and no infinity: they come by name.
Real = Number | Literal["nan", "inf", "-inf"]


class Open(BaseModel):
    """A body of the protocol: an agent of another release may send more than is known."""

    model_config = ConfigDict(extra="ignore")


class LeaseRequest(Open):
    """A board asks for work."""

    protocol: Literal[1]
    agent_version: Version
    facts: Facts | None = Field(default=None, description="Left as they were if absent")
    health: Facts | None = None


class LeasedJob(BaseModel):
    """A job for the board. The first lease is short, until the first heartbeat."""

    job: str
    attempt: int
    lease_token: str
    lease_s: float
    deadline_s: float = Field(description="Seconds that the job may take in all")
    payload: dict[str, Any] = Field(description="`nestmap/measure-job/1`")


class HeartbeatRequest(Open):
    """The board is at work."""

    attempt: Attempt
    lease_token: LeaseToken
    stage: Annotated[str, StringConstraints(max_length=200, pattern=NO_NUL)] = ""


class HeartbeatAnswer(BaseModel):
    """For how long the lease is held; with `cancel` nobody wants the result any more, and the lease
    ends when it would have without this call."""

    lease_s: float
    cancel: bool


class TimedDetail(Open):
    """What a timed outcome carries besides its trials. What was right has an error that is a
    number, and no compiler takes a day."""

    max_relative_error: Annotated[Number, Field(ge=0, le=1)]
    compile_ms: Annotated[Number, Field(ge=0, le=MAX_COMPILE_MS)]
    facts: dict[Text, Text] = {}


class TimedOutcome(Open):
    """The candidate ran and was right; trials are nanoseconds on the device, in order, summed over
    the launches. Nothing takes no time. Spans are first start to last end of the same trials; an
    older agent sends none. Together they take no longer than the attempt may. Of more than 1,000,
    that many are kept, evenly spread."""

    kind: Literal["timed"]
    detail: TimedDetail
    trials_ns: Annotated[
        list[Annotated[Whole, Field(ge=1, le=MAX_WHOLE)]],
        Field(min_length=1, max_length=MAX_TRIALS),
    ]
    spans_ns: Annotated[
        list[Annotated[Whole, Field(ge=1, le=MAX_WHOLE)]],
        Field(max_length=MAX_TRIALS, description="None, or as many as trials"),
    ] = []

    @field_validator("spans_ns")
    @classmethod
    def _as_many_as_trials(cls, spans: list[int], about: ValidationInfo) -> list[int]:
        trials = about.data.get("trials_ns")
        if spans and trials is not None and len(spans) != len(trials):
            raise ValueError(f"{len(spans)} spans of {len(trials)} trials")
        return spans


class WrongDetail(Open):
    """Where and by how much a result is not the reference's."""

    max_relative_error: Real
    first_bad_index: Annotated[
        list[Annotated[Whole, Field(ge=0, le=MAX_WHOLE)]], Field(max_length=16)
    ]
    message: Message


class WrongOutcome(Open):
    """The candidate ran and its output is wrong."""

    kind: Literal["wrong"]
    detail: WrongDetail


class MessageDetail(Open):
    """What the driver said."""

    message: Message


class RefusedOutcome(Open):
    """The driver refused the source, or had not enough of something."""

    kind: Literal["compile-error", "resource-error"]
    detail: MessageDetail


class TimeoutDetail(Open):
    """After how long the candidate was killed."""

    after_s: Annotated[Number, Field(ge=0, le=MAX_TIMEOUT_S)]


class TimeoutOutcome(Open):
    """The candidate was killed at its deadline."""

    kind: Literal["timeout"]
    detail: TimeoutDetail


class CrashDetail(Open):
    """How the measuring process died; a negative code is a signal."""

    exit_code: Annotated[Whole, Field(ge=-(2**31), lt=2**31)]
    message: Message


class CrashOutcome(Open):
    """The measuring process died."""

    kind: Literal["crash"]
    detail: CrashDetail


OutcomeBody = Annotated[
    TimedOutcome | WrongOutcome | RefusedOutcome | TimeoutOutcome | CrashOutcome,
    Field(discriminator="kind"),
]


class ResultRequest(Open):
    """What came of a job."""

    attempt: Attempt
    lease_token: LeaseToken
    outcome: OutcomeBody
    facts: Facts = {}
    started_at: Timestamp | None = None
    agent_log: Annotated[str, StringConstraints(max_length=MAX_LOG, pattern=NO_NUL)] = ""


class ResultAnswer(BaseModel):
    """Whether it was stored; a repeat of the same attempt changes nothing."""

    stored: bool


class ReleaseRequest(Open):
    """The board gives a job back without a result."""

    attempt: Attempt
    lease_token: LeaseToken
    reason: Annotated[str, StringConstraints(max_length=2_000, pattern=NO_NUL)] = ""


class ReleaseAnswer(BaseModel):
    """What became of the job."""

    state: Literal["queued", "failed", "cancelled", "done"]


class HealthRequest(Open):
    """How the device is; whatever else is sent is kept with it (temperatures, clocks)."""

    model_config = ConfigDict(extra="allow")

    state: Literal["healthy", "quarantined"]
    reason: Annotated[str, StringConstraints(max_length=2_000, pattern=NO_NUL)] = ""
    facts: Facts | None = None


class EnrolRequest(Open):
    """A board comes in with the code that an admin gave it."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NO_NUL)]
    name: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
    agent_version: Version
    facts: Facts = {}


class EnrolAnswer(BaseModel):
    """The device's id and its token, which is shown this once."""

    device: str
    token: str


class CodeRequest(Strict):
    """A one-time code for one board."""

    profile: ProfileName | None = Field(
        default=None, description="A shipped profile whose limits hold for the board"
    )
    valid_s: Number = Field(default=3_600, ge=1, le=30 * 86_400)


class CodeAnswer(BaseModel):
    """The code, shown this once."""

    code: str
    expires_at: datetime
