"""Devices and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from api.schemas.farm import DeviceId
from api.schemas.solving import Strict
from api.schemas.types import NO_NUL, Number, Timestamp
from db.farm.records import Board, BoardFacts, NewToken, Token
from db.farm.strikes import Strike

Reason = Annotated[str, StringConstraints(min_length=1, max_length=2_000, pattern=NO_NUL)]


class DeviceDocument(BaseModel):
    """A board or host that an agent serves."""

    id: str
    name: str
    profile: str | None
    state: Literal["active", "quarantined", "disabled"]
    reason: str
    state_by: str = Field(description="Who set the state: `agent`, or the id of a token")
    agent_version: str
    facts: dict[str, Any]
    health: dict[str, Any]
    created_at: datetime
    last_seen: datetime | None

    @classmethod
    def of(cls, board: Board) -> DeviceDocument:
        """The document of a board."""
        return cls(
            id=board.id,
            name=board.name,
            profile=board.profile,
            state=board.state.value,
            reason=board.reason,
            state_by=board.state_by,
            agent_version=board.agent_version,
            facts=dict(board.facts),
            health=dict(board.health),
            created_at=board.created_at,
            last_seen=board.last_seen,
        )


class DevicePage(BaseModel):
    """Devices, newest first."""

    items: list[DeviceDocument]
    next: str | None


class HealthEntry(BaseModel):
    """What a device said of itself at one time."""

    at: datetime
    facts: dict[str, Any]

    @classmethod
    def of(cls, entry: BoardFacts) -> HealthEntry:
        """The document of an entry."""
        return cls(at=entry.at, facts=dict(entry.facts))


class HealthPage(BaseModel):
    """A device's history, oldest first."""

    items: list[HealthEntry]
    next: str | None


class StateRequest(Strict):
    """Why a device is taken out of work."""

    reason: Reason


class StrikeRequest(Strict):
    """Which measurements of a device shall not count, by when they began; all without times."""

    reason: Reason
    since: Timestamp | None = Field(default=None, description="RFC 3339, with its zone")
    until: Timestamp | None = Field(default=None, description="What began before it; the end")


class StrikeDocument(BaseModel):
    """An admin's word that measurements of a device do not count."""

    id: int
    device: str
    since: datetime | None
    until: datetime | None
    reason: str
    by: str = Field(description="The id of a token")
    measurements: int = Field(description="How many were struck")
    created_at: datetime
    lifted_at: datetime | None = Field(description="Since when they count again")
    lifted_by: str

    @classmethod
    def of(cls, strike: Strike) -> StrikeDocument:
        """The document of a strike."""
        return cls(
            id=strike.id,
            device=strike.board_id,
            since=strike.since,
            until=strike.until,
            reason=strike.reason,
            by=strike.by,
            measurements=strike.measurements,
            created_at=strike.created_at,
            lifted_at=strike.lifted_at,
            lifted_by=strike.lifted_by,
        )


class StrikePage(BaseModel):
    """Strikes of a device, oldest first, lifted ones included."""

    items: list[StrikeDocument]
    next: str | None


class TokenRequest(Strict):
    """A token to be made; `device` is for the scope `device` and only for it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "oneOf": [
                {"properties": {"scope": {"enum": ["admin", "user"]}, "device": {"type": "null"}}},
                {
                    "required": ["device"],
                    "properties": {"scope": {"const": "device"}, "device": {"type": "string"}},
                },
            ]
        },
    )

    scope: Literal["admin", "user", "device"]
    label: Annotated[str, StringConstraints(max_length=200, pattern=NO_NUL)] = ""
    device: DeviceId | None = Field(default=None, validate_default=True)
    lifetime_s: Number | None = Field(default=None, ge=1, le=3_660 * 86_400)

    @field_validator("device")
    @classmethod
    def _of_devices_alone(cls, device: str | None, info: ValidationInfo) -> str | None:
        scope = info.data.get("scope", "device")
        if (scope == "device") != (device is not None):
            raise ValueError(f"does not go with scope {scope}")
        return device


class TokenDocument(BaseModel):
    """A token without its secret."""

    id: str
    scope: Literal["admin", "user", "device"]
    device: str | None
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @classmethod
    def of(cls, token: Token) -> TokenDocument:
        """The document of a token."""
        return cls(
            id=token.id,
            scope=token.scope.value,
            device=token.board_id,
            label=token.label,
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
            last_used_at=token.last_used_at,
        )


class NewTokenDocument(TokenDocument):
    """A new token with its text, which is shown this once."""

    token: str

    @classmethod
    def of_new(cls, new: NewToken) -> NewTokenDocument:
        """The document of a new token."""
        return cls(**TokenDocument.of(new.token).model_dump(), token=new.text)


class TokenPage(BaseModel):
    """Tokens, newest first, revoked ones included."""

    items: list[TokenDocument]
    next: str | None
