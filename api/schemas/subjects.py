"""Layers, programs and kernels that were posted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas.catalogue import LayerFacts
from api.schemas.solving import Hash, Strict
from api.schemas.types import NO_NUL, JsonObject
from mapper.layer_spec import LayerSpec


class LayerDocument(LayerFacts):
    """A posted layer. `id` is the SHA-256 of its canonical JSON, so that equal layers have
    equal ids."""

    id: Hash

    @classmethod
    def of_stored(cls, hash_: str, layer: LayerSpec) -> LayerDocument:
        """The document of a stored layer."""
        return cls(id=hash_, **LayerFacts.of(layer).model_dump())


class LayerPage(BaseModel):
    """Layers, by id."""

    items: list[LayerDocument]
    next: str | None


class ProgramPost(Strict):
    """A program, nest tree or tuning space as JSON, or a program in its text form."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "oneOf": [
                {
                    "required": [name],
                    "properties": {name: {"not": {"type": "null"}}, other: {"type": "null"}},
                }
                for name, other in (("document", "text"), ("text", "document"))
            ]
        },
    )

    document: JsonObject | None = None
    text: (
        Annotated[str, StringConstraints(min_length=1, max_length=500_000, pattern=NO_NUL)] | None
    ) = None


class ProgramDocument(BaseModel):
    """A stored program, nest tree or tuning space."""

    id: Hash = Field(description="SHA-256 of its canonical JSON")
    schema_: str = Field(serialization_alias="schema", description="`nestmap/program/1`, …")
    document: dict[str, Any]


class ProgramSummary(BaseModel):
    """A stored program by its id."""

    id: Hash
    schema_: str = Field(serialization_alias="schema")


class ProgramPage(BaseModel):
    """Programs, by id, without their documents."""

    items: list[ProgramSummary]
    next: str | None


class KernelDocument(BaseModel):
    """OpenCL source and what the host does to run it."""

    model_config = ConfigDict(extra="allow")

    hash: Hash = Field(description="SHA-256 of the canonical JSON of the rest")
    source: str
    plan: dict[str, Any] = Field(description="`nestmap/host-plan/1`: buffers and launches")
    memory: dict[str, int] = Field(description="Global memory in bytes, exact")
    choices: dict[str, Any]
    facts: dict[str, Any]
    assumed: dict[str, Any]
