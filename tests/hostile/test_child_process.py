"""What a measuring child can write to is not what its parent reads by a name."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from worker.measuring.child_process import ChildDied, ChildProcess, ChildTimedOut

MEDDLER = "tests.hostile.meddling_child"


def death_of(folder: Path, meddle: str) -> str:
    """What the parent says of a child that meddles; it may take ten seconds for it."""
    heard: list[str] = []

    def listen() -> None:
        child = ChildProcess("none", folder, MEDDLER, {"MEDDLE": meddle})
        try:
            child.receive(time.monotonic() + 30)
            child.submit({"type": "measure"}, time.monotonic() + 30)
        except ChildDied as death:
            heard.append(death.message)
        finally:
            child.close()

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    listening.join(60)
    assert heard, "the parent waits for ever"
    return heard[0]


@pytest.mark.parametrize("how", ["symlink", "fifo"])
def test_another_file_in_place_of_standard_error_is_not_read(tmp_path: Path, how: str) -> None:
    secret = tmp_path / "identity.json"
    secret.write_text("nm_secret")
    message = death_of(tmp_path, f"{how}:{secret}")
    assert "exit code 3" in message and "nm_secret" not in message


def test_much_on_standard_error_is_read_in_part(tmp_path: Path) -> None:
    assert len(death_of(tmp_path, "floods:")) < 10_000


def test_folders_in_folders_are_removed(tmp_path: Path) -> None:
    death_of(tmp_path, "deep:")
    assert not list(tmp_path.iterdir())


def test_replies_that_somebody_takes_away_do_not_hold_the_parent(tmp_path: Path) -> None:
    """Whoever may write into a pipe can open its other end in /proc."""
    ended: list[BaseException] = []

    def listen() -> None:
        child = ChildProcess("none", tmp_path, MEDDLER, {"MEDDLE": "steals:"})
        try:
            child.receive(time.monotonic() + 30)
            child.receive(time.monotonic() + 3)
        except (ChildTimedOut, ChildDied) as error:
            ended.append(error)
        finally:
            child.close()

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    listening.join(40)
    assert ended
