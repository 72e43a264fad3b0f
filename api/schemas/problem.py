"""Problems in the OpenAPI document (RFC 9457)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.problems import MEDIA_TYPE, PROBLEM_TYPES


class FieldProblem(BaseModel):
    """One thing that is wrong with the request."""

    pointer: str = Field(description="JSON pointer into the body; empty for the whole of it")
    message: str
    found: str
    allowed: str
    remedy: str


class ProblemDocument(BaseModel):
    """A refusal. `type` is stable and explains itself when it is fetched."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/invalid-input",
                    "title": "The request is well formed but not acceptable",
                    "status": 422,
                    "detail": "is out of range",
                    "instance": "req_5f0c6c0a1b2d4e8f",
                    "errors": [
                        {
                            "pointer": "/layer/channels",
                            "message": "is out of range",
                            "found": "0",
                            "allowed": "1 to 1048576",
                            "remedy": "",
                        }
                    ],
                }
            ]
        },
    )

    type: str = Field(json_schema_extra={"enum": [t.uri for t in PROBLEM_TYPES.values()]})
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="The request's id, as in X-Request-Id")
    errors: list[FieldProblem] | None = None
    errors_left_out: int | None = None


def _response(status: int) -> dict[str, Any]:
    slugs = [t.slug for t in PROBLEM_TYPES.values() if t.status == status]
    return {
        "description": ", ".join(f"`{slug}`" for slug in slugs),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
    }


PROBLEM_RESPONSES: dict[int, dict[str, Any]] = {
    status: _response(status) for status in sorted({t.status for t in PROBLEM_TYPES.values()})
}
