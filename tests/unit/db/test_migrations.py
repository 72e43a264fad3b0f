"""A database of each earlier revision keeps its data when it is opened; models and migrations
agree; backups made while writing restore."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    CheckConstraint,
    Connection,
    Engine,
    UniqueConstraint,
    create_engine,
    inspect,
    text,
)

from db.canonical import canonical_json, content_hash
from db.engine import HEAD, address_of, open_engine
from db.farm.farm import Farm
from db.farm.owners import ROW_BYTES
from db.farm.retention import RetentionPolicy
from db.farm.selection import Selection
from db.migrating import migration_config
from db.tables import Base
from mapper.errors import StoreError
from mapper.measurement import Timed
from tests.unit.db.farm_values import Clock, claim, finish, propose, some_board, some_run
from tests.unit.db.postgres_server import program

CANDIDATE = "c" * 64
PROGRAM = "a" * 64
# Rows as each revision had them, written with its own columns: no model of today is used.
ROWS: dict[str, tuple[str, ...]] = {
    "0001": (
        f"INSERT INTO programs VALUES ('{PROGRAM}', 'nestmap/program/1', '{{\"kernels\":[]}}')",
        f"INSERT INTO devices VALUES (7, '{'d' * 64}', 'pocl', '{{\"driver\":\"3.0\"}}')",
        f"INSERT INTO studies VALUES (3, '{PROGRAM}', 7, 'strict', 5, 'vgg16/0', 'direct', "
        "'2026-01-02 03:04:05.000006+00:00')",
        f"INSERT INTO candidates VALUES ('{CANDIDATE}', '{PROGRAM}', '{{\"theta\":4}}', "
        f"'{{\"outer\":\"wrg0\"}}', '[16,1]', '{'e' * 64}', 1024, '0.1.0')",
        f"INSERT INTO measurements VALUES (9, 3, '{CANDIDATE}', 'timed', "
        '\'{"compile_ms":1.0,"facts":{},"max_relative_error":0.0}\', '
        "{trials}, 0.000005, 2048, '" + "f" * 64 + "', '0.1.0', "
        "'2026-01-02 03:04:06.000007+00:00')",
    ),
    "0002": (
        "INSERT INTO boards VALUES ('dev_old', 'old', 'pocl', '{}', '{}', 'active', '', '', "
        "'0.1.0', '2026-01-02 03:04:05.000006+00:00', NULL)",
        "INSERT INTO runs VALUES ('run_old', 'dev_old', 'vgg16/0', 'me', '{}', 'finished', "
        "'exhausted', 0, 4, NULL, NULL, NULL, true, 1, 0, 1, 0, 0, 0, 0, 0, 1.5, 2048, NULL, 0, "
        "'2026-01-02 03:04:05.000006+00:00', NULL, NULL, 0.0, NULL)",
    ),
}
#: A database of a revision has what earlier ones had.
ROWS["0002"] = (*ROWS["0001"], *ROWS["0002"])
ROWS["0003"] = (
    *ROWS["0002"],
    "INSERT INTO run_boards VALUES ('run_old', 'dev_old')",
)
ROWS["0004"] = (*ROWS["0003"], "INSERT INTO run_studies VALUES ('run_old', 3)")
DETAIL = '{"compile_ms":1.0,"facts":{},"max_relative_error":0.0}'
ROWS["0005"] = (
    *(row if "measurements" not in row else row[:-1] + ", 'dev_old')" for row in ROWS["0004"]),
    f"INSERT INTO candidates VALUES ('{'b' * 64}', '{PROGRAM}', '{{}}', '{{}}', '[]', "
    f"'{'e' * 64}', 1024, '0.1.0')",
    "INSERT INTO strikes VALUES (4, 'dev_old', NULL, NULL, 'lied', 'me', 1, "
    "'2026-01-02 03:04:05.000006+00:00', NULL, '')",
    f"INSERT INTO struck_measurements VALUES (8, 4, 3, '{'b' * 64}', 'timed', '{DETAIL}', "
    "{trials}, 0.000005, 2048, '" + "f" * 64 + "', '0.1.0', "
    "'2026-01-02 03:04:06.000007+00:00', 'dev_old')",
)
ROWS["0006"] = tuple(
    row[:-1] + ", NULL)" if "measurements VALUES" in row else row for row in ROWS["0005"]
)
SCHEDULED = canonical_json({"program": {"kernels": []}, "schedule": [], "schema": "x"})
ROWS["0007"] = (
    *(row[:-1] + ", NULL, NULL)" if "INTO programs" in row else row for row in ROWS["0006"]),
    f"INSERT INTO programs VALUES ('{'9' * 64}', 'nestmap/scheduled/1', '{SCHEDULED}', NULL, NULL)",
)


@contextmanager
def plain_engine(url: str) -> Iterator[Engine]:
    """An engine that migrates nothing."""
    engine = create_engine(address_of(url))
    yield engine
    engine.dispose()


def every_revision() -> list[str]:
    with create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(migration_config(connection))
        return [script.revision for script in scripts.walk_revisions()]


def write_rows(connection: Connection, revision: str) -> None:
    trials = {"sqlite": "x'0500000000000000'", "postgresql": "'\\x0500000000000000'"}
    for statement in ROWS[revision]:
        filled = statement.replace("{trials}", trials[connection.dialect.name])
        if connection.dialect.name == "sqlite":
            filled = filled.replace("+00:00", "")
        connection.exec_driver_sql(filled)


def test_every_earlier_revision_has_rows_here():
    assert set(every_revision()) == set(ROWS) | {HEAD}


@pytest.mark.parametrize("revision", sorted(ROWS))
def test_an_earlier_database_keeps_its_data(empty_url: str, revision: str):
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.upgrade(migration_config(connection), revision)
        write_rows(connection, revision)
        tables = {
            table: ", ".join(column["name"] for column in inspect(connection).get_columns(table))
            for table in inspect(connection).get_table_names()
            if table != "alembic_version"
        }
        before = {
            table: connection.execute(text(f"SELECT {columns} FROM {table} ORDER BY 1")).all()
            for table, columns in tables.items()
        }
    with Farm.open(empty_url) as farm:
        (study,) = farm.store.studies()
        assert (study.id, study.label, study.seed) == (3, "vgg16/0", 5)
        (measurement,) = farm.store.measurements(study)
        assert measurement.outcome == Timed((5,), 0.0, 1.0)
        assert measurement.started_at.microsecond == 7
        assert farm.store.candidate(CANDIDATE).parameters == {"theta": 4}
        assert [p.candidate_id for p in farm.fronts.front(Selection(label="vgg16/0"))] == [
            CANDIDATE
        ]
        board = some_board(farm)  # and the new tables work
        some_run(farm, board, budget_candidates=1)
        propose(farm, [0])
        assert finish(farm, claim(farm, board)).stored
    with plain_engine(empty_url) as engine, engine.connect() as connection:
        for table, rows in before.items():
            columns = tables[table]
            after = connection.execute(text(f"SELECT {columns} FROM {table} ORDER BY 1")).all()
            assert set(map(str, rows)) <= set(map(str, after))


def test_measurements_of_before_know_their_board(empty_url: str):
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.upgrade(migration_config(connection), "0004")
        write_rows(connection, "0004")
    with Farm.open(empty_url) as farm:
        assert farm.strikes.strike("dev_old", "lied", by="me").measurements == 1
        assert farm.fronts.front(Selection(label="vgg16/0")) == ()


def test_what_was_struck_before_comes_back_without_spans(empty_url: str):
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.upgrade(migration_config(connection), "0005")
        write_rows(connection, "0005")
    with Farm.open(empty_url) as farm:
        farm.strikes.lift("dev_old", 4, by="me")
        (study,) = farm.store.studies()
        outcomes = [stored.outcome for stored in farm.store.measurements(study)]
        assert outcomes == [Timed((5,), 0.0, 1.0)] * 2


def test_what_owners_had_before_is_counted(empty_url: str):
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.upgrade(migration_config(connection), "0006")
        write_rows(connection, "0006")
    with Farm.open(empty_url) as farm:
        assert farm.owners.stored_bytes("me") == len("{}") + ROW_BYTES
        assert farm.owners.stored_bytes("other") == 0
        # Nobody owns programs of before: they are kept for good.
        later = RetentionPolicy(programs_days=0)
        assert farm.retention.prune(later).programs == 0


def test_programs_of_before_are_found_by_what_was_written(empty_url: str):
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.upgrade(migration_config(connection), "0007")
        write_rows(connection, "0007")
    with Farm.open(empty_url) as farm:
        assert farm.store.under_schedules(content_hash('{"kernels":[]}')) == {"9" * 64}
        assert farm.store.program(PROGRAM).written_hash == PROGRAM
        assert farm.store.under_schedules(PROGRAM) == frozenset()


def test_devices_of_before_have_the_target_that_pocl_told(empty_url: str):
    version = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"
    facts = {"device.version": version, "driver.version": "3.0-rc2"}
    insert = text("INSERT INTO devices VALUES (:id, :fingerprint, :name, :facts)")
    rows = [(1, "pthread-AMD", facts), (2, "NVIDIA H200", {"driver.version": "580"})]
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.upgrade(migration_config(connection), "0003")
        for number, name, known in rows:
            values = {"fingerprint": content_hash(canonical_json([name, known])), "name": name}
            connection.execute(insert, {"id": number, "facts": json.dumps(known), **values})
    with Farm.open(empty_url) as farm:
        # The same device, as an agent of today describes it, is the row of before.
        assert farm.store.add_device("pthread-AMD", {**facts, "device.target": "znver3"}) == 1
        assert farm.store.add_device("NVIDIA H200", {"driver.version": "580"}) == 2
        # Another target is another device: its times are others.
        other = farm.store.add_device("pthread-AMD", {**facts, "device.target": "skylake-avx512"})
        assert other not in (1, 2)
    with plain_engine(empty_url) as engine, engine.begin() as connection:
        command.downgrade(migration_config(connection), "0003")
    with Farm.open(empty_url) as farm:
        assert farm.store.add_device("pthread-AMD", {**facts, "device.target": "znver3"}) == 1


def test_down_and_up_again(empty_url: str):
    with plain_engine(empty_url) as engine:
        with engine.begin() as connection:
            config = migration_config(connection)
            command.upgrade(config, "head")
            command.downgrade(config, "base")
            assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
        with engine.begin() as connection:
            command.upgrade(migration_config(connection), "head")


def test_models_equal_migrations(farm_url: str):
    engine = open_engine(address_of(farm_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        command.check(migration_config(connection))
    engine.dispose()


def test_constraints_and_partial_indexes_equal_migrations(empty_url: str):
    """What Alembic does not compare: check constraints, conditions of indexes, cascades."""
    with plain_engine(empty_url) as engine:
        Base.metadata.create_all(engine)
        modelled = described(engine)
        Base.metadata.drop_all(engine)
    Farm.open(empty_url).close()
    with plain_engine(empty_url) as engine:
        assert described(engine) == modelled
        assert modelled["jobs"]["checks"]
        assert "leased" in str(modelled["jobs"]["indexes"])


def described(engine: Engine) -> dict[str, Any]:
    found = inspect(engine)
    return {
        table: {
            "checks": sorted(
                (check["name"], check["sqltext"]) for check in found.get_check_constraints(table)
            ),
            "indexes": sorted(
                (
                    index["name"],
                    index["column_names"],
                    bool(index["unique"]),
                    str((index.get("dialect_options") or {}).get(f"{engine.name}_where")),
                )
                for index in found.get_indexes(table)
            ),
            "foreign": sorted(
                (key["name"], key["referred_table"], str(key.get("options")))
                for key in found.get_foreign_keys(table)
            ),
            "unique": sorted(
                (key["name"], key["column_names"]) for key in found.get_unique_constraints(table)
            ),
        }
        for table in sorted(found.get_table_names())
        if table != "alembic_version"
    }


def test_every_constraint_has_a_name():
    """Without one, a later migration could not change it."""
    for table in Base.metadata.tables.values():
        for constraint in table.constraints:
            if isinstance(constraint, CheckConstraint | UniqueConstraint):
                assert constraint.name, f"{table.name}: {constraint}"


def test_the_database_itself_keeps_one_live_lease_a_board(farm: Farm, clock: Clock):
    board = some_board(farm)
    some_run(farm, board, low_water=1)
    propose(farm, range(2))
    claim(farm, board)
    by_hand = text(
        "UPDATE jobs SET state = 'leased', lease_until = created_at "
        "WHERE kind = 'measure' AND state = 'queued'"
    )
    with (
        pytest.raises(StoreError, match=r"(?i)unique"),
        farm.store._transactions.write() as session,
    ):
        session.execute(by_hand)


# Backups while writing


def measured_pairs(farm: Farm) -> tuple[int, int]:
    """Measurements that are stored, and those that their run has counted: always equal."""
    stored = sum(farm.measurements.counts(Selection()).values())
    return stored, sum(run.progress.measured for run in farm.runs.page())


def write_until(farm: Farm, stop: threading.Event, written: list[int]) -> None:
    board = some_board(farm)
    some_run(farm, board, low_water=1)
    number = 0
    while not stop.is_set():
        propose(farm, range(number, number + 5))
        for _ in range(5):
            finish(farm, claim(farm, board))
            written.append(number)
        number += 5


def restored(farm_url: str, back_up: Callable[[], str], connections: int = 4) -> None:
    stop, written = threading.Event(), list[int]()
    with Farm.open(farm_url, connections=connections) as farm:
        writer = threading.Thread(target=write_until, args=(farm, stop, written))
        writer.start()
        try:
            while len(written) < 5 and writer.is_alive():
                stop.wait(0.01)
            at_least = len(written)
            copy = back_up()
        finally:
            stop.set()
            writer.join(60)
    with Farm.open(copy) as farm:
        stored, counted = measured_pairs(farm)
        assert stored == counted
        assert at_least <= stored <= len(written)
        (board,) = farm.boards.page()
        claimed = farm.jobs.claim_for_board(board.id, lease_s=30)
        if claimed is not None:  # work goes on from the copy
            assert finish(farm, claimed).stored


@pytest.mark.parametrize("way", ["vacuum", "api"])
def test_sqlite_backup_while_writing(migrated_sqlite: Path, tmp_path: Path, way: str):
    path, copy = tmp_path / "farm.db", tmp_path / "copy.db"
    path.write_bytes(migrated_sqlite.read_bytes())

    def back_up() -> str:
        with closing(sqlite3.connect(path, timeout=30)) as source:
            if way == "vacuum":
                source.execute("VACUUM INTO ?", (str(copy),))
            else:
                with closing(sqlite3.connect(copy)) as target:
                    source.backup(target)
        return str(copy)

    restored(str(path), back_up)


@pytest.mark.needs("pg_ctlcluster", install="apt-get install postgresql")
def test_postgres_dump_while_writing(
    new_postgres: Callable[[str], str], migrated_postgres: str, tmp_path: Path
):
    url, target = new_postgres(migrated_postgres), new_postgres("template0")

    def back_up() -> str:
        dump = tmp_path / "farm.dump"
        for arguments in (
            ("pg_dump", "--format=custom", f"--file={dump}", plain(url)),
            ("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={plain(target)}", str(dump)),
        ):
            subprocess.run(
                [program(arguments[0]), *arguments[1:]], check=True, capture_output=True, timeout=60
            )
        return target

    restored(url, back_up)


def plain(url: str) -> str:
    """A URL as PostgreSQL's own programs read it."""
    return url.replace("postgresql+psycopg://", "postgresql://")
