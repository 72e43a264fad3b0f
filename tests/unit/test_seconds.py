"""Recorded seconds of tests: they name tests that there are, order a run and shorten it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import seconds
from tests.seconds import (
    ONE_IN,
    ROOT,
    is_of_another_turn,
    module_of,
    put_long_ones_first,
    record,
    seconds_of_functions,
    seconds_of_modules,
)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The items of a run that was recorded, in reverse."""
    monkeypatch.setattr(seconds, "FILE", tmp_path / "seconds.txt")
    ran = [("b.py::one", 2.0), ("a.py::x[1]", 8.5), ("a.py::x[2]", 1.0), ("b.py::two", 1.5),
           ("c.py::y", 0.1)]  # fmt: skip
    record(cast(Any, [SimpleNamespace(nodeid=n, duration=s) for n, s in ran]))
    seconds_of_functions.cache_clear()
    seconds_of_modules.cache_clear()
    yield [SimpleNamespace(nodeid=name) for name, _ in reversed(ran)]
    seconds_of_functions.cache_clear()
    seconds_of_modules.cache_clear()


def test_every_function_is_there() -> None:
    text: dict[str, str] = {}
    missing: list[str] = []
    for function in seconds_of_functions():
        module = module_of(function)
        path = ROOT / module
        if module not in text:
            text[module] = path.read_text("utf-8") if path.is_file() else ""
        if f"def {function.rsplit('::', 1)[1]}(" not in text[module]:
            missing.append(function)
    assert not missing, "run `pytest -n 2 --every --record-seconds`, or rename them in the file"


def test_a_run_is_recorded_and_orders_the_next(recorded: list[Any]) -> None:
    assert seconds_of_functions()["a.py::x"] == (9.5, 2)
    assert seconds_of_modules() == {"a.py": 9.5, "b.py": 3.5}
    put_long_ones_first(recorded)
    assert [i.nodeid for i in recorded] == [
        "a.py::x[2]", "a.py::x[1]", "b.py::two", "b.py::one", "c.py::y",
    ]  # fmt: skip


def test_long_tests_have_their_turn_once_and_short_ones_always(
    recorded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seconds, "LONG", False)
    turns: dict[str, int] = {}
    for number in range(7, 7 + ONE_IN):
        monkeypatch.setattr(seconds, "turn", lambda number=number: number)
        for item in recorded:
            turns[item.nodeid] = turns.get(item.nodeid, 0) + (not is_of_another_turn(item))
    assert turns == {
        "a.py::x[1]": 1, "a.py::x[2]": 1, "b.py::one": 1, "b.py::two": 1, "c.py::y": ONE_IN,
    }  # fmt: skip


def test_where_much_is_tried_no_test_is_left_out(
    recorded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seconds, "LONG", True)
    assert not any(map(is_of_another_turn, recorded))
