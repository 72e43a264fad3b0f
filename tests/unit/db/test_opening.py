"""Opening: what is created, what is refused, and that models and migrations agree."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_mock_engine, text

from db.engine import address_of, open_engine
from db.store import Store
from db.tables import Base
from mapper.errors import StoreError
from tests.unit.db.test_migrations import HEAD


def scalar(path: Path, sql: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


def test_creates_the_file_and_its_folder(tmp_path: Path):
    path = tmp_path / "new" / "store.db"
    with Store.open(path) as store:
        assert store.studies() == ()
    assert scalar(path, "SELECT version_num FROM alembic_version") == HEAD


def test_opens_again_by_path_text_and_url(tmp_path: Path):
    path = tmp_path / "store %41.db"  # a percent sign is not an escape, for Alembic neither
    for address in (path, str(path)):
        with Store.open(address) as store:
            program_hash = store.add_program("nestmap/program/1", "{}")
            assert store.program(program_hash).json_text == "{}"
    plain = tmp_path / "url.db"
    Store.open(f"sqlite:///{plain}").close()
    assert plain.exists()


def test_opens_in_memory():
    with Store.open(":memory:") as store:
        program_hash = store.add_program("nestmap/program/1", "{}")
        assert store.program(program_hash).hash == program_hash


def test_pragmas(tmp_path: Path):
    engine = open_engine(address_of(tmp_path / "store.db"))
    with engine.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "foreign_keys", "busy_timeout")
        }
    engine.dispose()
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 30_000}


def test_models_equal_migrations(tmp_path: Path):
    engine = open_engine(address_of(tmp_path / "store.db"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_checks_equal_migrations(tmp_path: Path):
    """Alembic does not compare check constraints; their names and texts are compared here."""
    Store.open(tmp_path / "store.db").close()
    statements: list[str] = []
    models = create_mock_engine(
        "sqlite://", lambda sql, *_, **__: statements.append(str(sql.compile(dialect=dialect)))
    )
    dialect = models.dialect
    Base.metadata.create_all(models, checkfirst=False)
    model = next(text for text in statements if "CREATE TABLE measurements" in text)
    migrated = scalar(
        tmp_path / "store.db", "SELECT sql FROM sqlite_master WHERE name = 'measurements'"
    )
    assert checks(str(migrated)) == checks(model) != []


def checks(create_table: str) -> list[str]:
    lines = (line.strip().rstrip(",").strip() for line in create_table.splitlines())
    return sorted(line for line in lines if "CHECK" in line)


def test_a_directory_is_refused(tmp_path: Path):
    with pytest.raises(StoreError, match="is a directory"):
        Store.open(tmp_path)


@pytest.mark.parametrize("where", ["plain-file/store.db", "/proc/nowhere/store.db", "/dev/null"])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, where: str):
    (tmp_path / "plain-file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written|not a regular file"):
        Store.open(tmp_path / where)


def test_a_read_only_address_reads_and_refuses_to_write(tmp_path: Path):
    path = tmp_path / "store.db"
    with Store.open(path) as store:
        program_hash = store.add_program("nestmap/program/1", "{}")
    with Store.open(f"sqlite:///file:{path}?mode=ro&uri=true") as store:
        assert store.program(program_hash).json_text == "{}"
        with pytest.raises(StoreError, match="attempt to write a readonly database"):
            store.add_program("nestmap/program/1", "[]")


def test_permission_denied_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def deny(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(StoreError, match=r"store\.db: cannot be written: Permission denied"):
        Store.open(tmp_path / "store.db")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    path = tmp_path / "store.db"
    path.write_text("this is a text file, long enough to hold a header of SQLite\n" * 40)
    with pytest.raises(StoreError, match=r"file is not a database .*a backup of this file"):
        Store.open(path)
    assert path.read_text().startswith("this is a text file")


def test_a_damaged_database_is_refused_or_reports(tmp_path: Path):
    path = tmp_path / "store.db"
    with Store.open(path) as store:
        for number in range(200):
            store.add_program("nestmap/program/1", f'{{"n": {number}, "pad": "{"x" * 500}"}}')
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError), Store.open(path) as store:
        store.studies()
        for number in range(200):
            store.program(f"{number:064x}")


def test_a_database_of_something_else_is_refused(tmp_path: Path):
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreError, match="tables of something else"):
        Store.open(path)
    assert scalar(path, "SELECT count(*) FROM sqlite_master") == 1


def test_a_newer_revision_is_refused(tmp_path: Path):
    path = tmp_path / "store.db"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(StoreError, match=r"newer nestmap \(schema revision 9999\)"):
        Store.open(path)


@pytest.mark.parametrize("url", ["mysql://host/name", "no such://"])
def test_other_addresses_are_refused(url: str):
    with pytest.raises(StoreError):
        Store.open(url)


def test_no_password_in_messages():
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql+psycopg://user:secret@127.0.0.1:9/none")
    assert "secret" not in str(caught.value)
