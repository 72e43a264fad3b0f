"""Who this board is to the server: a token that the owner gave, or one earned by a code."""

from __future__ import annotations

import os
from typing import Any

from worker.agent import AGENT_VERSION
from worker.agent.bounded import NotAcceptable, field_of, identifier
from worker.agent.failures import AgentExit, AgentFailure, Refused
from worker.agent.http_calls import HttpCalls
from worker.agent.settings import Settings
from worker.agent.state_folder import Identity, StateFolder


def stored_identity(settings: Settings, state: StateFolder) -> Identity | None:
    """The identity that needs no enrolling: options first, then what enrolling stored."""
    stored = state.identity()
    if settings.token:
        device = settings.device_id
        if not device and stored is not None and stored.token == settings.token:
            device = stored.device
        if not device:
            raise AgentFailure(
                "--id: which device the token is for is missing; a token file may hold both, "
                "as in `dev_… nm_…`",
                AgentExit.BAD_OPTIONS,
            )
        return Identity(settings.url, device, settings.token)
    if stored is None:
        return None
    if stored.url != settings.url:
        raise AgentFailure(
            f"state folder {state.path} belongs to a device of {stored.url}, not of "
            f"{settings.url}; give --state another folder, or a token",
            AgentExit.BAD_OPTIONS,
        )
    return stored


def enrol(
    settings: Settings, state: StateFolder, calls: HttpCalls, facts: dict[str, Any]
) -> Identity:
    """Trade the one-time code for a token and store it.

    Raises AgentFailure for a code that is not good, TryAgain where the server is not there.
    """
    body = {
        "code": settings.enrolment_code,
        "name": settings.name or os.uname().nodename,
        "agent_version": AGENT_VERSION,
        "facts": facts,
    }
    try:
        _, answer = calls.post("/v1/enrol", body)
        identity = Identity(
            settings.url, identifier(answer, "device"), field_of(answer, "token", str)
        )
    except Refused as refusal:
        raise AgentFailure(
            f"the server does not take the enrolment code: {refusal}", AgentExit.TOKEN_REFUSED
        ) from None
    except NotAcceptable as error:
        raise AgentFailure(f"enrolling: {error}", AgentExit.SERVER) from None
    state.keep_identity(identity)
    return identity
