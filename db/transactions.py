"""Transactions: how every repository reads and writes, on SQLite and PostgreSQL alike.

A writing transaction begins as a writer on SQLite (``BEGIN IMMEDIATE``): it waits for its turn
at once, not in the middle. Whatever the database refuses comes out as
:class:`mapper.errors.StoreError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from db.engine import WRITE_OPTION, driver_message, store_error
from db.tables import Base


class Transactions:
    """Sessions on one engine; each is one transaction, committed at the end of its block."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{WRITE_OPTION: True})

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads; on SQLite it never waits for a writer."""
        with self._transaction(self.engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that writes; rolled back if the block raises."""
        with self._transaction(self._writer) as session:
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
            raise store_error(engine.url, driver_message(error)) from error


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
    dialect = session.get_bind().dialect.name
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    into = table_of(table)
    key = next(iter(into.primary_key))
    statement = make(into).values(**row).on_conflict_do_nothing().returning(key)
    return session.execute(statement).first() is not None
