"""Signing in: a token, or a one-time code that ``nestmap serve`` prints, becomes a cookie.

The token is in no URL and no log; the code is in a URL, lasts minutes, and works once. Forms are
taken from this origin alone, so that no other site signs somebody in as somebody else.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from api.auth import COOKIE, MAX_TOKEN_CHARACTERS, Access, Role, from_this_site
from api.dashboard.forms import form_fields
from api.dashboard.page_routes import SIGN_IN, PageRouter, see_other
from api.dashboard.rendering import render
from api.problems import ProblemError
from api.routes.session import LIFETIME_S
from api.services import Services, ServicesOf
from db.farm.states import Scope

_MAX_FORM_BYTES = 16 * 1024

routes = PageRouter()


@routes.get("/sign-in", Access.PUBLIC)
async def show_sign_in(
    request: Request,
    next: Annotated[str, Query(max_length=4_000)] = "/",
    code: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The form. A code is used when it is sent, not when a browser looks ahead at the link."""
    return render(request, "sign_in.html", next=local_path(next), code=code, refusal="")


@routes.post("/sign-in", Access.PUBLIC)
async def sign_in(request: Request, services: ServicesOf) -> Response:
    """Set the cookie and go where the reader wanted to."""
    _require_this_site(request)
    form = await form_fields(request, _MAX_FORM_BYTES)
    target = local_path(form.get("next", "/"))
    try:
        token = await _token_of(request, services, form)
    except ProblemError as error:
        if error.status_code not in (401, 403):
            raise
        page = render(
            request, "sign_in.html", error.status_code, next=target, code="",
            refusal=str(error.detail),
        )  # fmt: skip
        return page
    response = see_other(target)
    response.set_cookie(
        COOKIE, token, max_age=LIFETIME_S, path="/", secure=services.settings.secure_cookies,
        httponly=True, samesite="strict",
    )  # fmt: skip
    return response


@routes.post("/sign-out", Access.PUBLIC)
async def sign_out(request: Request, services: ServicesOf) -> Response:
    """Forget the cookie; the token stays valid for whoever has it."""
    _require_this_site(request)
    response = see_other(SIGN_IN)
    response.delete_cookie(
        COOKIE, path="/", secure=services.settings.secure_cookies, httponly=True,
        samesite="strict",
    )  # fmt: skip
    return response


async def _token_of(request: Request, services: Services, form: dict[str, str]) -> str:
    """The token of a form, which is verified, or a new one for a code. ProblemError 401, 403."""
    address = request.client.host if request.client else ""
    code = form.get("code", "")
    if code:
        if not services.sign_in_codes.use(code):
            services.authenticator.failed(address)
            raise ProblemError("unauthenticated", "the link was used before, or is too old")
        made = await services.database(
            services.farm.tokens.create, Scope.ADMIN,
            label="dashboard, by a link of nestmap serve", lifetime_s=float(LIFETIME_S),
        )  # fmt: skip
        return made.text
    token = form.get("token", "").strip()
    if not token or len(token) > MAX_TOKEN_CHARACTERS:
        raise ProblemError("unauthenticated", "a token has the form nm_….…")
    principal = await services.authenticator.principal_of_token(token, address)
    if principal.role is Role.DEVICE:
        raise ProblemError("forbidden", "the token is a device's; pages are for people's tokens")
    return token


def _require_this_site(request: Request) -> None:
    if not from_this_site(request):
        raise ProblemError("forbidden", "a form of another site is not accepted")


def local_path(target: str) -> str:
    """A path of this origin, or the overview: a link must not lead away through the form."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if plain and target.isprintable() and "\\" not in target else "/"
