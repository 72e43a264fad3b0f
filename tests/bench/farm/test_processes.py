"""What the bench starts, it measures and it ends, with whatever that has started."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.farm import servers
from bench.farm.boards import Crew
from bench.farm.crews import read_logs, serving
from bench.farm.processes import Meter, Service, usages
from mapper.errors import InputError, StoreError

BURNS = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
#: Ignores SIGTERM, and so does its child, whose pid it writes.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def started(folder: Path, program: str, pipes: bool = False) -> Service:
    return Service(
        "child", [sys.executable, "-c", program], folder=folder, environment=dict(os.environ),
        pipes=pipes,
    )  # fmt: skip


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_processor_time_of_ended_grandchildren_is_counted(tmp_path: Path) -> None:
    program = (
        f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {BURNS!r}])\n"
        "print('done', flush=True)\ntime.sleep(600)"
    )
    with started(tmp_path, program, pipes=True) as service:
        assert service.process.stdout is not None
        with Meter({"it": [service.pid]}) as meter:
            service.process.stdout.readline()
        used = usages({"it": [service.pid]})["it"]
    assert used.cpu_s >= 0.3
    assert used.memory_bytes > 2**20
    assert meter.report()["it"]["peak_memory_mib"] > 1
    assert set(meter.report()) == {"it", "bench"}


def test_time_without_a_processor_is_told_apart(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        f"other = subprocess.Popen([sys.executable, '-c', {BURNS!r}])\n"
        f"{BURNS}other.wait()\nprint('done', flush=True)\ntime.sleep(600)"
    )
    with started(tmp_path, program, pipes=True) as service:
        assert service.process.stdout is not None
        with Meter({"it": [service.pid]}) as meter:
            service.process.stdout.readline()
    # Two who want one processor wait for each other.
    assert meter.report()["it"]["waited_s"] > 0.05


def test_a_service_that_ignores_signals_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.farm.processes._GRACE_S", 0.2)
    with started(tmp_path, STUBBORN, pipes=True) as service:
        assert service.process.stdout is not None
        child = int(service.process.stdout.readline())
    assert service.process.poll() is not None
    # Ended, or a zombie that its new parent has not waited for yet.
    eventually(lambda: usages({"it": [child]})["it"].memory_bytes == 0)


def test_services_are_stopped_when_the_work_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        started(tmp_path, "import time; time.sleep(600)") as service,
    ):
        raise KeyboardInterrupt
    assert service.process.poll() is not None


@pytest.mark.parametrize(
    ("missing", "package"), [("postgres", "postgresql"), ("rabbitmq", "rabbitmq-server")]
)
def test_a_missing_server_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, package: str
) -> None:
    there = tmp_path / "program"
    there.touch()
    monkeypatch.setattr(servers, "RABBITMQ", there / "no" if missing == "rabbitmq" else there)
    found = None if missing == "postgres" else str(there)
    monkeypatch.setattr(servers, "postgres_program", lambda name: found)
    with pytest.raises(InputError) as caught:
        servers.require_servers("postgres", broker=True)
    assert [problem.remedy for problem in caught.value.problems] == [
        f"apt-get install {package}, or --store sqlite"
    ]
    servers.require_servers("sqlite", broker=False)


def test_boards_that_cannot_reach_the_service_say_so(tmp_path: Path) -> None:
    crew = Crew("127.0.0.1", servers.free_port(), [("dev_x", "token")], "", ramp_s=0.0)
    with serving(crew, 1, tmp_path, dict(os.environ), "alone") as crews:
        time.sleep(0.2)
    assert crews.seen.calls["lease"] >= 1
    assert crews.seen.errors["lease ConnectionRefusedError"] >= 1
    assert not crews.seen.faults


def test_a_log_without_an_end_is_not_believed(tmp_path: Path) -> None:
    log = tmp_path / "boards.ndjson"
    log.write_text('{"event": "got", "t": 1}\n')
    with pytest.raises(StoreError, match="end"):
        read_logs([log])
