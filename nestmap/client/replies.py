"""What the service answers, read: documents of the promised shape, or a :class:`ServiceError`.

Nothing of an answer is believed before it was looked at: its size and depth are bounded, its
types are those of :mod:`nestmap.client.documents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from mapper.ast_model.bounded_json import loads_bounded
from mapper.errors import InputError, Problem
from nestmap.client.errors import ServiceError, bad_answer

T = TypeVar("T")
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
_TYPE_PREFIX = "/problems/"
_STANDARD = ("type", "title", "status", "detail", "instance", "errors")
_FIELDS = ("pointer", "message", "found", "allowed", "remedy")
_MOST_DEPTH = 400
_MOST_ERRORS = 50
_MOST_TEXT = 2_000
_MOST_PROBLEM_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer; ``opened`` is the response itself where its body is still to be read."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    opened: Any = None

    @property
    def media_type(self) -> str:
        """Without parameters, in small letters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def checked(shape: type[T], value: object) -> T:
    """The value itself, which has this shape (fields beside those of it are kept).

    ServiceError names the first fields that have not.
    """
    try:
        _adapter(shape).validate_python(value, strict=True)
    except ValidationError as error:
        problems = [
            Problem(
                "".join(f"/{step}" for step in found["loc"])[:200],
                f"the service answers something else than promised: {found['msg']}"[:300],
                repr(found["input"])[:80],
            )
            for found in error.errors(include_url=False, include_context=False)[:5]
        ]
        raise ServiceError("bad-answer", problems) from None
    return cast("T", value)


def document(shape: type[T], reply: Reply, most_bytes: int) -> T:
    """The document of a reply of status 2xx; ServiceError for any other reply."""
    if not 200 <= reply.status < 300:
        raise refusal(reply)
    if reply.media_type != JSON:
        raise bad_answer("the answer is not JSON", reply.media_type or "no media type", JSON)
    return checked(shape, _json(reply.body, most_bytes))


def text(reply: Reply) -> str:
    """The text of a reply; ServiceError for a refusal or what is not UTF-8."""
    if reply.status != 200:
        raise refusal(reply)
    try:
        return reply.body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_answer("the answer is not UTF-8", f"byte {error.start}") from None


def nothing(reply: Reply) -> None:
    """ServiceError unless the reply says that it was done and has nothing more to say."""
    if reply.status != 204:
        raise refusal(reply)


def refusal(reply: Reply) -> ServiceError:
    """The error that a reply of another status than 2xx is."""
    if reply.media_type == PROBLEM_JSON:
        value = _json(reply.body, _MOST_PROBLEM_BYTES)
        if isinstance(value, dict):
            return refusal_of(cast("dict[str, Any]", value), reply.status)
    return ServiceError(
        "bad-answer",
        Problem("", "the service refused without saying why: is it a nestmap service?",
                f"status {reply.status}", PROBLEM_JSON),
        status=reply.status,
    )  # fmt: skip


def refusal_of(value: dict[str, Any], status: int = 0) -> ServiceError:
    """The error of a problem document (RFC 9457); what is not as promised is left out."""
    kind = _short(value.get("type"))
    if not kind.startswith(_TYPE_PREFIX):
        return bad_answer("a refusal of no known type", kind, f"{_TYPE_PREFIX}…")
    listed = value.get("errors")
    errors = [
        Problem(*(_short(error.get(name)) for name in _FIELDS))
        for error in cast("list[Any]", listed if isinstance(listed, list) else [])[:_MOST_ERRORS]
        if isinstance(error, dict)
    ]
    said = _short(value.get("detail")) or _short(value.get("title")) or kind
    stated = value.get("status")
    return ServiceError(
        kind.removeprefix(_TYPE_PREFIX),
        errors or [Problem("", said)],
        status=status or (stated if isinstance(stated, int) else 0),
        title=_short(value.get("title")),
        instance=_short(value.get("instance")),
        more={name: item for name, item in value.items() if name not in _STANDARD},
    )


def retry_after_s(reply: Reply) -> float | None:
    """The seconds of ``Retry-After`` (RFC 9110, section 10.2.3), also where it is a date."""
    value = reply.headers.get("retry-after", "").strip()
    if value.isdecimal() and value.isascii() and len(value) < 10:
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    now = datetime.now(UTC) if at.tzinfo else datetime.now(UTC).replace(tzinfo=None)
    return max(0.0, (at - now).total_seconds())


def _json(body: bytes, most_bytes: int) -> Any:
    try:
        return loads_bounded(body, most_bytes, _MOST_DEPTH)
    except InputError as error:
        raise bad_answer("the answer is not acceptable JSON", str(error)) from None


def _short(value: object) -> str:
    return value[:_MOST_TEXT] if isinstance(value, str) else ""
