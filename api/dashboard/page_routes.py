"""Routes of pages: for people, so that a refusal is a page too, and no session a form to sign in.

They stay out of the OpenAPI document: a page may change with its scripts, the API does not.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.auth import Access
from api.dashboard.rendering import error_page
from api.problems import ProblemError, problem_of
from api.routing import ACCESS_KEY, Adding, EndpointT, GuardedRoute, Handler
from api.solver_pool import SolverProblem
from api.solving import as_problem
from mapper.errors import NestmapError, StoreError

SIGN_IN = "/sign-in"


class PageRoute(GuardedRoute):
    """A route whose refusals are pages."""

    def get_route_handler(self) -> Handler:
        """The guarded handler, with its refusals made readable."""
        handle = super().get_route_handler()

        async def readable(request: Request) -> Response:
            try:
                return await handle(request)
            except ProblemError as error:
                return refused(request, error)
            except RequestValidationError as error:
                found = error.errors()[0]
                place = ".".join(map(str, found.get("loc", ())))
                return error_page(
                    request, ProblemError("invalid-input", f"{place}: {found['msg']}")
                )
            except SolverProblem as error:
                return error_page(request, as_problem(error))
            except NestmapError as error:
                if isinstance(error, StoreError):
                    raise  # the application logs it
                return error_page(request, problem_of(error))

        return readable


def see_other(url: str) -> RedirectResponse:
    """Where a browser goes on with GET, whatever it has sent."""
    return RedirectResponse(url, HTTPStatus.SEE_OTHER)


def refused(request: Request, error: ProblemError) -> Response:
    """The form to sign in for whoever has no session, else the page that says what is wrong."""
    if error.status_code == 401 and request.method == "GET":
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return see_other(f"{SIGN_IN}?{urlencode({'next': target})}")
    return error_page(request, error)


class CostlyPageRoute(PageRoute):
    """A page that makes work for solvers: each token may ask for it so often only."""

    is_costly = True


class PageRouter:
    """Collects the pages of one part of the dashboard; each says who reaches it."""

    def __init__(self) -> None:
        self.router = APIRouter()

    def _add(
        self,
        method: str,
        path: str,
        access: Access,
        kind: type[PageRoute] = PageRoute,
        **more: Any,
    ) -> Adding:
        def add(endpoint: EndpointT, /) -> EndpointT:
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                response_model=None,
                include_in_schema=False,
                route_class_override=kind,
                openapi_extra={ACCESS_KEY: access.value},
                **more,
            )
            return endpoint

        return add

    def get(self, path: str, access: Access = Access.USER, *, is_costly: bool = False) -> Adding:
        """A page. ``is_costly``: it makes work for solvers, and counts as a request for them."""
        return self._add("GET", path, access, CostlyPageRoute if is_costly else PageRoute)

    def post(self, path: str, access: Access = Access.USER, *, is_costly: bool = False) -> Adding:
        """What a form is sent to; with the cookie it is taken from this origin alone.
        ``is_costly`` as of :meth:`get`."""
        return self._add("POST", path, access, CostlyPageRoute if is_costly else PageRoute)
