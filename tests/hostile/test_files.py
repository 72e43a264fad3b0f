"""Files of the store are their owner's alone, and files that somebody names have an end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.settings import Settings as ServiceSettings
from db.engine import address_of
from db.maintenance import back_up
from db.store import Store
from mapper.errors import DeviceError, InputError
from nestmap.cli.farm_options import option_or_environment
from nestmap.client.address import token_of
from nestmap.subjects import load_subject
from nestmap.tuning import calibration
from worker.agent.failures import AgentFailure
from worker.agent.settings import secret
from worker.executor import recordings


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


def test_store_that_others_could_read_is_taken_from_them(tmp_path: Path):
    path = tmp_path / "store.sqlite3"
    with Store.open(path) as store:
        store.add_device("board", {"driver": "1"})
        beside = sorted(tmp_path.iterdir())
        assert {file.name for file in beside} > {"store.sqlite3-shm", "store.sqlite3-wal"}
        for file in beside:
            file.chmod(0o644)
        with Store.open(path):
            modes = [oct(file.stat().st_mode & 0o777) for file in beside]
        assert modes == ["0o600"] * len(beside)


@pytest.fixture(params=["device without an end", "pipe without a writer", "folder", "too much"])
def no_plain_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "it"
    match request.param:
        case "device without an end":
            return Path("/dev/zero")
        case "pipe without a writer":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"x" * 200_000)
    return path


def test_no_setting_is_read_from_what_is_no_plain_small_file(
    no_plain_file: Path, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("NESTMAP_STORE_FILE", "NESTMAP_TOKEN_FILE"):
        monkeypatch.setenv(variable, str(no_plain_file))
    with pytest.raises(ValueError, match="NESTMAP_STORE_FILE"):
        ServiceSettings()
    with pytest.raises(AgentFailure, match=str(no_plain_file)):
        secret(None, None, "NESTMAP_TOKEN")
    with pytest.raises(InputError) as caught:
        option_or_environment(None, "NESTMAP_TOKEN")
    assert caught.value.problems[0].path == "NESTMAP_TOKEN_FILE"


def test_no_token_of_a_client_is_read_from_such_a_file(no_plain_file: Path):
    with pytest.raises(InputError, match="cannot be read") as caught:
        token_of(None, no_plain_file)
    assert caught.value.problems[0].path == "token-file"


def test_no_constants_and_no_recording_are_read_from_such_a_file(
    no_plain_file: Path, monkeypatch: pytest.MonkeyPatch
):
    for module, name in ((calibration, "MAX_CONSTANTS_BYTES"), (recordings, "_LARGEST_FILE_BYTES")):
        monkeypatch.setattr(module, name, 100_000)
    why = "regular file|directory|more than 100000 bytes"
    with pytest.raises(InputError, match=why):
        calibration.read_constants(no_plain_file)
    with pytest.raises(DeviceError, match=why):
        recordings.open_recording(no_plain_file)


def test_a_program_is_not_waited_for_at_a_pipe_in_a_folder(tmp_path: Path):
    os.mkfifo(tmp_path / "program.nest")
    with pytest.raises(InputError, match="not a regular file"):
        load_subject(str(tmp_path / "program.nest"))
