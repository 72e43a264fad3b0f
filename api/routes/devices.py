"""Devices, enrolment codes and tokens, for people."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from api.auth import Access
from api.paging import (
    DEFAULT_PAGE,
    DeviceCursor,
    HistoryCursor,
    Limit,
    StrikeCursor,
    TokenCursor,
    decode_cursor,
    decode_keyset,
    encode_cursor,
    encode_keyset,
)
from api.problems import ProblemError, not_found
from api.routes.leases import DevicePath
from api.routing import GuardedRouter
from api.schemas.devices import (
    DeviceDocument,
    DevicePage,
    HealthEntry,
    HealthPage,
    NewTokenDocument,
    StateRequest,
    StrikeDocument,
    StrikePage,
    StrikeRequest,
    TokenDocument,
    TokenPage,
    TokenRequest,
)
from api.schemas.leases import CodeAnswer, CodeRequest
from api.schemas.types import MAX_WHOLE
from api.services import PrincipalOf, ServicesOf
from db.farm.errors import AbsentError
from db.farm.states import BoardState, Scope
from db.farm.strikes import Strike
from mapper.errors import Problem

routes = GuardedRouter("devices")
StrikePath = Annotated[int, Path(ge=0, le=MAX_WHOLE)]
TokenPath = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$")]


@routes.get("/v1/devices", Access.USER, summary="Devices", response_model=DevicePage)
async def list_devices(
    services: ServicesOf,
    limit: Limit = DEFAULT_PAGE,
    cursor: DeviceCursor = None,
    state: BoardState | None = None,
) -> DevicePage:
    """Boards and hosts that agents serve, newest first."""
    after = decode_keyset("devices", cursor)
    found = await services.database(
        services.farm.boards.page, limit=limit + 1, after=after, state=state
    )
    items = found[:limit]
    more = len(found) > limit
    return DevicePage(
        items=[DeviceDocument.of(board) for board in items],
        next=encode_keyset("devices", items[-1].created_at, items[-1].id) if more else None,
    )


@routes.get(
    "/v1/devices/{device_id}", Access.USER_OR_DEVICE, summary="A device", problems=(404,),
    response_model=DeviceDocument,
)  # fmt: skip
async def get_device(device_id: DevicePath, services: ServicesOf) -> DeviceDocument:
    """What its agent said last, and its state. A device reaches itself alone."""
    return DeviceDocument.of(await services.database(services.farm.boards.board, device_id))


@routes.get(
    "/v1/devices/{device_id}/history", Access.USER, summary="A device's health over time",
    problems=(404,), response_model=HealthPage,
)  # fmt: skip
async def get_device_history(
    device_id: DevicePath,
    services: ServicesOf,
    limit: Limit = DEFAULT_PAGE,
    cursor: HistoryCursor = None,
) -> HealthPage:
    """Temperatures, clocks and software, oldest first; a thousand entries are kept."""
    key = decode_cursor("history", cursor, int)
    boards = services.farm.boards
    await services.database(boards.board, device_id)
    found = await services.database(
        boards.history, device_id, after=0 if key is None else int(key[0]), limit=limit + 1
    )
    items = found[:limit]
    return HealthPage(
        items=[HealthEntry.of(entry) for entry in items],
        next=encode_cursor("history", (items[-1].id,)) if len(found) > limit else None,
    )


@routes.post(
    "/v1/devices/{device_id}/quarantine", Access.ADMIN, summary="Give a device no work",
    problems=(404, 409), response_model=DeviceDocument,
)  # fmt: skip
async def quarantine_device(
    device_id: DevicePath, body: StateRequest, services: ServicesOf, principal: PrincipalOf
) -> DeviceDocument:
    """What it is doing may end. Its agent does not lift this quarantine."""
    boards = services.farm.boards
    found = await services.database(boards.quarantine, device_id, body.reason, by=principal.id)
    return DeviceDocument.of(found)


@routes.post(
    "/v1/devices/{device_id}/release", Access.ADMIN, summary="Give a device work again",
    problems=(404, 409), response_model=DeviceDocument,
)  # fmt: skip
async def release_device(
    device_id: DevicePath, services: ServicesOf, principal: PrincipalOf
) -> DeviceDocument:
    """Lifts a quarantine, whoever set it. A repeat is allowed."""
    boards = services.farm.boards
    found = await services.database(boards.release, device_id, by=principal.id)
    services.bells.ring([device_id])
    return DeviceDocument.of(found)


@routes.post(
    "/v1/devices/{device_id}/disable", Access.ADMIN, summary="Take a device out of service",
    problems=(404,), response_model=DeviceDocument,
)  # fmt: skip
async def disable_device(
    device_id: DevicePath, body: StateRequest, services: ServicesOf, principal: PrincipalOf
) -> DeviceDocument:
    """New runs on it are refused until it is enabled; what it measures is queued again at once."""
    boards = services.farm.boards
    found = await services.database(boards.disable, device_id, body.reason, by=principal.id)
    return DeviceDocument.of(found)


@routes.post(
    "/v1/devices/{device_id}/enable", Access.ADMIN, summary="Put a device back into service",
    problems=(404,), response_model=DeviceDocument,
)  # fmt: skip
async def enable_device(
    device_id: DevicePath, services: ServicesOf, principal: PrincipalOf
) -> DeviceDocument:
    """A repeat is allowed."""
    boards = services.farm.boards
    found = await services.database(boards.enable, device_id, by=principal.id)
    services.bells.ring([device_id])
    return DeviceDocument.of(found)


@routes.get(
    "/v1/devices/{device_id}/strikes", Access.USER, summary="What of a device does not count",
    problems=(404,), response_model=StrikePage,
)  # fmt: skip
async def list_strikes(
    device_id: DevicePath,
    services: ServicesOf,
    limit: Limit = DEFAULT_PAGE,
    cursor: StrikeCursor = None,
) -> StrikePage:
    """Oldest first, lifted ones included."""
    key = decode_cursor("strikes", cursor, int)
    after = 0 if key is None else int(key[0])
    strikes = services.farm.strikes
    found = await services.database(strikes.of_board, device_id, after=after, limit=limit + 1)
    items = found[:limit]
    return StrikePage(
        items=[StrikeDocument.of(strike) for strike in items],
        next=encode_cursor("strikes", (items[-1].id,)) if len(found) > limit else None,
    )


@routes.post(
    "/v1/devices/{device_id}/strikes", Access.ADMIN, summary="Strike measurements of a device",
    status=201, problems=(404, 409), response_model=StrikeDocument,
)  # fmt: skip
async def strike_measurements(
    device_id: DevicePath, body: StrikeRequest, services: ServicesOf, principal: PrincipalOf
) -> StrikeDocument:
    """Off fronts, best kernels and what searches learn from, until the strike is lifted. Budgets
    of runs stay spent."""
    found = await services.database(
        services.farm.strikes.strike, device_id, body.reason,
        by=principal.id, since=body.since, until=body.until,
    )  # fmt: skip
    _log_strike(services, "measurements-struck", found, principal.id)
    return StrikeDocument.of(found)


@routes.post(
    "/v1/devices/{device_id}/strikes/{strike_id}/lift", Access.ADMIN,
    summary="Have struck measurements count again", problems=(404,),
    response_model=StrikeDocument,
)  # fmt: skip
async def lift_strike(
    device_id: DevicePath, strike_id: StrikePath, services: ServicesOf, principal: PrincipalOf
) -> StrikeDocument:
    """As they were. A repeat is allowed."""
    strikes = services.farm.strikes
    found = await services.database(strikes.lift, device_id, strike_id, by=principal.id)
    _log_strike(services, "measurements-restored", found, principal.id)
    return StrikeDocument.of(found)


def _log_strike(services: ServicesOf, event: str, strike: Strike, by: str) -> None:
    services.logger.info(
        event, device=strike.board_id, strike=strike.id, measurements=strike.measurements, by=by
    )


@routes.post(
    "/v1/enrolments", Access.ADMIN, summary="A one-time code for a board", status=201,
    response_model=CodeAnswer,
)  # fmt: skip
async def create_enrolment(
    body: CodeRequest, services: ServicesOf, principal: PrincipalOf
) -> CodeAnswer:
    """Give it to the board's agent: `nestmap worker --enrol CODE`."""
    new = await services.database(
        services.farm.enrolments.create,
        principal=principal.id, profile=body.profile, lifetime_s=body.valid_s,
    )  # fmt: skip
    return CodeAnswer(code=new.code, expires_at=new.expires_at)


@routes.get("/v1/tokens", Access.ADMIN, summary="Tokens", response_model=TokenPage)
async def list_tokens(
    services: ServicesOf, limit: Limit = DEFAULT_PAGE, cursor: TokenCursor = None
) -> TokenPage:
    """Without their secrets, which are not stored."""
    after = decode_keyset("tokens", cursor)
    found = await services.database(services.farm.tokens.page, limit=limit + 1, after=after)
    items = found[:limit]
    more = len(found) > limit
    return TokenPage(
        items=[TokenDocument.of(token) for token in items],
        next=encode_keyset("tokens", items[-1].created_at, items[-1].id) if more else None,
    )


@routes.post(
    "/v1/tokens", Access.ADMIN, summary="Make a token", status=201,
    response_model=NewTokenDocument,
)  # fmt: skip
async def create_token(body: TokenRequest, services: ServicesOf) -> NewTokenDocument:
    """Its text is in this answer and nowhere else."""
    try:
        new = await services.database(
            services.farm.tokens.create, Scope(body.scope),
            label=body.label, board_id=body.device, lifetime_s=body.lifetime_s,
        )  # fmt: skip
    except AbsentError:
        problem = Problem("/device", "there is no such device", body.device or "")
        raise ProblemError("invalid-input", problem.message, [problem]) from None
    return NewTokenDocument.of_new(new)


@routes.delete(
    "/v1/tokens/{token_id}", Access.ADMIN, summary="Revoke a token", status=204,
    problems=(404,), response_class=Response,
)  # fmt: skip
async def revoke_token(token_id: TokenPath, services: ServicesOf) -> Response:
    """It is invalid at once here, and within seconds in other processes of the service."""
    try:
        await services.database(services.farm.tokens.revoke, token_id)
    except AbsentError:
        raise not_found("token", token_id) from None
    services.authenticator.forget_tokens()
    return Response(status_code=204)
