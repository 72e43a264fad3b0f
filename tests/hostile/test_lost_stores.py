"""A store that is deleted, replaced or full is noticed at once, and no new one takes its place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Never

import httpx
import pytest
from sqlalchemy import create_engine

from api.observing import service_logger
from api.settings import Settings
from db.farm import farm as farm_module
from db.farm.farm import Farm
from db.farm.states import Scope
from mapper.errors import StoreError
from nestmap.farm import serving as serving_module
from nestmap.farm.serving import ServeOptions, serve
from tests.unit.api.conftest import Service
from tests.unit.api.live_server import serving
from tests.unit.db.postgres_server import INSTALL, NEEDS, PostgresNode


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    os.replace(other, path)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


@pytest.mark.parametrize("lose", [delete, replace, move_folder])
def test_a_store_that_is_gone_takes_no_writes(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    service = Service(folder, Settings())
    admin = {"Authorization": f"Bearer {service.tokens['admin']}"}
    with serving(service.app) as url, httpx.Client(base_url=url, headers=admin) as client:
        assert client.post("/v1/enrolments", json={}).status_code == 201
        lose(Path(service.path))
        refused = client.post("/v1/enrolments", json={})
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["database"] == "its file was deleted or replaced"
        assert client.get("/healthz").status_code == 200
    service.close()


def test_a_full_disk_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Farm.open(tmp_path / "store.sqlite3") as farm:
        assert farm.fault() == ""
        monkeypatch.setattr(farm_module, "disk_usage", lambda _: SimpleNamespace(free=1000))
        assert farm.fault() == "its disk is full"


def test_a_store_whose_write_fails_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Farm.open(tmp_path / "store.sqlite3") as farm:

        def full() -> Never:
            raise farm_module.StoreError("store: database or disk is full")

        monkeypatch.setattr(farm._transactions, "write", full)
        assert farm.fault() == "its disk is full"


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_no_new_store_begins_where_there_was_one(tmp_path: Path, left: str) -> None:
    store = tmp_path / "store.sqlite3"
    with Farm.open(store) as farm:
        farm.tokens.create(Scope.ADMIN, label="made at the first start")
    tokens = tmp_path / "store.sqlite3.admin-token"
    tokens.write_text("nm_kept.kept\n")
    for name in ("store.sqlite3", "store.sqlite3-wal", "store.sqlite3-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    if left == "an empty file":
        store.touch()
    command = [sys.executable, "-m", "nestmap", "serve", "--store", str(store), "--port", "0"]
    for _ in range(2):  # nor at the second try
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 4, ended
        assert "there was a store here" in ended.stderr and "backup" in ended.stderr
        assert tokens.read_text() == "nm_kept.kept\n"
    if left == "nothing":
        assert not store.exists()


@pytest.mark.needs(NEEDS, install=INSTALL)
def test_no_new_store_begins_in_a_database_that_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with PostgresNode() as node:
        options = ServeOptions(store=node.url)
        with Farm.open(node.url) as farm:
            serving_module._first_token(farm, node.url, lambda *_, **__: None)
            serving_module._refuse_lost(options.store, farm)
        (tokens,) = tmp_path.iterdir()
        assert tokens.name.endswith(".admin-token")
        engine = create_engine(node.url)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        engine.dispose()
        for _ in range(2):  # nor at the second try
            with pytest.raises(StoreError, match="there was a store here"):
                serve(options, Settings(), lambda *_, **__: None)
        other = node.url.rpartition("/")[0] + "/other"
        assert not serving_module._beside(other, ".admin-token").exists()


def test_a_log_on_a_full_disk_fails_nothing_that_is_logged() -> None:
    """Refusals for a full disk became faults of ours where the log was on the same disk."""
    full = open("/dev/full", "w")  # noqa: SIM115 - to close it fails
    logger = service_logger("info", full)
    for _ in range(3):
        logger.error("store", error="database or disk is full" * 1_000)
        logger.warning("sweeper")
    with suppress(OSError):
        full.close()
