"""Long work that goes on after its request was answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from api.schemas.problem import PROBLEM_RESPONSES, ProblemDocument


class Operation(BaseModel):
    """Work under way or done; `result` is what the route would have answered with 200."""

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    created_at: datetime
    ended_at: datetime | None
    result: dict[str, Any] | None = Field(description="Once it is done")
    problem: ProblemDocument | None = Field(description="Once it has failed")


ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": Operation,
        "description": "Not done within the preferred wait: follow `Location`",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "/v1/operations/{id}"}
        },
    },
    # Its token has too many bytes stored for one more.
    409: PROBLEM_RESPONSES[409],
}
