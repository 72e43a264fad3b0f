"""Which measurements a request means: its query parameters as a selection of the store."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.layer_programs import programs_of
from api.schemas.farm import DeviceId, Label, RunId
from api.schemas.solving import Hash
from api.schemas.types import MAX_WHOLE, LayerName, Timestamp
from db.farm.selection import Selection
from mapper.layer_sets import layer_of_name
from mapper.measurement import OUTCOME_KINDS

_Outcome = Annotated[str, StringConstraints(pattern=f"^({'|'.join(OUTCOME_KINDS)})$")]
_RowId = Annotated[int, Field(ge=0, le=MAX_WHOLE)]


class Filters(BaseModel):
    """Query parameters; measurements meet all that are given."""

    model_config = ConfigDict(extra="forbid")

    run: RunId | None = None
    study: _RowId | None = None
    device: DeviceId | None = None
    layer: LayerName | None = Field(
        default=None, description="A named layer: all of its variants and sketches (`vgg16/7`)"
    )
    program: Hash | None = Field(default=None, description="A program, also under schedules")
    candidate: Hash | None = Field(default=None, description="One candidate, in any study")
    label: Label | None = Field(default=None, description="Of a run, or of a study without one")
    mode: Annotated[str, StringConstraints(pattern="^(strict|paper)$")] | None = None
    outcome: _Outcome | None = None
    since: Timestamp | None = Field(default=None, description="RFC 3339, with its zone")
    until: Timestamp | None = None

    def selection(self) -> Selection:
        """The selection of the store; blocking for a layer."""
        programs = None
        if self.layer is not None:
            programs = frozenset(programs_of(layer_of_name(self.layer)).values())
        return Selection(
            study_ids=None if self.study is None else frozenset({self.study}),
            run_id=self.run,
            program=self.program,
            programs=programs,
            label=self.label,
            board_id=self.device,
            candidate_id=self.candidate,
            mode=self.mode,
            kind=self.outcome,
            since=self.since,
            until=self.until,
        )


FiltersQuery = Annotated[Filters, Query()]
