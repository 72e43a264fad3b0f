"""Values of tokens, boards, events and artifacts, as repositories take and give them.

All are frozen; times are in UTC with their zone. Runs and jobs are in
:mod:`db.farm.run_records` and :mod:`db.farm.job_records`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from db.farm.states import BoardState, EventKind, Scope
from mapper.ast_model.bounded_json import loads_bounded
from mapper.errors import InputError

#: A board may state brackets by the thousand.
_PROFILE_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. ``board_id`` is set for scope ``device`` only."""

    id: str
    scope: Scope
    board_id: str | None
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token with its text ``nm_<id>.<secret>``, which is shown this once and never stored."""

    token: Token
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewCode:
    """A one-time enrolment code, shown this once and never stored."""

    code: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Board:
    """A board or host that an agent serves (a *device* of the API).

    ``facts`` are what its agent said last of hardware and software, ``health`` what changes
    from minute to minute (temperature, clocks). ``profile`` names a device profile, where one
    was given; without it limits come from the facts. ``reason`` and ``state_by`` say why the
    state is what it is and who set it: ``agent``, or the id of a token.
    """

    id: str
    name: str
    profile: str | None
    facts: Mapping[str, Any]
    health: Mapping[str, Any]
    state: BoardState
    reason: str
    state_by: str
    agent_version: str
    created_at: datetime
    last_seen: datetime | None

    @property
    def limits(self) -> Any:
        """The profile that it was given, by name, else the one that its facts state, as JSON;
        None where nothing is known of it."""
        stated = self.facts.get("profile") if self.profile is None else self.profile
        if self.profile is None and isinstance(stated, str):
            with contextlib.suppress(InputError):
                return loads_bounded(stated, max_depth=_PROFILE_DEPTH)
        return stated


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A board that has come in, with the token of its agent."""

    board: Board
    token: NewToken


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """One entry of a board's history."""

    id: int
    at: datetime
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Keyset:
    """A place in a list ordered by time of creation, then id: the last row of a page."""

    created_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; ``id`` grows within the database and is never given twice."""

    id: int
    run_id: str | None
    board_id: str | None
    kind: EventKind
    payload: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after an id, oldest first. ``gap`` says that some of them were dropped for good:
    the listener should read the run anew."""

    events: tuple[Event, ...]
    gap: bool


@dataclass(frozen=True, slots=True)
class Artifact:
    """Bytes by their SHA-256, without the bytes."""

    hash: str
    size: int
    media_type: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key that a principal sent with a request, and the SHA-256 of what was sent
    (method, path and body, as the API defines it)."""

    principal: str
    key: str
    body_hash: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What was answered to the first request with a key. Never put a secret in ``body``."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows a retention run removed, by table."""

    events: int = 0
    idempotency: int = 0
    enrolments: int = 0
    tokens: int = 0
    jobs: int = 0
    artifacts: int = 0
    programs: int = 0
