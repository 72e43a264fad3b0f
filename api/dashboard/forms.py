"""What a form of a page sends: fields as texts, bounded."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from api.problems import ProblemError

MAX_FORM_BYTES = 512 * 1024
MAX_FIELDS = 200


async def form_fields(request: Request, most_bytes: int = MAX_FORM_BYTES) -> dict[str, str]:
    """The first value of each field. ProblemError 413 for a form that is too long, 400 for one
    that cannot be read or holds a NUL, as for bodies of JSON: PostgreSQL stores none."""
    body = await request.body()
    if len(body) > most_bytes:
        raise ProblemError("body-too-large", f"at most {most_bytes} bytes are accepted")
    try:
        fields = parse_qs(body.decode("utf-8"), max_num_fields=MAX_FIELDS)
    except ValueError:
        raise ProblemError("malformed-request", "the form cannot be read") from None
    if any("\0" in text for name, values in fields.items() for text in (name, values[0])):
        raise ProblemError("malformed-request", "the form holds a NUL")
    return {name: values[0] for name, values in fields.items()}
