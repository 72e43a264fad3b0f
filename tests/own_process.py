"""Tests that open a device themselves run in a process below this one, which stays for the next
test of their module: a driver that dies fails the one test that ran and ends no other."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any, cast

import pytest

from worker.measuring.child_process import signal_text

#: In a process below: the two ends by which it is told of tests and reports what became of them.
SETTING = "NESTMAP_TEST_IN_ITS_PROCESS"
_TIMEOUT_S = 300
_GOODBYE_S = 20
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
    follows = None
    if nextitem is not None and runs_alone(nextitem) and _module(nextitem) == _module(item):
        follows = nextitem.nodeid
    for report in _process_of(item).run(item, follows):
        item.ihook.pytest_runtest_logreport(report=report)
    # What the test before left set up for this one, and the next one does not share.
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _module(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


class _Process:
    """Runs tests of one module, as they are named to it."""

    def __init__(self, item: pytest.Item) -> None:
        self.module = _module(item)
        self._output = tempfile.TemporaryFile(prefix="nestmap-tests-")  # noqa: SIM115
        read, self._ask = os.pipe()
        answers, write = os.pipe()
        self._answers = os.fdopen(answers, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
        self._process = subprocess.Popen(
            [*command, self.module],
            cwd=item.config.rootpath,
            env={**os.environ, SETTING: f"{read} {write}"},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(read, write),
        )
        os.close(read)
        os.close(write)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, item: pytest.Item, follows: str | None) -> list[pytest.TestReport]:
        """The reports of a test, or one that says how the process ended."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        watch = threading.Timer(_TIMEOUT_S, end)
        watch.start()
        try:
            with suppress(BrokenPipeError):  # then there is no answer, either
                os.write(self._ask, f"{json.dumps([item.nodeid, follows])}\n".encode())
            answer = self._answers.readline()
        finally:
            watch.cancel()
        if answer:
            return [
                item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
                for data in json.loads(answer)
            ]
        code = self._process.wait()
        if late.is_set():
            failure = f"the process of the test took over {_TIMEOUT_S} s"
        elif code < 0:
            failure = f"the process of the test died of {signal_text(code)}\n{self._said()}"
        else:
            failure = f"the process of the test ended\n{self._said()}"
        return [
            pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords=dict.fromkeys(item.keywords, 1),
                outcome="failed",
                longrepr=failure,
                when="call",
            )
        ]

    def _said(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")[-_CHARACTERS:]

    def close(self) -> None:
        """End the process, which has no test set up any more."""
        os.close(self._ask)
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._output.close()


_processes: list[_Process] = []


def _process_of(item: pytest.Item) -> _Process:
    if _processes and not (_processes[0].alive and _processes[0].module == _module(item)):
        end_process()
    if not _processes:
        _processes.append(_Process(item))
    return _processes[0]


@atexit.register
def end_process() -> None:
    """End the process below, if there is one."""
    while _processes:
        _processes.pop().close()


class _Reports:
    """What the hooks of a process below say of one test."""

    def __init__(self) -> None:
        self.of_test: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.of_test.append(report)


def run_what_is_asked(session: pytest.Session) -> bool | None:
    """In a process below: run the tests that it is told, until there is no more; else None."""
    if SETTING not in os.environ:
        return None
    read, write = map(int, os.environ[SETTING].split())
    for end in (read, write):
        os.set_inheritable(end, False)
    items = {item.nodeid: item for item in session.items}
    reports = _Reports()
    session.config.pluginmanager.register(reports)
    hook = session.config.hook
    with os.fdopen(read, encoding="utf-8") as asked, os.fdopen(write, "w") as answers:
        for line in asked:
            nodeid, follows = cast("tuple[str, str | None]", json.loads(line))
            reports.of_test.clear()
            item = items[nodeid]
            following = None if follows is None else items[follows]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            data: list[Any] = [
                hook.pytest_report_to_serializable(config=session.config, report=report)
                for report in reports.of_test
            ]
            answers.write(f"{json.dumps(data)}\n")
            answers.flush()
    return True
