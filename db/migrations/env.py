"""Runs migrations on the connection that ``db.migrating`` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from db.farm import tables as _farm_tables  # registers its tables with Base
from db.tables import Base

del _farm_tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,  # SQLite too: db.engine begins every transaction itself
)
with context.begin_transaction():
    context.run_migrations()
