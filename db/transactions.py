"""Transactions: how every repository reads and writes, on SQLite and PostgreSQL alike.

A writing transaction begins as a writer on SQLite (``BEGIN IMMEDIATE``): it waits for its turn
at once, not in the middle. On PostgreSQL a reading one is none: each statement sees what was
committed before it, as it would within a transaction of that isolation, and needs one round trip
instead of three. Whatever the database refuses comes out as :class:`mapper.errors.StoreError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, Table, bindparam, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from db.engine import WRITE_OPTION, driver_message, store_error
from db.tables import Base
from mapper.errors import StoreError

_NEED_NOT_LAST = text("SET LOCAL synchronous_commit TO OFF")


class Transactions:
    """Sessions on one engine; each is one transaction, committed at the end of its block."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{WRITE_OPTION: True})
        self._postgresql = engine.dialect.name == "postgresql"
        reading = {"isolation_level": "AUTOCOMMIT"} if self._postgresql else {}
        self._reader = engine.execution_options(**reading)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads; on SQLite it never waits for a writer, and sees one state."""
        with self._transaction(self._reader) as session:
            yield session

    @property
    def writes_at_once(self) -> bool:
        """Whether :meth:`look` may also run a statement that does all of a quick write by itself,
        and whose commit says in it that it need not wait for the disk."""
        return self._postgresql

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """As :meth:`read`, for statements on tables: a session costs more than a quick one."""
        try:
            with self._reader.connect() as connection:
                yield connection
        except (SQLAlchemyError, OverflowError, UnicodeEncodeError) as error:
            raise self._refused(error) from error

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Session]:
        """A transaction that writes; rolled back if the block raises.

        ``durable`` False is for what may be forgotten when PostgreSQL crashes in the next
        second, such as who was seen when: its commit does not wait for the disk.
        """
        with self._transaction(self._writer) as session:
            if self._postgresql and not durable:
                session.execute(_NEED_NOT_LAST)
            yield session

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                yield session
        except (SQLAlchemyError, OverflowError, UnicodeEncodeError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> StoreError:
        return store_error(self.engine.url, driver_message(error))


def table_of(row: type[Base]) -> Table:
    """The table of a row class. Statements on it pass the object mapper by, which costs more
    than the database does where nothing is to be kept in a session."""
    table = row.__table__
    assert isinstance(table, Table)
    return table


def insert_if_absent(session: Session, table: type[Base], row: Mapping[str, Any]) -> bool:
    """Insert ``row`` unless one with the same key is there; say whether it was inserted.

    A transaction that is about to insert the same key is waited for.
    """
    return inserted_key(session, table, row) is not None


def inserted_key(session: Session, table: type[Base], row: Mapping[str, Any]) -> Any:
    """The same; the first column of the primary key if it was inserted, else None."""
    statement = _insertion(table, session.get_bind().dialect.name, tuple(row))
    return session.execute(statement, row).scalar()


def insert_all_absent(
    session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]
) -> int:
    """The same for many rows of the same columns, in few statements; how many were inserted."""
    return len(inserted_keys(session, table, rows))


def inserted_keys(
    session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """The same; the first column of the primary key of each that was inserted."""
    if len(rows) < 2:  # the way for many costs one row twice as much
        keys = [inserted_key(session, table, row) for row in rows]
        return [key for key in keys if key is not None]
    statement = _insertion(table, session.get_bind().dialect.name, tuple(rows[0]))
    return list(session.execute(statement, rows).scalars())


@cache
def _insertion(table: type[Base], dialect: str, columns: tuple[str, ...]) -> Any:
    """Made once for each: to build a statement costs more than to run it."""
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    into = table_of(table)
    values = {name: bindparam(name) for name in columns}
    key = next(iter(into.primary_key))
    return make(into).values(values).on_conflict_do_nothing().returning(key)
