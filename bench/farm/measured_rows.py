"""Millions of measurements, written straight into the database: nothing of it is timed.

Studies of 100,000 points, as if as many boards had measured the same candidates. Times and
memory are lognormal, and what is faster tends to take more memory, so that a front has a few
dozen points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine, text

from db.canonical import canonical_json
from db.engine import WRITE_OPTION
from db.farm.farm import Farm

LABEL = "bench farm measurements"
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_VERSION = "bench"
_SOURCE = "0" * 64
_TRIALS = 20
_DETAIL = canonical_json({"facts": {}, "max_relative_error": 1e-6, "compile_ms": 100.0})
_PARAMETERS = canonical_json({"theta": 5, "rho": 1, "tile": [4, 4, 8]})
_MAPPING = canonical_json({"row": 32, "column": 1, "filter": 30, "assignment": list(range(12))})
_SIZES = canonical_json({"convolution": [7, 1, 180]})


def write_measurements(
    farm: Farm,
    engine: Engine,
    studies: int,
    points: int,
    seed: int,
    progress: Callable[[int], None],
) -> list[int]:
    """Studies with so many measurements each; their ids. ``progress`` gets the rows so far."""
    program = farm.store.add_program("nestmap/bench-farm/1", '{"bench":"measurements"}')
    found: list[int] = []
    with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
        _candidates(connection, program, points)
    indexes = _drop_indexes(engine)
    try:
        for number in range(studies):
            device = farm.store.add_device(f"simulated board {number}", {"number": number})
            study = farm.store.open_study(
                program, device, mode="strict", seed=seed, label=LABEL, variant="bench"
            )
            with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
                _measurements(connection, study.id, points, np.random.default_rng([seed, number]))
            found.append(study.id)
            progress((number + 1) * points)
    finally:
        for statement in indexes:
            with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
                connection.execute(text(statement))
    _analyse(engine)
    return found


def _candidates(connection: Connection, program: str, points: int) -> None:
    rows = (
        (_name(place), program, _PARAMETERS, _MAPPING, _SIZES, _SOURCE, 20_000_000, _VERSION)
        for place in range(points)
    )
    columns = (
        "id", "program_hash", "parameters", "mapping", "local_sizes", "source_hash",
        "memory_bytes", "nestmap_version",
    )  # fmt: skip
    _copy(connection, "candidates", columns, rows)


def _measurements(
    connection: Connection, study_id: int, points: int, drawn: np.random.Generator
) -> None:
    columns = (
        "study_id", "candidate_id", "kind", "detail", "trials", "time_ms", "memory_bytes",
        "source_hash", "nestmap_version", "started_at",
    )  # fmt: skip
    times_ns = (drawn.lognormal(1.0, 1.0, points) * 1e6).astype(np.int64) + 1
    memory = (drawn.lognormal(15.0, 1.0, points) * (1 + 2e6 / times_ns)).astype(np.int64)
    # Boards take candidates in an order of their own.
    order = drawn.permutation(points)
    stamps = _stamps(connection)
    rows = (
        (study_id, _name(place), "timed", _DETAIL, time_ns.to_bytes(8, "little") * _TRIALS,
         time_ns / 1e6, memory_bytes, _SOURCE, _VERSION, stamps(position))
        for position, (place, time_ns, memory_bytes) in enumerate(
            zip(order.tolist(), times_ns.tolist(), memory.tolist(), strict=True)
        )
    )  # fmt: skip
    _copy(connection, "measurements", columns, rows)


def _name(place: int) -> str:
    """Sixty-four digits, as scattered as the hash of a candidate is."""
    scattered = (place * 0x9E3779B97F4A7C15) % 2**64
    return f"{scattered:016x}{place:048x}"


def _stamps(connection: Connection) -> Callable[[int], Any]:
    """The time of the n-th measurement of a study, as the database takes it: one a second."""
    if connection.dialect.name == "postgresql":
        return lambda position: _BEGAN + timedelta(seconds=position)
    return lambda position: (_BEGAN + timedelta(seconds=position)).strftime("%Y-%m-%d %H:%M:%S.%f")


def _copy(
    connection: Connection, table: str, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]
) -> None:
    """COPY on PostgreSQL, batches of one prepared statement on SQLite."""
    listed = ", ".join(columns)
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        with (
            driver.cursor() as cursor,
            cursor.copy(f"COPY {table} ({listed}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
        return
    marks = ", ".join("?" * len(columns))
    driver.executemany(f"INSERT INTO {table} ({listed}) VALUES ({marks})", rows)


def _drop_indexes(engine: Engine) -> list[str]:
    """Drop what is made anew faster than it is kept up to date; the statements that make it."""
    if engine.dialect.name == "postgresql":
        drop = [
            "ALTER TABLE measurements DROP CONSTRAINT uq_measurements_study_id_candidate_id",
            "DROP INDEX ix_measurements_study_id_time_ms_memory_bytes",
            "ALTER TABLE measurements DROP CONSTRAINT fk_measurements_candidate_id",
            "ALTER TABLE measurements DROP CONSTRAINT fk_measurements_study_id",
        ]
        make = [
            "ALTER TABLE measurements ADD CONSTRAINT uq_measurements_study_id_candidate_id "
            "UNIQUE (study_id, candidate_id)",
            "CREATE INDEX ix_measurements_study_id_time_ms_memory_bytes "
            "ON measurements (study_id, time_ms, memory_bytes)",
            "ALTER TABLE measurements ADD CONSTRAINT fk_measurements_candidate_id "
            "FOREIGN KEY (candidate_id) REFERENCES candidates (id)",
            "ALTER TABLE measurements ADD CONSTRAINT fk_measurements_study_id "
            "FOREIGN KEY (study_id) REFERENCES studies (id)",
        ]
    else:
        drop = ["DROP INDEX ix_measurements_study_id_time_ms_memory_bytes"]
        make = [
            "CREATE INDEX ix_measurements_study_id_time_ms_memory_bytes "
            "ON measurements (study_id, time_ms, memory_bytes)"
        ]
    with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
        for statement in drop:
            connection.execute(text(statement))
    return make


def _analyse(engine: Engine) -> None:
    """What autovacuum does in its time."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        return
    with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
        connection.execute(text("ANALYZE"))


def sizes(engine: Engine) -> dict[str, Any]:
    """Bytes of the database, and on PostgreSQL of each part of the large tables, with rows."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            size = connection.execute(text("PRAGMA page_size")).scalar_one()
            return {"database_bytes": pages * size}
        total = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
        parts = connection.execute(
            text(
                "SELECT c.relname, pg_relation_size(c.oid), GREATEST(c.reltuples, 0)::bigint "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = 'public' AND c.relkind IN ('r', 'i') "
                "AND pg_relation_size(c.oid) >= 1000000 ORDER BY 2 DESC"
            )
        ).all()
    return {
        "database_bytes": total,
        "parts": [{"name": name, "bytes": size, "rows": rows} for name, size, rows in parts],
    }


def plan_of(engine: Engine, statement: Any) -> list[str]:
    """How the database answers a statement, in its own words."""
    compiled = statement.compile(engine, compile_kwargs={"literal_binds": True})
    whole = engine.dialect.name == "postgresql"
    asking = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF)" if whole else "EXPLAIN QUERY PLAN"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{asking} {str(compiled).replace('%', '%%')}").all()
    return [str(row[0] if whole else row[-1]) for row in rows]
