"""A check for schemathesis: what the OpenAPI document allows is accepted.

It runs in schemathesis's process, which finds it by ``SCHEMATHESIS_HOOKS``. A refusal passes only
where its message is listed here: the object that a body names does not exist, or fields that are
right by themselves do not go together. The document does not say either.
"""

from __future__ import annotations

import json
import re

import schemathesis
from schemathesis.checks import CheckContext
from schemathesis.core.transport import Response
from schemathesis.generation.case import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance

#: A URL that is too long, and a code for enrolling that nobody has made.
_PASSING = (410, 414)
#: What a request made from the document cannot know of.
_STATE = (
    r"there is no such device|nothing was posted with this id"
    # Which variants there are is the subject's business, and of a program the device's.
    r"|no variant of this name|no such variant|only a layer has variants here"
    r"|the program has no sketch of this name on the device|a .* has no variants, only .*"
    r"|the layer has no variant, nor a sketch on the device, of this name"
)
#: What is refused in members of any form too, wherever it stands: a schema that said so of every
#: level would refer to itself, and readers of schemas take minutes for that.
_ANY_MEMBERS = frozenset({"a text holds a NUL", "an integer is too large"})
#: To JSON Schema `2.0` is an integer; the service takes numbers as they are written.
_NO_INTEGER = frozenset({"Input should be a valid integer", "is not an integer"})
_WRITTEN_AS_FRACTION = re.compile(r"-?[0-9]+\.0|-?[0-9.]+e\+[0-9]+")
#: Sizes and choices of a layer that do not go together (mapper/layer_spec.py).
_LAYER = (
    r"the kernel.* is larger than the padded input (height|width)|does not divide the .*"
    r"|are no whole blocks of the layout .*|the activation .* has no slope"
    r"|rows and columns have strides of their own|missing field|unknown field"
)
_RUN = (
    r"Value error, only the strategies .* learn|does not do this layer"
    r"|speaks of the names of one variant"
)
_CURSOR = r"is not a cursor of this list"
_RULES = {
    "/v1/layers": _LAYER,
    "/v1/runs": f"{_LAYER}|{_RUN}",
    # A cursor is of one question, or of one direction.
    "/v1/mappings": _CURSOR,
    "/v1/jobs/{job_id}/result": r"Value error, [0-9]+ spans of [0-9]+ trials",
    "/v1/measurements": _CURSOR,
}


@schemathesis.check
def allowed_data_acceptance(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """As schemathesis's own check, but for the refusals that are listed here."""
    if response.status_code in _PASSING or _is_listed(response, case):
        return None
    return positive_data_acceptance(ctx, response, case)


def _is_listed(response: Response, case: Case) -> bool:
    """Whether each error of a refusal is one that no schema states."""
    if response.status_code not in (400, 422):
        return False
    problem = json.loads(response.content)
    if problem["type"] == "/problems/malformed-json":
        return problem["detail"] in _ANY_MEMBERS and _has_free_members(case)
    if problem["type"] == "/problems/idempotency-key-reused":
        return True
    allowed = f"{_STATE}|{_RULES.get(case.operation.path, _STATE)}"
    errors = problem.get("errors", ())
    return bool(errors) and all(
        re.fullmatch(allowed, error["message"]) is not None
        or (
            error["message"] in _NO_INTEGER
            and _WRITTEN_AS_FRACTION.fullmatch(error["found"]) is not None
        )
        for error in errors
    )


def _has_free_members(case: Case) -> bool:
    """Whether a body has members that its schema leaves open."""
    return isinstance(case.body, dict) and (
        "/jobs/" in case.operation.path
        or "/devices/" in case.operation.path
        or any(isinstance(value, dict) for value in case.body.values())
    )
