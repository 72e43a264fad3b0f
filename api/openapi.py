"""The OpenAPI document: what FastAPI derives from the routes, with what it cannot know.

``python -m api.openapi > docs/openapi.json`` writes the committed document.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.schemas.problem import PROBLEM_RESPONSES, ProblemDocument

DESCRIPTION = """\
Valid parallel mappings of convolution loop nests, their kernels, and the farm that measures them.

Every refusal is an `application/problem+json` document (RFC 9457) whose `type` is stable.
Pages are walked by an opaque `cursor`; what takes long answers 202 with a `Location` after
`Prefer: wait=N` seconds.
"""
_METHODS = ("get", "post", "put", "patch", "delete")
_REF = "#/components/schemas/{model}"


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document of an application."""
    value = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        summary=app.summary,
        description=DESCRIPTION,
        routes=app.routes,
        license_info={"name": "see the repository"},
    )
    components = value.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    # FastAPI's own form of validation errors is never sent.
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = ProblemDocument.model_json_schema(ref_template=_REF)
    schemas |= problem.pop("$defs", {})
    schemas["ProblemDocument"] = problem
    components["schemas"] = dict(sorted(schemas.items()))
    components["responses"] = _shared_problems(value)
    components["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token `nm_<id>.<secret>` of scope admin, user or device:<id>.",
        }
    }
    return value


def _shared_problems(value: dict[str, Any]) -> dict[str, Any]:
    """Problems of a status are the same everywhere: said once, referred to by each route."""
    shared: dict[str, Any] = {}
    for _, _, operation in operations(value):
        responses = operation["responses"]
        for status, response in responses.items():
            if response == PROBLEM_RESPONSES.get(int(status)):
                name = f"Problem{status}"
                shared[name] = response
                responses[status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(shared.items()))


def operations(value: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Every operation of a document: its path, its method in capitals, itself."""
    return [
        (path, method.upper(), item[method])
        for path, item in sorted(value["paths"].items())
        for method in _METHODS
        if method in item
    ]


def as_text(value: dict[str, Any]) -> str:
    """The document as it is committed: the same bytes on every machine."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the document of this release to standard output."""
    # The application is made without anything behind it: no route is called.
    from api.app import create_app
    from api.settings import Settings

    nothing: Any = SimpleNamespace(documents=None, board_notices=lambda ring: None)
    app = create_app(Settings.model_construct(), nothing, nothing)
    sys.stdout.write(as_text(app.openapi()))


if __name__ == "__main__":
    main()
