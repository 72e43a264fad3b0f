"""Which tests take long, from a run that was recorded.

Their modules run first, so that the processes end together. `--quick` leaves both out. Of the tests
themselves, `make test` runs one in some, others from commit to commit, so that it ends in
ten minutes on two cores; `make campaigns` runs all of them, and so does a run that names files.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

from tests.effort import LONG

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_suffix(".txt")
#: One in so many of the long tests runs at a commit; in so many commits on each other, all do.
ONE_IN = 16
#: From which on a test is long, and its module.
LONG_TEST_S = 0.25
LONG_MODULE_S = 2
_HEAD = """\
# Seconds that test functions take with all their cases, and how many those are; only functions
# of half a second and more. Written by `pytest -n 2 --every --record-seconds`.
"""
_LEAST_S = 0.5


@cache
def seconds_of_functions() -> dict[str, tuple[float, int]]:
    """What was recorded: in all, and for how many cases."""
    lines = [line.split() for line in FILE.read_text("utf-8").splitlines() if line[:1] != "#"]
    return {function: (float(seconds), int(cases)) for seconds, cases, function in lines}


@cache
def seconds_of_modules() -> dict[str, float]:
    """By the module's path from the root; those that are long."""
    total: defaultdict[str, float] = defaultdict(float)
    for function, (seconds, _) in seconds_of_functions().items():
        total[module_of(function)] += seconds
    return {module: seconds for module, seconds in total.items() if seconds >= LONG_MODULE_S}


def module_of(nodeid: str) -> str:
    """The path of a test's module."""
    return nodeid.split("::", 1)[0]


def function_of(nodeid: str) -> str:
    """A test without its case."""
    return nodeid.split("[", 1)[0]


@cache
def turn() -> int:
    """The number of this commit; 0 where git does not say it."""
    try:
        asked = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, check=False
        )
        return int(asked.stdout)
    except (OSError, ValueError):
        return 0


def is_long(item: pytest.Item) -> bool:
    """Whether a case of this test took long."""
    seconds, cases = seconds_of_functions().get(function_of(item.nodeid), (0.0, 1))
    return seconds >= LONG_TEST_S * cases


def is_of_another_turn(item: pytest.Item) -> bool:
    """Whether a test is long and of another commit's run."""
    return not LONG and is_long(item) and bool((crc32(item.nodeid.encode()) + turn()) % ONE_IN)


def put_long_ones_first(items: list[pytest.Item]) -> None:
    """Modules stay together: what they set up is shared."""
    seconds = seconds_of_modules()
    items.sort(key=lambda item: -seconds.get(module_of(item.nodeid), 0))


def is_quick(item: pytest.Item) -> bool:
    """Whether a test needs neither long nor a device, a tool or a module that it shares."""
    return (
        item.nodeid.startswith("tests/unit/")
        and module_of(item.nodeid) not in seconds_of_modules()
        and not is_long(item)
        and not any(item.iter_markers("kernels"))
        and not any(item.iter_markers("needs"))
    )


def record(reports: Iterable[pytest.TestReport]) -> None:
    """Write the file anew from what a run of all tests reported."""
    total: defaultdict[str, float] = defaultdict(float)
    cases: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        function = function_of(report.nodeid)
        total[function] += report.duration
        cases[function].add(report.nodeid)
    lines = [
        f"{seconds:.1f} {len(cases[function])} {function}\n"
        for function, seconds in sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))
        if seconds >= _LEAST_S
    ]
    FILE.write_text(_HEAD + "".join(lines), encoding="utf-8")
