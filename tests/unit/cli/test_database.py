"""``nestmap db``: schema of a store and copies of it, also while it is written to."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from db.maintenance import back_up
from db.store import Store
from mapper.errors import StoreError
from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["db", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_upgrade_creates_the_newest_schema_and_status_says_so(tmp_path: Path) -> None:
    store = str(tmp_path / "s.sqlite3")
    created = answer("upgrade", "--store", store)
    assert created["up_to_date"] and created["revision"] == created["newest"]
    assert answer("status", "--store", store) == created
    assert answer("upgrade", "--store", store) == created


def test_status_creates_nothing(tmp_path: Path) -> None:
    result = call("status", "--store", str(tmp_path / "none.sqlite3"))
    assert isinstance(result.exception, (StoreError, SystemExit))
    assert list(tmp_path.iterdir()) == []


def test_the_store_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "store_url"
    named.write_text(f"{tmp_path / 'e.sqlite3'}\n")
    monkeypatch.setenv("NESTMAP_STORE_FILE", str(named))
    answer("upgrade")
    assert (tmp_path / "e.sqlite3").exists()


def test_a_backup_taken_while_writing_is_one_moment_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    end = threading.Event()
    written: list[str] = []
    with Store.open(path) as store:

        def write() -> None:
            number = 0
            while not end.is_set():
                text = json.dumps({"n": number, "pad": "x" * 2_000})
                written.append(store.add_program("nestmap/program/1", text))
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while len(written) < 20:
                pass
            back_up(make_url(f"sqlite:///{path}"), tmp_path / "copy.sqlite3")
        finally:
            end.set()
            writer.join()
    with Store.open(tmp_path / "copy.sqlite3") as copy:
        for program in written[:20]:
            copy.program(program)
    with closing(sqlite3.connect(tmp_path / "copy.sqlite3")) as copy:
        hashes = [h for (h,) in copy.execute("SELECT hash FROM programs")]
    # What was written first is there, without holes.
    assert set(hashes) == set(written[: len(hashes)])
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite3"
    answer("upgrade", "--store", str(store))
    (tmp_path / "old").write_text("precious")
    with pytest.raises(StoreError, match="not overwritten"):
        back_up(make_url(f"sqlite:///{store}"), tmp_path / "old")
    assert (tmp_path / "old").read_text() == "precious"


def test_postgresql_is_referred_to_its_own_tool_without_showing_the_password(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError) as caught:
        back_up(make_url("postgresql+psycopg://a:geheim@127.0.0.1/b"), tmp_path / "x")
    assert "pg_dump" in str(caught.value) and "geheim" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 100)
    result = call("status", "--store", str(tmp_path / "text"))
    assert result.exit_code != ExitCode.OK
