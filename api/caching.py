"""Entity tags of what is named by its content, and requests that have it already."""

from __future__ import annotations

from starlette.responses import Response

#: The content never changes under its name, but only those with a token may see it.
CONTENT_CACHING = "private, max-age=31536000, immutable"


def etag_of(hash_: str) -> str:
    """A strong entity tag (RFC 9110, section 8.8.3)."""
    return f'"{hash_}"'


def not_modified(hash_: str, if_none_match: str | None) -> Response | None:
    """The 304 that ``If-None-Match`` asks for; None if the content is wanted."""
    if if_none_match is None:
        return None
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    if "*" not in tags and etag_of(hash_) not in tags:
        return None
    return Response(status_code=304, headers={"ETag": etag_of(hash_)})
