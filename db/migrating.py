"""Migrations of a database by Alembic, which is imported where there is one to be made."""

from __future__ import annotations

import threading

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from db.engine import store_error

# Alembic keeps its context in module globals, so that threads migrate one at a time.
_one_migration = threading.Lock()


def migration_config(connection: Connection) -> Config:
    """Alembic's settings: the scripts travel in this package, no alembic.ini is needed."""
    config = Config()
    config.set_main_option("script_location", "db:migrations")
    config.attributes["connection"] = connection
    return config


def migrate(connection: Connection) -> None:
    """Bring the schema to the head within the connection's transaction; raises StoreError for a
    database of something else or of a newer nestmap."""
    config = migration_config(connection)
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current is None and inspect(connection).get_table_names():
        raise store_error(
            connection.engine.url,
            "holds tables of something else, not of nestmap",
            "another database",
        )
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        raise store_error(
            connection.engine.url,
            f"was written by a newer nestmap (schema revision {current})",
            "a newer nestmap",
        )
    with _one_migration:
        command.upgrade(config, "head")
