"""Secrets: tokens, enrolment codes and tokens of leases. Only hashes of them are stored.

All are drawn with at least 100 bits, so that a plain SHA-256 cannot be inverted by trying.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

TOKEN_PREFIX = "nm_"
_ID_BYTES = 9
_SECRET_BYTES = 32
MAX_TOKEN_CHARACTERS = 200

# No I, L, O and U: codes are typed in by people.
_CODE_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CODE_GROUPS = 4
_GROUP_CHARACTERS = 5


def new_token() -> tuple[str, str, str]:
    """``(text, id, hash)`` of a new token ``nm_<id>.<secret>`` with a secret of 256 bits."""
    token_id = secrets.token_urlsafe(_ID_BYTES)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return f"{TOKEN_PREFIX}{token_id}.{secret}", token_id, secret_hash(secret)


def parse_token(text: str) -> tuple[str, str] | None:
    """``(id, secret)`` of a token's text; None if it is not of that form."""
    if len(text) > MAX_TOKEN_CHARACTERS or not text.isascii() or "\0" in text:
        return None
    if not text.startswith(TOKEN_PREFIX):
        return None
    token_id, dot, secret = text.removeprefix(TOKEN_PREFIX).partition(".")
    return (token_id, secret) if token_id and dot and secret else None


def new_code() -> str:
    """A one-time code of 100 bits, in four groups of five characters."""
    groups = (
        "".join(secrets.choice(_CODE_ALPHABET) for _ in range(_GROUP_CHARACTERS))
        for _ in range(_CODE_GROUPS)
    )
    return "-".join(groups)


def code_hash(code: str) -> str:
    """The hash of a code however it was typed: case, dashes and spaces do not count."""
    kept = "".join(c for c in code[:MAX_TOKEN_CHARACTERS].upper() if c.isalnum())
    return secret_hash(kept)


def new_lease_token() -> str:
    """The token that fences one claim of a job."""
    return secrets.token_urlsafe(24)


def secret_hash(secret: str) -> str:
    """SHA-256 in hexadecimal; any text has one, lone surrogates included."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def same_hash(first: str, second: str) -> bool:
    """Compare two hashes in a time that says nothing about where they differ."""
    return hmac.compare_digest(first, second)
