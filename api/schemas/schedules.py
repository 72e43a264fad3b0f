"""Programs rewritten by schedules, and the schedules worth having."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from api.schemas.solving import Limits, OfSubject
from api.schemas.types import NO_NUL, Flag, JsonObject
from mapper.schedules.schedule_text import MAX_CHARACTERS

ScheduleText = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS, pattern=NO_NUL)
]


def _form(value: Any) -> str:
    return "(object)" if isinstance(value, dict) else "(text)"


ScheduleValue = Annotated[
    Annotated[ScheduleText, Tag("(text)")] | Annotated[JsonObject, Tag("(object)")],
    Discriminator(_form),
]
_EXAMPLE = {
    "subject": {"name": "vgg16/7"},
    "schedule": 'schedule "tiles" { split(row, 4) split(column, 8) }',
}


class DeriveQuery(OfSubject):
    """A program and what is done to it; a layer is its `high-level` variant unless one is named."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    schedule: ScheduleValue = Field(
        description="As text, or a document `nestmap/schedule/1` (docs/programs.md)"
    )
    partial: Flag = Field(
        default=False,
        description="Where a step does not apply answer those before it, and why in `refusal`; "
        "else that refuses the whole",
    )


class SketchesQuery(OfSubject):
    """A program and the device that its schedules are for."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"subject": {"name": "vgg16/7"}}]}
    )

    device: Limits = Field(
        default="pocl", description="A profile by name, or an object with the fields of one"
    )


class DerivationStep(BaseModel):
    """A use of a primitive: what it asks of parameters, and the program after it."""

    step: int
    use: str = Field(examples=["split(row, 4)"])
    parameters: dict[str, list[int]] = Field(description="The new ones, with their values")
    constraints: list[str] = Field(description="The new ones")
    loops: str = Field(description="Its maps, reduces and buffers with their lengths, a line each")
    text: str = Field(description="The program after the step, in its text form")


class StepRefusal(BaseModel):
    """Why a step does not apply."""

    step: int
    target: str
    message: str
    found: str
    allowed: str
    remedy: str


class Derivation(BaseModel):
    """A program after each step of a schedule."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["nestmap/derivation/1"] = Field(alias="schema")
    schedule: dict[str, Any] = Field(description="As `nestmap/schedule/1`")
    start: str = Field(description="The program before the first step, in its text form")
    start_loops: str = Field(description="Its maps, reduces and buffers")
    steps: list[DerivationStep]
    program: dict[str, Any] = Field(description="The last one, as `nestmap/program/1`")
    refusal: StepRefusal | None


class SketchDocument(BaseModel):
    """A schedule with open sizes, and why it is worth having."""

    name: str
    reason: str
    steps: int
    parameters: dict[str, list[int]]
    schedule: dict[str, Any] = Field(description="As `nestmap/schedule/1`")
    text: str = Field(description="The schedule in its text form")


class SketchList(BaseModel):
    """The schedules worth having of a program on a device."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["nestmap/sketches/1"] = Field(alias="schema")
    items: list[SketchDocument]
    count: int
