"""Questions about mappings, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from api.paging import DEFAULT_PAGE, MAPPINGS_CURSOR, MAX_PAGE
from api.schemas.types import (
    MAX_WHOLE,
    NO_NUL,
    Flag,
    JsonObject,
    LayerName,
    Number,
    ProfileName,
    VariantName,
    Whole,
)
from mapper.tuning_space.language import MAX_CHARACTERS
from mapper.tuning_space.where import MAX_WHERE

MAX_SAMPLE = 10_000
MAX_BEST = 1_000
MAX_STREAM = 10_000_000

Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Restriction = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=NO_NUL)]
Restrictions = Annotated[list[Restriction], Field(max_length=1_000)]
SuitName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
Expression = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS, pattern=NO_NUL)
]
Cursor = Annotated[str, StringConstraints(pattern=MAPPINGS_CURSOR)]
Seed = Annotated[Whole, Field(ge=0, le=MAX_WHOLE)]
Nanoseconds = Annotated[Number, Field(ge=0, le=1e9)]


class Strict(BaseModel):
    """A body: fields that it does not know are refused, not overlooked."""

    model_config = ConfigDict(extra="forbid")


class NamedSubject(Strict):
    """A named layer."""

    name: LayerName = Field(examples=["vgg16/7"])


class StoredSubject(Strict):
    """A layer or program that was posted, by its id."""

    id: Hash


class DocumentSubject(Strict):
    """A layer, program, nest tree or tuning space as JSON (docs/layers.md, docs/programs.md)."""

    document: JsonObject


class TextSubject(Strict):
    """A program in its text form."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=500_000, pattern=NO_NUL)]


def _form(value: Any) -> str | None:
    """Which of the forms a value has, by its field, so that problems are of one form only."""
    if isinstance(value, dict):
        return next(
            (f"({name})" for name in ("name", "id", "document", "text") if name in value), None
        )
    return {NamedSubject: "(name)", StoredSubject: "(id)", DocumentSubject: "(document)",
            TextSubject: "(text)"}.get(type(value))  # fmt: skip


Subject = Annotated[
    Annotated[NamedSubject, Tag("(name)")]
    | Annotated[StoredSubject, Tag("(id)")]
    | Annotated[DocumentSubject, Tag("(document)")]
    | Annotated[TextSubject, Tag("(text)")],
    Discriminator(
        _form,
        custom_error_type="subject",
        custom_error_message="a subject has one of the fields name, id, document, text",
    ),
]


def _limits_form(value: Any) -> str:
    return "(object)" if isinstance(value, dict) else "(profile)"


Limits = Annotated[
    Annotated[ProfileName, Tag("(profile)")] | Annotated[JsonObject, Tag("(object)")],
    Discriminator(_limits_form),
]


class OfSubject(Strict):
    """What is asked about."""

    subject: Subject
    variant: VariantName | None = Field(
        default=None, description="Of a layer (/v1/variants), or a sketch"
    )
    time_limit_s: Number | None = Field(
        default=None, gt=0, le=86_400, description="For solving; the service has a bound of its own"
    )


class StatedFields(Strict):
    """What is stated of a space beside its subject, device and mode."""

    suits: list[SuitName] = Field(
        default=[], max_length=100,
        description="What suits the device is to hold as well: ids of such rules, `all`, or a text "
        "such as `all,-suits-whole-warps`",
    )  # fmt: skip
    sequential_fusion: Flag = Field(
        default=True, description="Of two sequential maps in a perfect run one is fused"
    )
    replicate_private: Flag = Field(
        default=False,
        description="What writes private memory alone may be run by every work-item",
    )
    free_grid: Flag = Field(
        default=False,
        description="Admit launches that the paper's rules (4) to (6) exclude though they run "
        "right",
    )
    where: list[Expression] = Field(
        default=[], max_length=MAX_WHERE,
        description="Constraints of your own over parameters, `code(MAP)` and "
        "`local_size(KERNEL, 0)`: `kappa * sigma <= 32`, `code(row) in [W0, W1]`",
    )  # fmt: skip

    def stated(self) -> dict[str, Any]:
        """The fields that say something."""
        known = StatedFields.model_fields
        return {
            name: getattr(self, name)
            for name, field in known.items()
            if getattr(self, name) != field.default
        }


class About(StatedFields, OfSubject):
    """What is asked about, and what of it is wanted."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"subject": {"name": "vgg16/7"}, "variant": "direct"}]},
    )

    variant: VariantName | None = Field(
        default=None,
        description="Of a layer (/v1/variants lists them), or a program's sketch. Where absent "
        "`direct` if it does the layer, else `high-level`, and a program as it is written",
    )
    mode: Literal["strict", "paper"] = Field(
        default="strict",
        description="The rules without the holes of the printed ones, or as printed",
    )
    device: Limits = Field(
        default="pocl",
        description="Whose limits hold: a profile by name, or an object with the fields of one "
        "(/v1/profiles lists both)",
    )


class RestrictedAbout(About):
    """What is asked about, and which values are left of it."""

    pin: Restrictions = Field(
        default=[], description="Only this value, or any of several: `28=W0`, `theta=4,8`"
    )
    forbid: Restrictions = Field(default=[], description="None of these values: `28=G0,G1,G2`")


class WaterfallQuery(About):
    """How many are left after each rule."""

    joint: Flag = Field(default=False, description="Count mappings with parameters and local sizes")


class ListedAbout(RestrictedAbout):
    """What is asked about, and what of it is listed."""

    joint: Flag = Field(
        default=False,
        description="Every combination of a mapping with parameters and local sizes, not each "
        "mapping once",
    )
    up_to_symmetry: Flag = Field(
        default=False, description="Of mappings that differ by permuted dimensions, one"
    )


class MappingsQuery(ListedAbout):
    """A page, or a stream, of the valid mappings."""

    prefer: Restrictions = Field(
        default=[], description="First what meets these best, perhaps with weights: `28=W0:3,W1`"
    )
    limit: Whole = Field(default=DEFAULT_PAGE, ge=1, le=MAX_PAGE)
    cursor: Cursor | None = Field(default=None, description="`next` of the page before")


class StreamQuery(ListedAbout):
    """All valid mappings, or the first `limit`."""

    prefer: Restrictions = []
    limit: Whole | None = Field(default=None, ge=1, le=MAX_STREAM)


class CountQuery(RestrictedAbout):
    """How many there are."""

    joint: Flag = Field(default=False, description="Count mappings with parameters and local sizes")
    stratify: Flag = Field(default=False, description="And for each set of dimensions used")
    up_to_symmetry: Flag = Field(
        default=False, description="Of mappings that differ by permuted dimensions, one"
    )


class SampleQuery(RestrictedAbout):
    """Some, each equally likely."""

    number: Whole = Field(default=10, ge=1, le=MAX_SAMPLE)
    seed: Seed = 0
    joint: Flag = Field(
        default=False, description="Each assignment equally likely, not each mapping"
    )
    stratify: Flag = Field(
        default=False, description="Equally many for each set of dimensions used"
    )
    up_to_symmetry: Flag = False


class ModelConstants(Strict):
    """The analytic model's: nanoseconds for one of each, and work-items that run at once."""

    launches: Nanoseconds
    waves: Nanoseconds
    operations: Nanoseconds
    private_accesses: Nanoseconds
    spilled: Nanoseconds
    local_bytes: Nanoseconds
    global_bytes: Nanoseconds
    lanes: Whole = Field(ge=1, le=65_536)


class BestQuery(RestrictedAbout):
    """Those that are predicted to be fastest."""

    number: Whole = Field(default=10, ge=1, le=MAX_BEST)
    seed: Seed = 0
    constants: ModelConstants | None = Field(
        default=None,
        description="Of a device, as `nestmap devices calibrate` fits them; without, those of none "
        "in particular",
    )


class CheckQuery(RestrictedAbout):
    """Is this mapping valid?"""

    mapping: JsonObject = Field(
        description="What a page has: `mapping`, and perhaps `parameters` and `local_sizes`"
    )
    nearest: Flag = Field(
        default=True, description="Look for the valid mapping with the fewest changes"
    )


class KernelQuery(RestrictedAbout):
    """The kernels of a mapping; without one, of a drawn one."""

    prefer: Restrictions = []
    mapping: JsonObject | None = None
    seed: Seed = 0


class ConstraintDocument(BaseModel):
    """One instance of a rule, with where it comes from."""

    id: str
    rule: str
    subjects: list[str | int]
    buffer: str | None
    predicate: str
    provenance: str
    sentence: str
    remedy: str


class MappingDocument(BaseModel):
    """A valid mapping: each map's code, tuning parameters, local sizes of each kernel."""

    model_config = ConfigDict(extra="allow")

    number: int | None = Field(default=None, description="Its place in the list, from 1")
    mapping: dict[str, int] | None = Field(
        default=None, examples=[{"row": 20, "column": 10, "filter": 0}]
    )
    parameters: dict[str, Any] | None = None
    local_sizes: dict[str, list[int]] | None = None


class OfVariant(BaseModel):
    """An answer about a layer says in which variant."""

    variant: str | None = Field(default=None, description="Of a layer: how it is computed")
    variant_reason: str | None = Field(
        default=None, description="Why this variant: `as asked for`, or what chose it"
    )


class MappingsPage(OfVariant):
    """Some of the valid mappings. `next` is null on the last page."""

    items: list[MappingDocument]
    next: str | None
    of: str = Field(description="`mappings`, each once, or `assignments`")


class Sample(OfVariant):
    """Different valid mappings; fewer than asked for where there are no more."""

    items: list[MappingDocument]
    count: int
    of: str
    seed: int
    not_uniform: str | None = Field(
        default=None, description="Why they are diverse and not equally likely, where they are"
    )


class PredictedMapping(MappingDocument):
    """A valid mapping, and how long the analytic model predicts it to take."""

    predicted_ms: float


class BestPredicted(OfVariant):
    """The mappings that are predicted to be fastest, these first."""

    items: list[PredictedMapping]
    count: int
    bound_ms: float | None = Field(
        description="No valid mapping is predicted below it; null where there are no `items`"
    )
    gap: float = Field(description="How much faster than the first another may be, as a part of 1")
    proved: bool = Field(
        description="No other is predicted to be more than 1 % faster than any of these; else "
        "time was over: they are the best so far"
    )
    predicted: int = Field(description="How many were predicted one by one")
    seed: int


class Count(OfVariant):
    """`count` where it is complete, else `at_least`."""

    count: int | None = None
    at_least: int | None = None
    complete: bool
    of: str
    mode: str
    by_dimensions: dict[str, int] | None = None
    constraints: dict[str, int]
    preferences: dict[str, int]
    table4: dict[str, int] | None = None


class WaterfallStep(BaseModel):
    """One rule: how many there were before it and are after it; null where time was over."""

    rule: str
    constraints: int
    before: int | None
    after: int | None


class Waterfall(OfVariant):
    """The rules in the order in which they are applied."""

    steps: list[WaterfallStep]
    of: str
    complete: bool


class VariableDocument(BaseModel):
    """One choice of a mapping, with the values that it may take."""

    name: str
    kind: str
    values: list[Any]


class SubjectDescription(BaseModel):
    """What a subject is."""

    model_config = ConfigDict(extra="allow")

    label: str
    variant: str | None
    variant_reason: str | None = None
    hash: str
    document: dict[str, Any]
    kernels: list[dict[str, Any]]
    variables: list[VariableDocument]
    has_kernels: bool


class ConstraintList(OfVariant):
    """Every constraint of a space, and how many there are by rule."""

    constraints: list[ConstraintDocument]
    counts: dict[str, Any]


class ViolationDocument(BaseModel):
    """A constraint that a mapping breaks."""

    model_config = ConfigDict(extra="allow")

    rule: str
    maps: list[str | int]
    buffer: str | None
    sentence: str
    remedy: str
    constraint: str | None


class Verdict(OfVariant):
    """Whether a mapping is valid, what it breaks, and the nearest one that is."""

    model_config = ConfigDict(extra="allow")

    valid: bool
    violations: list[ViolationDocument]
    preferences: list[ViolationDocument] = Field(
        default=[],
        description="What it breaks of rules that keep no wrong program out: it is "
        "valid all the same",
    )
    assumed: dict[str, Any]
    nearest: dict[str, Any] | None = None
    conflict: dict[str, Any] | None = None


class Conflict(OfVariant):
    """Whether nothing is left, and what cannot hold together."""

    empty: bool
    conflict: dict[str, Any] | None
