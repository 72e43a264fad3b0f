"""What an operator does to a whole database: look at its schema, bring it up to date, copy it."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import SQLAlchemyError

from db.engine import driver_message, open_engine, store_error
from db.migrating import migration_config

#: Pages of 4 KiB that a copy takes at a time; writers go on between two steps.
_PAGES_A_STEP = 2_000


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The revision of a database (None: it has no tables yet) and the newest one known here."""

    revision: str | None
    head: str

    @property
    def up_to_date(self) -> bool:
        """Whether opening the database would change nothing."""
        return self.revision == self.head


def schema_status(url: URL) -> SchemaStatus:
    """The schema of a database as it is; nothing is created or migrated.

    StoreError if it cannot be read; an SQLite file that does not exist is an error too.
    """
    if url.get_backend_name() == "sqlite":
        _require_file(url)
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            scripts = ScriptDirectory.from_config(migration_config(connection))
            head = scripts.get_current_head()
            assert head is not None
            revision = MigrationContext.configure(connection).get_current_revision()
            return SchemaStatus(revision, head)
    except SQLAlchemyError as error:
        raise store_error(url, f"cannot be read: {driver_message(error)}") from error
    finally:
        engine.dispose()


def upgrade(url: URL) -> SchemaStatus:
    """Create or migrate the tables, once however many call; the status after it."""
    open_engine(url).dispose()
    return schema_status(url)


def back_up(url: URL, target: Path, progress: Callable[[int, int], None] | None = None) -> int:
    """Copy an SQLite database that may be in use to the new file ``target``; its bytes.

    The copy is one moment of the database, complete or not there at all: it gets its name
    last. ``progress`` is told pages left and pages in all. StoreError if ``target`` exists, or
    for PostgreSQL, which has a tool of its own.
    """
    if url.get_backend_name() != "sqlite":
        raise store_error(
            url,
            "is backed up by PostgreSQL's own tool",
            "pg_dump --format=custom --file=nestmap.dump, and pg_restore",
        )
    source = _require_file(url)
    if target.exists():
        raise store_error(url, f"{target} exists and is not overwritten", "another name")

    def told(status: int, left: int, total: int) -> None:
        del status
        if progress is not None:
            progress(left, total)

    try:
        with tempfile.TemporaryDirectory(prefix=".nestmap-", dir=target.parent) as folder:
            part = Path(folder) / "copy"
            part.touch(0o600)
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(part)) as new:
                old.backup(new, pages=_PAGES_A_STEP, progress=told)
                # A copy is one file: nobody should have to know of a -wal beside it.
                new.execute("PRAGMA journal_mode = DELETE")
                (found,) = new.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise store_error(url, f"the copy is not sound: {found}", "the newest backup")
            _sync(part)
            # Not over a file that somebody else has made meanwhile.
            os.link(part, target)
            return target.stat().st_size
    except (sqlite3.Error, OSError) as error:
        raise store_error(url, f"cannot be copied to {target}: {error}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_file(url: URL) -> Path:
    path = Path(url.database or "")
    if not path.is_file():
        raise store_error(url, "is no file", "nestmap db upgrade, which creates it")
    return path
