"""Tokens of the farm as principals."""

from __future__ import annotations

from api.auth import Principal, Role
from db.farm.farm import Farm


def principal_of_token(farm: Farm, text: str) -> Principal | None:
    """Whose token it is; None for one that is unknown, revoked or expired."""
    token = farm.tokens.verify(text, farm.presence)
    if token is None:
        return None
    return Principal(token.id, Role(token.scope.value), token.board_id)
