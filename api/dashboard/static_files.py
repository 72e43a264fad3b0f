"""The dashboard's own scripts, styles and vendored library, from the package, with a version.

``/static/<digest>/name``: the digest is of all files together, so that a module's imports of its
neighbours (``./formats.js``) stay within one version, and everything may be cached for ever.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import Request
from starlette.responses import Response

from api.auth import Access
from api.caching import etag_of, not_modified
from api.problems import not_found
from api.routing import GuardedRouter

_MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"

routes = GuardedRouter("static")


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its media type and SHA-256."""

    content: bytes
    media_type: str
    digest: str


@lru_cache(maxsize=1)
def static_files() -> dict[str, StaticFile]:
    """Every file by its name (``run.js``, ``vendor/echarts.esm.min.js``)."""
    found: dict[str, StaticFile] = {}
    _collect(files("api.dashboard").joinpath("static"), "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", found)
            continue
        content = entry.read_bytes()
        suffix = "." + entry.name.rpartition(".")[2]
        found[prefix + entry.name] = StaticFile(
            content,
            _MEDIA_TYPES.get(suffix, "text/plain"),
            hashlib.sha256(content).hexdigest(),
        )


@lru_cache(maxsize=1)
def version() -> str:
    """A digest of all files and their names."""
    listed = (f"{name} {file.digest}\n" for name, file in sorted(static_files().items()))
    return hashlib.sha256("".join(listed).encode()).hexdigest()[:16]


def asset_url(name: str) -> str:
    """The path of a file; ``KeyError`` for one that is not in the package."""
    if name not in static_files():
        raise KeyError(name)
    return f"/static/{version()}/{name}"


@routes.get(
    "/static/{of_version}/{name:path}", Access.PUBLIC, summary="Files of pages",
    include_in_schema=False,
)  # fmt: skip
async def get_static_file(of_version: str, name: str, request: Request) -> Response:
    """A file; one of another version as it is now, which is asked for again next time."""
    found = static_files().get(name)
    if found is None:
        raise not_found("file", name)
    unchanged = not_modified(found.digest, request.headers.get("if-none-match"))
    if unchanged is not None:
        return unchanged
    caching = _FOR_EVER if of_version == version() else _ASK_AGAIN
    headers = {"Cache-Control": caching, "ETag": etag_of(found.digest)}
    return Response(found.content, media_type=found.media_type, headers=headers)
