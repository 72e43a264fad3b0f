"""Tokens and one-time codes: shown once, stored as hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from db.farm.board_steps import add_board
from db.farm.checking import checked_limit, checked_number, checked_text
from db.farm.credentials import (
    code_hash,
    new_code,
    new_token,
    parse_token,
    same_hash,
    secret_hash,
)
from db.farm.errors import CodeGone, absent
from db.farm.paging import before
from db.farm.presence import USE_WRITTEN_EVERY_S, Presence
from db.farm.records import Enrolled, Keyset, NewCode, NewToken, Token
from db.farm.rows import board_of, token_of
from db.farm.statements import TOKEN, USED_NOW
from db.farm.states import Scope
from db.farm.tables import BoardRow, EnrolmentRow, TokenRow
from db.transactions import Transactions, table_of
from mapper.errors import InputError, Problem

MOST_LIFETIME_S = 3_660 * 86_400.0
_NO_HASH = "0" * 64
_codes = table_of(EnrolmentRow).c
_GOOD_CODE = select(_codes.hash).where(
    _codes.hash == bindparam("code"),
    _codes.used_at.is_(None),
    _codes.expires_at > bindparam("now", type_=_codes.expires_at.type),
)


class Tokens:
    """Creates, checks and revokes tokens."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def create(
        self,
        scope: Scope,
        *,
        label: str = "",
        board_id: str | None = None,
        lifetime_s: float | None = None,
    ) -> NewToken:
        """A new token; its text is in the result and nowhere else.

        ``board_id`` is for scope ``device`` and only for it. Raises ``AbsentError`` for an
        unknown board, ``InputError``.
        """
        _check(label, lifetime_s)
        with self._transactions.write() as session:
            if (scope is Scope.DEVICE) != (board_id is not None):
                raise InputError(
                    Problem("board_id", f"does not go with scope {scope}", ascii(board_id)[:80])
                )
            if board_id is not None and session.get(BoardRow, board_id) is None:
                raise absent("board", board_id)
            return add_token(session, scope, self._now(), label, board_id, lifetime_s)

    def verify(self, text: str, later: Presence | None = None) -> Token | None:
        """The token of this text; None if it is unknown, wrong, expired or revoked.

        The time of the answer does not depend on how much of the secret is right. Its last use
        is written when the one on record is a minute old, or gathered by ``later``.
        """
        parts = parse_token(text)
        if parts is None:
            return None
        token_id, secret = parts
        now = self._now()
        with self._transactions.look() as connection:
            row = connection.execute(TOKEN, {"token": token_id}).one_or_none()
        known = _NO_HASH if row is None else row.hash
        if not same_hash(secret_hash(secret), known) or row is None:
            return None
        if row.revoked_at is not None or (row.expires_at or now) < now:
            return None
        token = token_of(cast("TokenRow", row))
        used = token.last_used_at
        if used is None or (now - used).total_seconds() >= USE_WRITTEN_EVERY_S:
            (self._write_use if later is None else later.token_used)(token_id, now)
        return token

    def _write_use(self, token_id: str, now: datetime) -> None:
        before = now - timedelta(seconds=USE_WRITTEN_EVERY_S)
        with self._transactions.write(durable=False) as session:
            session.execute(USED_NOW, {"token": token_id, "used": now, "before": before})

    def revoke(self, token_id: str) -> Token:
        """Make a token invalid for good; a repeat keeps the first time. ``AbsentError``."""
        with self._transactions.write() as session:
            row = session.get(TokenRow, token_id, with_for_update=True)
            if row is None:
                raise absent("token", token_id)
            row.revoked_at = row.revoked_at or self._now()
            return token_of(row)

    def page(self, *, limit: int = 50, after: Keyset | None = None) -> tuple[Token, ...]:
        """Tokens, newest first, revoked ones included; without secrets."""
        rows = select(TokenRow).order_by(TokenRow.created_at.desc(), TokenRow.id.desc())
        if after is not None:
            rows = rows.where(before(TokenRow.created_at, TokenRow.id, after))
        with self._transactions.read() as session:
            return tuple(map(token_of, session.scalars(rows.limit(checked_limit(limit)))))

    def any_ever(self) -> bool:
        """Whether a token was ever made, valid or not: a new store has none."""
        with self._transactions.read() as session:
            return session.execute(select(TokenRow.id).limit(1)).first() is not None

    def any_of(self, scope: Scope) -> bool:
        """Whether there is a valid token of this scope: a first start has none."""
        now = self._now()
        valid = select(TokenRow.id).where(
            TokenRow.scope == scope,
            TokenRow.revoked_at.is_(None),
            TokenRow.expires_at.is_(None) | (TokenRow.expires_at > now),
        )
        with self._transactions.read() as session:
            return session.execute(valid.limit(1)).first() is not None


class Enrolments:
    """One-time codes with which a board comes in."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def create(
        self, *, principal: str = "", profile: str | None = None, lifetime_s: float = 3_600.0
    ) -> NewCode:
        """A new code; the board that uses it gets ``profile``."""
        checked_text("principal", principal)
        if profile is not None:
            checked_text("profile", profile, least=1)
        checked_number("lifetime_s", lifetime_s, 1.0, MOST_LIFETIME_S)
        code = new_code()
        with self._transactions.write() as session:
            now = self._now()
            expires_at = now + timedelta(seconds=lifetime_s)
            session.execute(
                insert(EnrolmentRow).values(
                    hash=code_hash(code),
                    profile=profile,
                    principal=principal,
                    created_at=now,
                    expires_at=expires_at,
                )
            )
            return NewCode(code, expires_at)

    def redeem(
        self, code: str, *, name: str, agent_version: str, facts: Mapping[str, Any]
    ) -> Enrolled:
        """Use a code: a board and its device token, in one transaction.

        Of several at once, one gets in. Raises ``CodeGone``, ``ConflictError`` for a name that
        is taken (the code stays good), ``InputError`` and ``LimitError``.
        """
        # Looked at first: whoever guesses must not hold the one place of a writer.
        with self._transactions.look() as connection:
            good = connection.execute(_GOOD_CODE, {"code": code_hash(code), "now": self._now()})
            if good.first() is None:
                raise _code_gone()
        with self._transactions.write() as session:
            now = self._now()
            used = (
                update(EnrolmentRow)
                .where(
                    EnrolmentRow.hash == code_hash(code),
                    EnrolmentRow.used_at.is_(None),
                    EnrolmentRow.expires_at > now,
                )
                .values(used_at=now)
                .returning(EnrolmentRow.hash, EnrolmentRow.profile)
            )
            row = session.execute(
                used, execution_options={"synchronize_session": False}
            ).one_or_none()
            if row is None:
                raise _code_gone()
            board = add_board(session, now, name, row.profile, agent_version, facts)
            session.execute(
                update(EnrolmentRow).where(EnrolmentRow.hash == row.hash).values(board_id=board.id),
                execution_options={"synchronize_session": False},
            )
            token = add_token(session, Scope.DEVICE, now, f"agent of {name}"[:200], board.id, None)
            return Enrolled(board_of(board), token)


def add_token(
    session: Session,
    scope: Scope,
    now: datetime,
    label: str,
    board_id: str | None,
    lifetime_s: float | None,
) -> NewToken:
    """Store a new token within a transaction."""
    text, token_id, token_hash = new_token()
    row = TokenRow(
        id=token_id,
        hash=token_hash,
        scope=scope,
        board_id=board_id,
        label=label,
        created_at=now,
        expires_at=None if lifetime_s is None else now + timedelta(seconds=lifetime_s),
        revoked_at=None,
        last_used_at=None,
    )
    session.add(row)
    session.flush()
    return NewToken(token_of(row), text)


def _code_gone() -> CodeGone:
    return CodeGone(Problem("code", "is unknown, was used or has expired"))


def _check(label: str, lifetime_s: float | None) -> None:
    checked_text("label", label)
    if lifetime_s is not None:
        checked_number("lifetime_s", lifetime_s, 1.0, MOST_LIFETIME_S)
