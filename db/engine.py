"""Opens a database: address to engine, engine to the newest schema.

SQLite needs three things said on each connection (WAL, busy timeout, foreign keys) and
its transactions begun by us: the Python driver would begin them late, and a reader that
turns writer late fails at once instead of waiting for its turn.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection as SqliteConnection
from sqlite3 import OperationalError as SqliteOperationalError
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    column,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    table,
)
from sqlalchemy.exc import (
    ArgumentError,
    DisconnectionError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from db.canonical import canonical_json
from mapper.errors import Problem, StoreError

BUSY_TIMEOUT_MS = 30_000
WRITE_OPTION = "nestmap_write"
#: A connection that was in use so lately is taken as alive. The one statement that meets a server
#: restarted since then fails, and with it goes every connection of the pool.
_TRUSTED_S = 1.0
LOST = "its file was deleted or replaced"
DIALECTS = ("sqlite", "postgresql")

#: The newest revision of db/migrations: a database that has it is opened without Alembic, whose
#: import takes as long as that of all the rest.
HEAD = "0008"
# Any constant does: it names the right to migrate among PostgreSQL's advisory locks.
MIGRATION_LOCK = 0x6E657374


def address_of(path_or_url: str | Path) -> URL:
    """A URL as it is; anything else is the path of an SQLite file, ``:memory:`` included."""
    if isinstance(path_or_url, Path) or "://" not in path_or_url:
        return URL.create("sqlite", database=str(path_or_url))
    try:
        url = make_url(path_or_url)
    except ArgumentError as error:
        raise StoreError(Problem("store", "not a database URL")) from error
    if url.get_backend_name() in DIALECTS:
        return url
    raise StoreError(
        Problem(
            "store",
            "this kind of database is not supported",
            found=url.get_backend_name(),
            allowed=", ".join(DIALECTS),
        )
    )


def store_error(url: URL, message: str, remedy: str = "") -> StoreError:
    """An error about the database at ``url``; a password in it is never shown."""
    shown = url.database if url.get_backend_name() == "sqlite" else None
    path = shown or url.render_as_string(hide_password=True)
    return StoreError(Problem(path, message, remedy=remedy))


def driver_message(error: Exception) -> str:
    """What the driver said, without SQLAlchemy's statement, parameters and link."""
    return str(getattr(error, "orig", None) or error).strip()


def open_engine(url: URL, *, connections: int = 15, durable: bool = False) -> Engine:
    """An engine on a database of the newest schema, created or migrated where needed.

    At most ``connections`` are open at once. ``durable`` says that on SQLite a transaction that
    was committed outlives a power cut; PostgreSQL is so by default.
    """
    identity = _check_file(url) if url.get_backend_name() == "sqlite" else None
    try:
        engine = create_engine(url, json_serializer=canonical_json, **_pool(url, connections))
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise store_error(
            url, f"the driver is not installed: {error}", "pip install psycopg"
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_durable_sqlite if durable else _set_up_sqlite)
        if identity is not None:
            event.listen(engine, "begin", _refuse_another_file(url, identity))
        event.listen(engine, "begin", _begin_sqlite)
    else:
        _find_dead_connections(engine)
    try:
        _migrate(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        message = driver_message(error)
        raise store_error(url, f"cannot be opened: {message}", _remedy(message)) from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def _pool(url: URL, connections: int) -> dict[str, Any]:
    """A bounded pool."""
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        return {}  # one connection a thread would be one database a thread: SQLAlchemy knows
    # The connection that was used last comes first: it is known to live, and knows the statements.
    return {"pool_size": connections, "max_overflow": 0, "pool_use_lifo": True}


def _find_dead_connections(engine: Engine) -> None:
    """Ask the server before a connection that has rested is used: it may have restarted.

    SQLAlchemy's own ``pool_pre_ping`` asks every time, which costs a busy service as much as
    its reads do.
    """

    def rests(connection: Any, record: ConnectionPoolEntry) -> None:
        del connection
        record.info["rests_since"] = time.monotonic()

    def is_taken(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
        since = record.info.get("rests_since")
        if since is None or time.monotonic() - since < _TRUSTED_S:
            return
        errors = engine.dialect.loaded_dbapi.Error
        try:
            engine.dialect.do_ping(connection)
        except errors as error:
            raise DisconnectionError(str(error)) from error  # the pool makes a new one

    event.listen(engine, "checkin", rests)
    event.listen(engine, "checkout", is_taken)


def _check_file(url: URL) -> tuple[int, int] | None:
    """Create an SQLite file with its folder, refuse what can never be one; which file it is.

    SQLite itself says no more than "unable to open database file" to all of these.
    """
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        return None
    path = Path(url.database)
    remedy = "another path"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode if path.exists() else None
        if mode is not None and stat.S_ISDIR(mode):
            raise store_error(url, "is a directory, not a database file", str(path / "nestmap.db"))
        if mode is not None and not stat.S_ISREG(mode):
            raise store_error(url, "is not a regular file", remedy)
        # What is measured and who may log in is the owner's alone; -wal and -shm get this mode too.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for suffix in ("", "-wal", "-shm"):
            _make_private(Path(f"{path}{suffix}"))
        found = path.stat()
        return found.st_dev, found.st_ino
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise store_error(url, message, remedy) from error


def _make_private(path: Path) -> None:
    """Take a file of ours from others, who could read it under an older version or a wider mask."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # not there, or a link, whose file is somebody's own affair
        return
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _refuse_another_file(url: URL, identity: tuple[int, int]) -> Callable[[Connection], None]:
    """A check before every transaction: a file that was deleted or replaced takes what is written
    to it into nowhere, and SQLite does not say so."""
    path = str(url.database)

    def check(_connection: Connection) -> None:
        try:
            found = os.stat(path)
        except OSError:
            raise store_error(url, LOST, "stop the service, bring a backup back") from None
        if (found.st_dev, found.st_ino) != identity:
            raise store_error(url, LOST, "stop the service, then start it on the right file")

    return check


def _set_up_sqlite(connection: SqliteConnection, _record: Any) -> None:
    connection.isolation_level = None  # no transaction but those of _begin_sqlite
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA foreign_keys = ON")
    # NORMAL with WAL: a crash of a process loses nothing, a power cut the last moments.
    connection.execute("PRAGMA synchronous = NORMAL")
    _turn_on_wal(connection)


def _set_up_durable_sqlite(connection: SqliteConnection, record: Any) -> None:
    _set_up_sqlite(connection, record)
    connection.execute("PRAGMA synchronous = FULL")


def _turn_on_wal(connection: SqliteConnection) -> None:
    """The switch to WAL does not honour the busy timeout, so wait for our turn here."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except SqliteOperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(WRITE_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _remedy(message: str) -> str:
    if "not a database" in message or "malformed" in message:
        return "another path, or a backup of this file"
    if "readonly" in message or "unable to open" in message:
        return "a path that you may write"
    return ""


def _migrate(engine: Engine) -> None:
    """Bring the schema to the head, once, however many processes open the database."""
    with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        if _is_at_head(connection):
            return
        from db.migrating import migrate

        migrate(connection)


def _is_at_head(connection: Connection) -> bool:
    if not inspect(connection).has_table("alembic_version"):
        return False
    found = connection.execute(select(column("version_num")).select_from(table("alembic_version")))
    return found.scalars().all() == [HEAD]
