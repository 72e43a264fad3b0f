"""The recorded seconds of modules name modules that there are, and few enough of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import module_seconds
from tests.module_seconds import ROOT, put_long_ones_first, record, seconds_of_modules


def test_every_module_is_there_and_was_long() -> None:
    known = seconds_of_modules()
    missing = [module for module in known if not (ROOT / module).is_file()]
    assert not missing, "run `pytest -n 2 --record-seconds`, or rename them in the file"
    assert all(seconds >= 3 for seconds in known.values())


def test_a_run_is_recorded_and_orders_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_seconds, "FILE", tmp_path / "seconds.txt")
    ran = [("b.py::one", 2.0), ("a.py::x", 9.5), ("b.py::two", 1.5), ("c.py::y", 0.1)]
    record(cast(Any, [SimpleNamespace(nodeid=n, duration=s) for n, s in ran]))
    seconds_of_modules.cache_clear()
    try:
        assert seconds_of_modules() == {"a.py": 10, "b.py": 4}
        items = [SimpleNamespace(nodeid=name) for name, _ in reversed(ran)]
        put_long_ones_first(cast(Any, items))
    finally:
        seconds_of_modules.cache_clear()
    assert [i.nodeid for i in items] == ["a.py::x", "b.py::two", "b.py::one", "c.py::y"]
