"""Runs migrations on the connection that ``db.engine`` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from db.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,  # SQLite too: db.engine begins every transaction itself
)
with context.begin_transaction():
    context.run_migrations()
