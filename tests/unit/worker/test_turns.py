"""Who builds and who runs where several processes measure on one device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from worker.measuring.turns import Turns, beside

#: Seconds after which something is taken to wait, and until something has to happen.
_WAITS_S, _SOON_S = 0.3, 20.0


@pytest.fixture
def turn(tmp_path: Path) -> Path:
    path = tmp_path / "turn"
    path.touch()
    return path


def turns(turn: Path, quiet: bool = True) -> Turns:
    return Turns(turn, quiet, lambda _: None)


class _Entering:
    """Enters a context in a thread and stays in it until it is let go."""

    def __init__(self, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._inside, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._stay, args=(context,), daemon=True)
        self._thread.start()

    def _stay(self, context: Callable[[], AbstractContextManager[None]]) -> None:
        with context():
            self._inside.set()
            self._leave.wait(_SOON_S)

    def waits(self) -> bool:
        return not self._inside.wait(_WAITS_S)

    def leave(self) -> None:
        assert self._inside.wait(_SOON_S)
        self._leave.set()
        self._thread.join(_SOON_S)


def test_nobody_builds_while_another_runs_in_a_quiet_turn(turn: Path) -> None:
    one = turns(turn)
    with one.candidate():
        with one.running():
            other = _Entering(turns(turn).candidate)
            parent = _Entering(lambda: beside(turn))
            assert other.waits() and parent.waits()
        # Judging belongs to the turn.
        assert other.waits() and parent.waits()
    other.leave()
    parent.leave()


def test_where_turns_are_not_quiet_others_build_while_one_runs(turn: Path) -> None:
    one = turns(turn, quiet=False)
    with one.candidate(), one.running():
        building = _Entering(turns(turn, quiet=False).candidate)
        assert not building.waits()
        building.leave()


@pytest.mark.parametrize("quiet", [False, True])
def test_one_runs_at_a_time(turn: Path, quiet: bool) -> None:
    one, another = turns(turn, quiet), turns(turn, quiet)
    with one.candidate(), one.running():
        other = _Entering(another.running)
        assert other.waits()
    other.leave()


def test_two_that_build_and_then_run_do_not_wait_for_each_other(turn: Path) -> None:
    both_build, ran = threading.Barrier(2), list[int]()

    def measure(number: int) -> None:
        mine = turns(turn)
        with mine.candidate():
            both_build.wait(_SOON_S)
            with mine.running():
                ran.append(number)

    threads = [threading.Thread(target=measure, args=(n,), daemon=True) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SOON_S)
    assert sorted(ran) == [0, 1]


def test_who_waits_says_so_before_building_only_in_quiet_turns(turn: Path) -> None:
    for quiet, said in ((False, ["waiting"]), (True, ["waiting", "waiting"])):
        heard: list[str] = []
        one = Turns(turn, quiet, heard.append)
        with one.candidate(), one.running():
            assert heard == said
