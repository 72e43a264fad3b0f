"""Routes that say who reaches them: a route without that cannot be made.

Authentication comes before the body is read, so that strangers make nothing be parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from api.auth import Access, Authenticator
from api.bounded_json import DEFAULT_BOUNDS, PROGRAM_BOUNDS, BoundedRequest, JsonBounds
from api.problems import ProblemError
from api.schemas.problem import PROBLEM_RESPONSES

ACCESS_KEY = "x-nestmap-access"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = Callable[..., Any]
EndpointT = TypeVar("EndpointT", bound=Endpoint)


class Adding(Protocol):
    """Adds a function and gives it back as it is, so that who calls it is checked by its types."""

    def __call__(self, endpoint: EndpointT, /) -> EndpointT: ...


#: What any route may answer beside its own statuses, by who reaches it.
_ALWAYS = (400, 413, 414, 422, 431, 500, 503)
_WITH_TOKEN = (401, 403, 429)


class GuardedRoute(APIRoute):
    """A route that lets in whom its ``x-nestmap-access`` names, and reads JSON within bounds."""

    bounds: JsonBounds = DEFAULT_BOUNDS
    #: Whether a solver has to work on it, so that each token may come so often only.
    is_costly = False

    def get_route_handler(self) -> Handler:
        """The handler behind authentication."""
        handle = super().get_route_handler()
        access = access_of(self)
        takes_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            services = request.app.state.services
            authenticator: Authenticator = services.authenticator
            request.state.principal = await authenticator.admit(request, access)
            if self.is_costly:
                services.solver_requests.count(request.state.principal)
            bounded = BoundedRequest(request.scope, request.receive)
            bounded.bounds = self.bounds
            if takes_body:
                _check_media_type(bounded)
            return await handle(bounded)

        return guarded


def access_of(route: APIRoute) -> Access:
    """Who reaches a route; ``TypeError`` for one that does not say."""
    stated = (route.openapi_extra or {}).get(ACCESS_KEY)
    if stated is None:
        raise TypeError(f"the route {route.path} does not say who reaches it")
    return Access(stated)


class CostlyRoute(GuardedRoute):
    """A route that a solver works on."""

    is_costly = True


class ProgramRoute(CostlyRoute):
    """A route whose body may hold a program, which a solver works on."""

    bounds = PROGRAM_BOUNDS


class GuardedRouter:
    """Collects the routes of one part of the API."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(route_class=GuardedRoute, tags=[tag])

    def route(
        self,
        method: str,
        path: str,
        access: Access,
        *,
        summary: str,
        status: int = 200,
        problems: Sequence[int] = (),
        responses: dict[int | str, dict[str, Any]] | None = None,
        holds_program: bool = False,
        is_costly: bool = False,
        response_model: Any = None,
        extra: dict[str, Any] | None = None,
        **more: Any,
    ) -> Adding:
        """Add a function as a route; its name is the operation id.

        ``problems`` are statuses of its own beside those that every route has. ``is_costly``: a
        solver works on it, as on all that ``holds_program``.
        """
        known = {*_ALWAYS, *problems, *(_WITH_TOKEN if access is not Access.PUBLIC else ())}
        described: dict[int | str, dict[str, Any]] = {
            code: PROBLEM_RESPONSES[code] for code in sorted(known)
        }
        security = [] if access is Access.PUBLIC else [{"bearer": []}]

        costly_or_not = CostlyRoute if is_costly else GuardedRoute

        def add(endpoint: EndpointT, /) -> EndpointT:
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                status_code=status,
                operation_id=cast("Any", endpoint).__name__,
                response_model=response_model,
                # What a child leaves out is absent, not null.
                response_model_exclude_unset=True,
                responses=described | (responses or {}),
                route_class_override=ProgramRoute if holds_program else costly_or_not,
                openapi_extra={ACCESS_KEY: access.value, "security": security, **(extra or {})},
                **more,
            )
            return endpoint

        return add

    def get(self, path: str, access: Access, **more: Any) -> Adding:
        """A GET route."""
        return self.route("GET", path, access, **more)

    def post(self, path: str, access: Access, **more: Any) -> Adding:
        """A POST route; it takes JSON, so 415 is among its problems."""
        return self.route("POST", path, access, problems=(415, *more.pop("problems", ())), **more)

    def delete(self, path: str, access: Access, **more: Any) -> Adding:
        """A DELETE route."""
        return self.route("DELETE", path, access, **more)


def _check_media_type(request: Request) -> None:
    """415 for a body that is not JSON, or compressed."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and _has_body(request):
        raise ProblemError("unsupported-media-type", "bodies are application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError("unsupported-media-type", "bodies are not compressed")


def _has_body(request: Request) -> bool:
    headers = request.headers
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
