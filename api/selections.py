"""Which measurements a request means: its query parameters as a selection of the store."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.layer_programs import programs_of
from api.problems import ProblemError
from api.schemas.farm import DeviceId, Label, RunId
from api.schemas.solving import Hash
from api.schemas.types import Timestamp
from db.farm.selection import Selection
from mapper.errors import Problem
from mapper.layer_sets import is_layer_name, layer_of_name, names_in_short
from mapper.measurement import OUTCOME_KINDS

_Outcome = Annotated[str, StringConstraints(pattern=f"^({'|'.join(OUTCOME_KINDS)})$")]
_RowId = Annotated[int, Field(ge=0, lt=2**63)]


class Filters(BaseModel):
    """Query parameters; measurements meet all that are given."""

    model_config = ConfigDict(extra="forbid")

    run: RunId | None = None
    study: _RowId | None = None
    device: DeviceId | None = None
    layer: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="A named layer: all of its variants (`vgg16/7`)"
    )
    program: Hash | None = None
    candidate: Hash | None = Field(default=None, description="One candidate, in any study")
    label: Label | None = Field(default=None, description="Of a run, or of a study without one")
    mode: Annotated[str, StringConstraints(pattern="^(strict|paper)$")] | None = None
    outcome: _Outcome | None = None
    since: Timestamp | None = Field(default=None, description="RFC 3339, with its zone")
    until: Timestamp | None = None

    def selection(self) -> Selection:
        """The selection of the store; blocking for a layer. ProblemError 422."""
        programs = None if self.program is None else frozenset({self.program})
        if self.layer is not None:
            if not is_layer_name(self.layer):
                problem = Problem("/layer", "there is no layer of this name", self.layer,
                                  names_in_short())  # fmt: skip
                raise ProblemError("invalid-input", problem.message, [problem])
            of_layer = frozenset(programs_of(layer_of_name(self.layer)).values())
            programs = of_layer if programs is None else programs & of_layer
        return Selection(
            study_ids=None if self.study is None else frozenset({self.study}),
            run_id=self.run,
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
