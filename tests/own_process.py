"""Tests that open a device themselves run in a process of their own: a driver that dies fails one
test and ends no other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from worker.measuring.child_process import signal_text

SETTING = "NESTMAP_TEST_IN_ITS_PROCESS"
_TIMEOUT_S = 300
_CHARACTERS = 8000
#: The fixture by which a test gets a device that is opened in its own process.
_FIXTURE = "session"


def runs_alone(item: pytest.Item) -> bool:
    """Whether a test is to be run by another process than this one."""
    if SETTING in os.environ:
        return False
    marked = any(mark.kwargs.get("alone") for mark in item.iter_markers("kernels"))
    return marked or _FIXTURE in getattr(item, "fixturenames", ())


def run_alone(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run a test in a process and report what became of it as if it had run here."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    failure: str | None = None
    try:
        ended = subprocess.run(
            [*command, item.nodeid],
            cwd=item.config.rootpath,
            env={**os.environ, SETTING: "1"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        text = (ended.stdout + ended.stderr)[-_CHARACTERS:]
        if ended.returncode < 0:
            failure = f"the process of the test died of {signal_text(ended.returncode)}\n{text}"
        elif ended.returncode:
            failure = text
    except subprocess.TimeoutExpired:
        failure = f"the process of the test took over {_TIMEOUT_S} s"
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="passed" if failure is None else "failed",
        longrepr=failure,
        when="call",
    )
    item.ihook.pytest_runtest_logreport(report=report)
    # What the test before left set up for this one, and the next one does not share.
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
