"""Templates with their context: the navigation, who looks, formats, and the security headers.

Everything in a template is escaped unless it is ``Markup``; a name that is missing is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from api.auth import Principal, Role
from api.dashboard import formats
from api.dashboard.static_files import asset_url
from api.problems import ProblemError
from api.services import Services

#: Nothing but this origin's own files; no inline script or style, no frame, no other origin.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
#: Embeddings, overrides and isolates of the bidirectional algorithm.
_OVERRIDES = {code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A page that every page leads to; ``prefixes`` are the paths that belong to it."""

    title: str
    path: str
    prefixes: tuple[str, ...] = ()

    def holds(self, path: str) -> bool:
        """Whether a path is within this part."""
        return path == self.path or path.startswith(self.prefixes)


NAVIGATION = (
    NavigationEntry("Overview", "/", ("/runs/", "/candidates/")),
    NavigationEntry("Compare", "/compare"),
    NavigationEntry("Layers", "/layers", ("/layers/",)),
    NavigationEntry("Schedules", "/schedules"),
    NavigationEntry("Devices", "/devices", ("/devices/",)),
    NavigationEntry("Networks", "/networks", ("/networks/",)),
)


def without_overrides(value: Any) -> Any:
    """A value of a template; in a text what turns the direction of those behind it is named, so
    that no name or source reads as another: ``⟨U+202E⟩``."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.translate(_OVERRIDES)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates of the package."""
    made = Environment(
        loader=FileSystemLoader(str(files("api.dashboard").joinpath("templates"))),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=without_overrides,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= formats.FILTERS
    made.globals["asset"] = asset_url
    made.globals["navigation"] = NAVIGATION
    return made


def render(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """The page of a template (``"run.html"``).

    Templates get, beside ``context``: ``path``, ``principal`` (None for public pages),
    ``is_admin``, ``navigation``, ``asset("name.js")``, and the filters of
    :mod:`api.dashboard.formats`.
    """
    principal: Principal | None = getattr(request.state, "principal", None)
    text = environment().get_template(template).render(
        path=request.url.path,
        principal=principal,
        is_admin=principal is not None and principal.role is Role.ADMIN,
        **context,
    )  # fmt: skip
    # Whoever signs out must not find the pages again by going back.
    headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "private, no-cache"}
    return HTMLResponse(text, status, headers)


async def render_apart(
    services: Services, request: Request, template: str, make: Callable[[], Mapping[str, Any]]
) -> HTMLResponse:
    """As :func:`render` with the context that ``make`` gives, for pages that take long to make.

    A page of a large kernel takes a second. It is made in a thread, one at a time, in turns
    between those who ask, so that nobody's pages are everybody's delay.
    """
    return await services.pages(lambda: render(request, template, **make()))


def error_page(request: Request, error: ProblemError) -> HTMLResponse:
    """A refusal for people: what is wrong, where, and what is allowed."""
    page = render(
        request,
        "error.html",
        error.status_code,
        problem=error.type,
        detail=str(error.detail),
        errors=error.errors[:20],
        request_id=getattr(request.state, "request_id", ""),
    )
    for name, value in (error.headers or {}).items():
        page.headers[name] = value
    return page


def wants_page(request: Request) -> bool:
    """Whether an answer will be read in a browser's window and not by a program."""
    path = request.url.path
    return "text/html" in request.headers.get("accept", "") and not path.startswith("/v1/")
