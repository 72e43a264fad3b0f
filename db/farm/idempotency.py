"""Requests that may be sent twice: the second gets the first one's answer.

The key's row is written in the transaction of the work itself, first, so that of two requests
at once one waits for the other and then finds its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from sqlalchemy import update
from sqlalchemy.orm import Session

from db.farm.checking import MAX_PAYLOAD_BYTES, checked_hash, checked_json, checked_text
from db.farm.errors import IdempotencyKeyReused
from db.farm.records import IdempotencyKey, StoredResponse
from db.farm.run_records import Accepted
from db.farm.tables import IdempotencyRow
from db.transactions import Transactions, insert_if_absent
from mapper.errors import Problem


class Named(Protocol):
    """A value with an id, such as a run or a job."""

    @property
    def id(self) -> str:
        """Its name in the store."""
        ...


V = TypeVar("V", bound=Named)
#: Makes the response that is kept with a key from the value that was created.
Responder = Callable[[V], StoredResponse]


def once(
    session: Session,
    now: datetime,
    key: IdempotencyKey | None,
    create: Callable[[Session, datetime], V],
    find: Callable[[Session, str, datetime], V],
    respond: Responder[V] | None,
) -> Accepted[V]:
    """Create a value unless the key came before; then find what it created.

    ``IdempotencyKeyReused`` if it came with another body.
    """
    if key is None:
        return Accepted(create(session, now), None, repeated=False)
    prior = _reserve(session, now, key)
    if prior is not None:
        value = find(session, prior.resource, now)
        return Accepted(value, StoredResponse(prior.status, prior.response), repeated=True)
    value = create(session, now)
    response = respond(value) if respond else StoredResponse(201, {"id": value.id})
    _keep(session, key, response, value.id)
    return Accepted(value, response, repeated=False)


class Idempotency:
    """Keys of requests whose work is no run and no job."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def find(self, key: IdempotencyKey) -> StoredResponse | None:
        """The answer to an earlier request with this key; None if there was none.

        ``IdempotencyKeyReused`` if it came with another body.
        """
        _check(key)
        with self._transactions.read() as session:
            row = session.get(IdempotencyRow, (key.principal, key.key))
            if row is None:
                return None
            _require_same_body(row, key)
            return StoredResponse(row.status, row.response)

    def remember(self, key: IdempotencyKey, response: StoredResponse) -> StoredResponse:
        """Keep an answer; returns that of the request which was first to be kept."""
        with self._transactions.write() as session:
            prior = _reserve(session, self._now(), key)
            if prior is not None:
                return StoredResponse(prior.status, prior.response)
            _keep(session, key, response, "")
            return response


def _reserve(session: Session, now: datetime, key: IdempotencyKey) -> IdempotencyRow | None:
    """The row of an earlier request, or None after a row for this one was written."""
    _check(key)
    row = {
        "principal": key.principal,
        "key": key.key,
        "body_hash": key.body_hash,
        "status": 0,
        "response": None,
        "resource": "",
        "created_at": now,
    }
    if insert_if_absent(session, IdempotencyRow, row):
        return None
    prior = session.get_one(IdempotencyRow, (key.principal, key.key))
    _require_same_body(prior, key)
    return prior


def _keep(session: Session, key: IdempotencyKey, response: StoredResponse, resource: str) -> None:
    checked_json("response", response.body, MAX_PAYLOAD_BYTES)
    session.execute(
        update(IdempotencyRow)
        .where(IdempotencyRow.principal == key.principal, IdempotencyRow.key == key.key)
        .values(status=response.status, response=response.body, resource=resource),
        execution_options={"synchronize_session": False},
    )


def _check(key: IdempotencyKey) -> None:
    checked_text("principal", key.principal)
    checked_text("Idempotency-Key", key.key, least=1)
    checked_hash("body_hash", key.body_hash)


def _require_same_body(row: IdempotencyRow, key: IdempotencyKey) -> None:
    if row.body_hash != key.body_hash:
        raise IdempotencyKeyReused(
            Problem(
                "Idempotency-Key",
                "came before with another request",
                found=ascii(key.key)[:80],
                remedy="a new key for each new request",
            )
        )
