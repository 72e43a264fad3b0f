"""Which modules of tests take long, from a run that was recorded: they run first, so that two
processes end together, and `--quick` leaves them out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_suffix(".txt")
#: A module that takes less is not in the file.
_LEAST_S = 3
_HEAD = """\
# Seconds that modules of tests take on 2 cores, from `pytest -n 2 --record-seconds`; only those
# of 3 and more. The order of tests and `make check` follow it; no test depends on it.
"""


@cache
def seconds_of_modules() -> dict[str, int]:
    """What was recorded, by the module's path from the root."""
    lines = [line.split() for line in FILE.read_text("utf-8").splitlines() if line[:1] != "#"]
    return {module: int(seconds) for seconds, module in lines}


def module_of(nodeid: str) -> str:
    """The path of a test's module."""
    return nodeid.split("::", 1)[0]


def put_long_ones_first(items: list[pytest.Item]) -> None:
    """Modules stay together: what they set up is shared."""
    seconds = seconds_of_modules()
    items.sort(key=lambda item: -seconds.get(module_of(item.nodeid), 0))


def is_quick(item: pytest.Item) -> bool:
    """Whether a test needs neither long nor a device, a tool or a module that it shares."""
    return (
        item.nodeid.startswith("tests/unit/")
        and module_of(item.nodeid) not in seconds_of_modules()
        and not any(item.iter_markers("kernels"))
        and not any(item.iter_markers("needs"))
    )


def record(reports: Iterable[pytest.TestReport]) -> None:
    """Write the file anew from what a run of all tests reported."""
    total: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        total[module_of(report.nodeid)] += report.duration
    lines = [
        f"{seconds:.0f} {module}\n"
        for module, seconds in sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))
        if seconds >= _LEAST_S
    ]
    FILE.write_text(_HEAD + "".join(lines), encoding="utf-8")
