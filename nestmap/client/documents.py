"""What the service answers, typed: the shapes of docs/openapi.json that the client reads.

Names and fields are those of the document, times are texts (RFC 3339). Answers may have more
fields than these: they are kept.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

# pydantic wants this one before Python 3.12
from typing_extensions import TypedDict


class ConstraintDocument(TypedDict):
    """One instance of a rule, with where it comes from."""

    id: str
    rule: str
    subjects: list[str | int]
    buffer: str | None
    predicate: str
    provenance: str
    sentence: str
    remedy: str


class ConstraintCounts(TypedDict):
    """How many instances of each rule there are, preferences apart."""

    constraints: dict[str, int]
    preferences: dict[str, int]


class ConstraintList(TypedDict):
    """Every constraint of a space, and how many there are by rule."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    constraints: list[ConstraintDocument]
    counts: ConstraintCounts


#: ``mapping`` (map to code), ``parameters``, ``local_sizes``; of a tuning space its parameters.
MappingDocument = dict[str, Any]


class StreamEnd(TypedDict):
    """The last line of a stream; ``next`` is null where there are no more."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    count: int
    next: int | None
    of: str


class Sample(TypedDict):
    """Different valid mappings; ``not_uniform`` says why they are not equally likely."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    items: list[MappingDocument]
    count: int
    of: str
    seed: int
    not_uniform: NotRequired[str | None]


class BestPredicted(TypedDict):
    """Valid mappings with ``predicted_ms``, fastest first; none is predicted below ``bound_ms``."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    items: list[MappingDocument]
    count: int
    bound_ms: float | None
    gap: float
    proved: bool
    predicted: int
    seed: int


class Count(TypedDict):
    """``count`` where it is complete, else ``at_least``."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    count: NotRequired[int | None]
    at_least: NotRequired[int | None]
    complete: bool
    of: str
    mode: str
    by_dimensions: NotRequired[dict[str, int] | None]
    constraints: dict[str, int]
    preferences: dict[str, int]
    table4: NotRequired[dict[str, int] | None]


class WaterfallStep(TypedDict):
    """One rule: how many there were before it and are after it."""

    rule: str
    constraints: int
    before: int | None
    after: int | None


class Waterfall(TypedDict):
    """The rules in the order in which they are applied."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    steps: list[WaterfallStep]
    of: str
    complete: bool


class VariableDocument(TypedDict):
    """One choice of a mapping, with the values that it may take."""

    name: str
    kind: str
    values: list[Any]


class SubjectDescription(TypedDict):
    """What a subject is."""

    label: str
    variant: str | None
    hash: str
    document: dict[str, Any]
    kernels: list[dict[str, Any]]
    variables: list[VariableDocument]
    has_kernels: bool


class ViolationDocument(TypedDict):
    """A constraint that a mapping breaks."""

    rule: str
    maps: list[str | int]
    buffer: str | None
    sentence: str
    remedy: str
    constraint: str | None


class ConflictPart(TypedDict):
    """A constraint, restriction or domain of a conflict."""

    kind: str
    rule: str
    maps: list[str | int]
    buffer: str | None
    sentence: str
    remedy: str


class ConflictParts(TypedDict):
    """What cannot hold together; ``minimal``: without any one of the parts the others can."""

    minimal: bool
    parts: list[ConflictPart]


Change = TypedDict(
    "Change",
    {"what": str, "name": str, "from": int | str, "to": int | str, "sentence": str},
)


class Nearest(TypedDict):
    """The valid mapping with the fewest changes; ``proven``: fewer would not do."""

    assignment: dict[str, Any]
    proven: bool
    changes: list[Change]


class Verdict(TypedDict):
    """Whether a mapping is valid, what it breaks, and the nearest one that is."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    valid: bool
    violations: list[ViolationDocument]
    preferences: NotRequired[list[ViolationDocument]]
    assumed: dict[str, Any]
    nearest: NotRequired[Nearest | None]
    nearest_limit: NotRequired[str | None]
    conflict: NotRequired[ConflictParts | None]
    completion_conflict: NotRequired[ConflictParts | None]


class Conflict(TypedDict):
    """Whether nothing is left, and what cannot hold together."""

    variant: NotRequired[str | None]
    variant_reason: NotRequired[str | None]
    empty: bool
    conflict: ConflictParts | None


class KernelDocument(TypedDict):
    """OpenCL source and what the host does to run it; ``memory`` is bytes, exact."""

    hash: str
    source: str
    plan: dict[str, Any]
    memory: dict[str, int]
    choices: dict[str, Any]
    facts: dict[str, Any]
    assumed: dict[str, Any]


class Operation(TypedDict):
    """Work under way or done; ``result`` is what the route would have answered with 200."""

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    created_at: str
    ended_at: str | None
    result: dict[str, Any] | None
    problem: dict[str, Any] | None


class LayerDocument(TypedDict):
    """A stored layer; its ``id`` is a subject: ``{"id": …}``."""

    id: str
    name: str
    layer: dict[str, Any]
    image_shape: list[int]
    weights_shape: list[int]
    output_shape: list[int]
    operations: int


class ProgramDocument(TypedDict):
    id: str
    schema: str
    document: dict[str, Any]


class ProfileDocument(TypedDict):
    """The limits of a device. Sizes are bytes."""

    name: str
    source: str
    max_work_group_size: int
    max_work_item_sizes: list[int]
    local_bytes: int
    private_bytes: int
    kernel_private_bytes: int | None
    max_alloc_bytes: int
    global_bytes: int
    compute_units: int
    vector_widths: list[int]
    half_precision: bool
    target: str
    lanes: int | None
    vector_registers: int | None
    vector_bytes: int | None
    local_memory: str


class StrikeDocument(TypedDict):
    """An admin's word that measurements of a device do not count."""

    id: int
    device: str
    since: str | None
    until: str | None
    reason: str
    by: str
    measurements: int
    created_at: str
    lifted_at: str | None
    lifted_by: str


class DeviceDocument(TypedDict):
    """A board or host that an agent serves."""

    id: str
    name: str
    profile: str | None
    state: Literal["active", "quarantined", "disabled"]
    reason: str
    state_by: str
    agent_version: str
    facts: dict[str, Any]
    health: dict[str, Any]
    created_at: str
    last_seen: str | None


class CodeAnswer(TypedDict):
    """A one-time code for a board."""

    code: str
    expires_at: str


class Budget(TypedDict, total=False):
    """When a run ends."""

    candidates: int | None
    seconds: float | None


class RunProgress(TypedDict):
    """How far a run is."""

    proposed: int
    measured: int
    lost: int
    outcomes: dict[str, int]
    best_ms: float | None
    best_memory_bytes: int | None
    best_candidate: str | None
    active_s: float


class RunDocument(TypedDict):
    """A tuning run."""

    id: str
    device: str
    stand_ins: list[str]
    label: str
    owner: str
    state: Literal["queued", "running", "paused", "cancelling", "cancelled", "finished", "failed"]
    reason: str
    request: dict[str, Any]
    priority: int
    budget: Budget
    exhausted: bool
    progress: RunProgress
    created_at: str
    started_at: str | None
    ended_at: str | None


class MeasuredEvent(TypedDict):
    """What an event ``measured`` of a run says."""

    study: int
    candidate: str
    outcome: Literal["timed", "wrong", "compile-error", "resource-error", "timeout", "crash"]
    time_ms: float | None
    memory_bytes: int


class ImprovementDocument(TypedDict):
    """A measurement that beat the best time before it."""

    number: int
    at: str
    time_ms: float
    memory_bytes: int
    candidate: str


class VolumeDocument(TypedDict):
    """The hypervolume after a number of outcomes, in ms times bytes."""

    number: int
    at: str
    hypervolume: float


class Series(TypedDict):
    """How a search got better with each outcome."""

    improvements: list[ImprovementDocument]
    hypervolume: list[VolumeDocument]
    reference_ms: float
    reference_bytes: float


class CandidateDocument(TypedDict):
    """What was chosen, and all that is needed to build it again."""

    id: str
    program: str
    parameters: dict[str, Any]
    mapping: Any
    local_sizes: Any
    source_hash: str
    memory_bytes: int
    nestmap_version: str


class MeasurementDocument(TypedDict):
    """One candidate's outcome in one study."""

    id: int
    study: int
    run: str | None
    device: str | None
    device_name: str
    program: str
    variant: str
    mode: str
    candidate: str
    outcome: str
    time_ms: float | None
    span_ms: float | None
    memory_bytes: int
    trials_ns: list[int] | None
    spans_ns: list[int] | None
    detail: dict[str, Any]
    source_hash: str
    nestmap_version: str
    started_at: str


class FrontPointDocument(TypedDict):
    """A measured candidate that no other beats in both time and memory."""

    time_ms: float
    memory_bytes: int
    candidate: str
    measurement: int
    study: int
    program: str
    variant: str
    device_name: str
    started_at: str


class Front(TypedDict):
    """The front, fastest first, within the bounds asked for."""

    points: list[FrontPointDocument]
    unconfirmed: list[FrontPointDocument]
    fastest: FrontPointDocument | None
    smallest: FrontPointDocument | None
    measured: int
    outcomes: dict[str, int]


class BaselineDocument(TypedDict):
    """Another way to compute the layer of a run, by its fastest kernel on the run's device."""

    variant: str
    description: str
    point: FrontPointDocument | None
    run: str | None
    time_over_best: float | None


class BaselinesDocument(TypedDict):
    """The best kernel of a run and what it is held against."""

    best: FrontPointDocument | None
    baselines: list[BaselineDocument]


class StudyDocument(TypedDict):
    """One search for one program on one state of a device."""

    id: int
    label: str
    variant: str
    mode: str
    seed: int
    program: str
    device_id: int
    device_name: str
    created_at: str


class Version(TypedDict):
    """What runs there."""

    nestmap: str
    api: str
    lease_protocol: int


class Page(TypedDict):
    """Some of a list; ``next`` is the cursor of what follows."""

    items: list[dict[str, Any]]
    next: str | None
