"""A session of the dashboard: the token in a cookie that no script can read."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from api.auth import COOKIE, Access, token_of
from api.routing import GuardedRouter
from api.schemas.service import Session
from api.services import PrincipalOf, ServicesOf

routes = GuardedRouter("session")
LIFETIME_S = 30 * 86_400


@routes.post(
    "/v1/session", Access.USER, summary="Keep the token in a cookie", status=204,
    response_class=Response,
)  # fmt: skip
async def create_session(request: Request, services: ServicesOf) -> Response:
    """For browsers, whose event streams cannot send a header. The cookie is `HttpOnly` and
    `SameSite=Strict`; with it, writing requests are accepted from this origin alone."""
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE, token_of(request) or "", max_age=LIFETIME_S, path="/",
        secure=services.settings.secure_cookies, httponly=True, samesite="strict",
    )  # fmt: skip
    return response


@routes.get("/v1/session", Access.USER, summary="Whose token this is", response_model=Session)
async def get_session(principal: PrincipalOf) -> Session:
    """The token's public id and its scope."""
    return Session(token=principal.id, scope=principal.role.value)


@routes.delete(
    "/v1/session", Access.PUBLIC, summary="Forget the cookie", status=204,
    response_class=Response,
)  # fmt: skip
async def delete_session(services: ServicesOf) -> Response:
    """The token itself stays valid."""
    response = Response(status_code=204)
    response.delete_cookie(
        COOKIE, path="/", secure=services.settings.secure_cookies, httponly=True,
        samesite="strict",
    )  # fmt: skip
    return response
