"""The store: programs, devices, studies, candidates and what measuring them gave.

SQLite in a file is the default, PostgreSQL by URL; :class:`db.store.Store` opens either.
"""
