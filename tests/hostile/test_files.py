"""Files of the store are their owner's alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.engine import address_of
from db.maintenance import back_up
from db.store import Store


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_store_log_and_backup_can_be_read_by_nobody_else(tmp_path: Path):
    path = tmp_path / "store.sqlite3"
    with Store.open(path) as store:
        store.add_device("board", {"driver": "1"})
        beside = sorted(tmp_path.iterdir())
        assert {file.name for file in beside} > {"store.sqlite3", "store.sqlite3-wal"}
        assert [oct(file.stat().st_mode & 0o777) for file in beside] == ["0o600"] * len(beside)
        back_up(address_of(path), tmp_path / "copy.sqlite3")
    assert (tmp_path / "copy.sqlite3").stat().st_mode & 0o777 == 0o600
