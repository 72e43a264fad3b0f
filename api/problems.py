"""Problems as RFC 9457 has them: every refusal has a stable type, listed here and in the docs.

``type`` is a path of this service (``/problems/stale-lease``) that explains itself when it is
fetched. Clients compare it and nothing else: titles and details are for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from db.farm.errors import (
    AbsentError,
    CodeGone,
    ConflictError,
    IdempotencyKeyReused,
    StaleLease,
)
from mapper.errors import (
    DeviceError,
    InputError,
    LimitError,
    NestmapError,
    Problem,
    StoreError,
    UnsatisfiableError,
)

MEDIA_TYPE = "application/problem+json"
PATH_PREFIX = "/problems/"
MAX_ERRORS = 50
MAX_TEXT = 2_000

#: Characters of a value that a refusal repeats.
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A kind of refusal: its name in URLs, its status, and what a reader should know of it."""

    slug: str
    status: int
    title: str
    description: str

    @property
    def uri(self) -> str:
        """The ``type`` member of RFC 9457, section 3.1.1: a path of this service."""
        return PATH_PREFIX + self.slug


PROBLEM_TYPES: dict[str, ProblemType] = {
    t.slug: t
    for t in (
        ProblemType(
            "malformed-request", 400, "The request cannot be read",
            "The URL, a header or the encoding of the request is not acceptable HTTP: bytes that "
            "are not UTF-8, a NUL, a header given twice.",
        ),
        ProblemType(
            "malformed-json", 400, "The body is not acceptable JSON",
            "The body is not JSON, is not UTF-8, or holds a key twice, NaN, an infinity, an "
            "integer beyond 64 bits, a NUL or half of a surrogate pair.",
        ),
        ProblemType(
            "unauthenticated", 401, "No valid token was sent",
            "The route wants `Authorization: Bearer nm_…`; the token is missing, unknown, revoked "
            "or expired.",
        ),
        ProblemType(
            "forbidden", 403, "The token does not reach this",
            "The token is valid but its scope does not include this route or this device.",
        ),
        ProblemType("not-found", 404, "There is no such thing", "No route or object of that name."),
        ProblemType(
            "method-not-allowed", 405, "The method is not allowed here",
            "The path exists, the method does not. `Allow` lists those that do.",
        ),
        ProblemType(
            "conflict", 409, "The state of the object does not allow this",
            "For example: a run that has ended cannot be paused.",
        ),
        ProblemType(
            "stale-lease", 409, "The lease is no longer held",
            "Somebody else has claimed the job, or it has ended. Drop the work.",
        ),
        ProblemType(
            "gone", 410, "This is no longer there", "An enrolment code that was used or expired."
        ),
        ProblemType(
            "body-too-large", 413, "The body is too large",
            "More bytes than the route accepts. Nothing of it was parsed.",
        ),
        ProblemType("url-too-long", 414, "The URL is too long", "More than 8 KiB."),
        ProblemType(
            "unsupported-media-type", 415, "The body is not JSON",
            "Bodies are `application/json`, uncompressed.",
        ),
        ProblemType(
            "invalid-input", 422, "The request is well formed but not acceptable",
            "`errors` names each field by JSON pointer, with what was found and what is allowed.",
        ),
        ProblemType(
            "too-complex", 422, "The request is too large to be worked on",
            "More levels, values, maps or nodes than are accepted, or a model too large to solve.",
        ),
        ProblemType(
            "unsatisfiable", 422, "No mapping satisfies the constraints",
            "`conflict` has a minimal set of constraints and restrictions that cannot hold "
            "together, where it was found in time.",
        ),
        ProblemType(
            "invalid-mapping", 422, "The mapping is not valid",
            "`violations` lists each constraint that it breaks.",
        ),
        ProblemType(
            "solver-limit", 422, "The solver reached a limit",
            "The child process that worked on it ran out of its time or memory, or died.",
        ),
        ProblemType(
            "idempotency-key-reused", 422, "The idempotency key belongs to another request",
            "The same `Idempotency-Key` came before with another body or route.",
        ),
        ProblemType(
            "too-many-requests", 429, "Too many requests",
            "Too many failed authentications from this address, or too many requests for a solver "
            "with this token. `Retry-After` says how long to wait.",
        ),
        ProblemType(
            "headers-too-large", 431, "The headers are too large",
            "More than 64 headers or 16 KiB of them.",
        ),
        ProblemType(
            "internal", 500, "A fault of nestmap",
            "Report it with the request id in `instance`. The cause is in the service's log.",
        ),
        ProblemType(
            "unavailable", 503, "Not now",
            "The database cannot be reached, or every solver process is busy and the queue is "
            "full. `Retry-After` says when to come again.",
        ),
    )
}  # fmt: skip


class ProblemError(HTTPException):
    """A refusal on its way to the client; every deliberate error of the API is one.

    It is an ``HTTPException`` so that FastAPI lets it pass through its parsing of bodies.
    ``more`` are members beside the standard ones (``conflict``, ``violations``).
    """

    def __init__(
        self,
        slug: str,
        detail: str = "",
        errors: Iterable[Problem] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.type = PROBLEM_TYPES[slug]
        self.errors = tuple(errors)
        self.more = more
        super().__init__(self.type.status, detail or self.type.title, dict(headers or {}))

    def body(self, instance: str = "") -> dict[str, Any]:
        """The members of the problem document; ``instance`` is the request's id."""
        body: dict[str, Any] = {
            "type": self.type.uri,
            "title": self.type.title,
            "status": self.type.status,
            "detail": _short(str(self.detail)),
        }
        if instance:
            body["instance"] = instance
        if self.errors:
            body["errors"] = [error_to_json(p) for p in self.errors[:MAX_ERRORS]]
            if len(self.errors) > MAX_ERRORS:
                body["errors_left_out"] = len(self.errors) - MAX_ERRORS
        return body | self.more


def error_to_json(problem: Problem) -> dict[str, str]:
    """One problem of a field; ``pointer`` is a JSON pointer (RFC 6901) into the body."""
    return {
        "pointer": pointer_of(problem.path),
        "message": _short(problem.message),
        "found": _short(problem.found),
        "allowed": _short(problem.allowed),
        "remedy": _short(problem.remedy),
    }


def pointer_of(path: str) -> str:
    """A path of ``mapper.errors`` (``layer.stride``, ``/mapping/28``, ``a/0/b``) as a pointer.

    What the command line calls ``--pin NAME`` is the field ``pin``.
    """
    if path.startswith("--"):
        path = path[2:].partition(" ")[0]
    if not path or path.startswith("/"):
        return _short(path)
    return _short("/" + path.replace(".", "/") if "/" not in path else "/" + path)


def pointer_to(location: Sequence[str | int]) -> str:
    """The pointer of a place in a document, each step escaped."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in location)
    return _short("".join(f"/{step}" for step in steps))


def problem_of(error: NestmapError) -> ProblemError:
    """What an error of nestmap is to a client."""
    match error:
        case AbsentError():
            slug = "not-found"
        case IdempotencyKeyReused():
            slug = "idempotency-key-reused"
        case ConflictError():
            slug = "conflict"
        case CodeGone():
            slug = "gone"
        case StaleLease():
            slug = "stale-lease"
        case UnsatisfiableError():
            slug = "unsatisfiable"
        case LimitError():
            slug = "too-complex"
        case StoreError():
            # What the driver said stays in the log: it may name hosts and paths.
            return ProblemError("unavailable", "the store cannot be used", headers=RETRY_SOON)
        case InputError() | DeviceError():
            slug = "invalid-input"
        case _:
            return ProblemError("internal")
    return ProblemError(slug, error.problems[0].message if error.problems else "", error.problems)


RETRY_SOON = {"Retry-After": "1"}


def not_found(what: str, name: str) -> ProblemError:
    """There is no object of this kind and name."""
    return ProblemError("not-found", f"there is no {what} {name!r}"[:200])


class ProblemResponse(Response):
    """A problem as a response: ASCII JSON, never stored by a cache."""

    media_type = MEDIA_TYPE

    def __init__(self, error: ProblemError, instance: str = "") -> None:
        # ASCII, so that whatever text got into a message can be written.
        content = json.dumps(error.body(instance), separators=(",", ":")).encode("ascii")
        headers = {"Cache-Control": "no-store", **(error.headers or {})}
        super().__init__(content, error.status_code, headers)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def invalid_input(findings: Sequence[Mapping[str, Any]]) -> ProblemError:
    """Everything that pydantic found wrong with a request, as one refusal."""
    problems = [_finding(found) for found in findings]
    return ProblemError("invalid-input", problems[0].message, problems)


def _finding(found: Mapping[str, Any]) -> Problem:
    """One finding of pydantic: where, what, and what is allowed."""
    place = list(found.get("loc", ()))
    kind = place.pop(0) if place and place[0] in ("body", "query", "path", "header") else ""
    if kind == "body" and found["type"] == "missing" and not place:
        return Problem("", "a JSON body is missing", "", "an object of JSON")
    # A step in parentheses only names the member of a union.
    pointer = pointer_to([step for step in place if not str(step).startswith("(")])
    value = found.get("input")
    shown = "" if found["type"] == "missing" else ascii(value)[:_MAX_SHOWN]
    context = found.get("ctx") or {}
    allowed = next(
        (str(context[name]) for name in ("expected", "pattern", "allowed") if name in context), ""
    ) or ", ".join(
        f"{name} {context[name]}"
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length")
        if name in context
    )
    message = str(found["msg"])
    return Problem(pointer, f"{kind}: {message}" if kind in ("query", "header") else message,
                   shown, allowed)  # fmt: skip


def unauthenticated(detail: str) -> ProblemError:
    """401, with what HTTP asks for beside it (RFC 9110, section 15.5.2)."""
    return ProblemError("unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})
