"""A server in the wrong hands does not own the board: what a measuring child cannot do."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mapper.measurement import Timed
from worker.executor.opening import SANDBOXED_CHILD
from worker.measuring import MeasuringChild, child_process, landlock
from worker.measuring.child_process import ChildDied, ChildProcess
from worker.measuring.golden import golden_kernel
from worker.measuring.sandbox import VARIABLE, Sandbox, lacking
from worker.measuring.wire import send

ATTACKER = "tests.hostile.sandboxed_attacker"
LINGERING = "tests.hostile.lingering_child"
ROOT = Path(__file__).resolve().parents[2]
#: What limits alone cannot hold back, which is why --require-sandbox refuses them.
_OPEN_FILES = {
    "identity", "names of the state's files", "identity through the parent's root",
    "the agent's environment", "the agent's command line", "the agent's memory",
    "shadow", "write beside the package", "write into the state",
    "write into workloads", "write into /var/tmp",
}  # fmt: skip


class Attack:
    """A child that attacks, or with an ``end`` does only that; what it is aimed at."""

    def __init__(
        self, folder: Path, kind: str, end: str, within: str, memory_bytes: int = 1 << 30
    ) -> None:
        self.mark = uuid.uuid4().hex
        state = folder / "state"
        state.mkdir(mode=0o700)
        identity = state / "identity.json"
        identity.write_text("nm_secret")
        identity.chmod(0o600)
        self.measuring = folder / "measuring"
        workloads = self.measuring / "workloads"
        workloads.mkdir(parents=True)
        workloads.chmod(0o755)
        (workloads / "0").write_text("numbers")
        (workloads / "0").chmod(0o644)
        self._listeners = [
            self._listen(socket.AF_INET, ("127.0.0.1", 0)),
            self._listen(socket.AF_UNIX, str(folder / "s")),
            self._listen(socket.AF_UNIX, "\0" + self.mark),
        ]
        aim = {
            "identity": str(identity), "agent": str(os.getpid()), "package": str(ROOT / "worker"),
            "workloads": str(workloads), "port": str(self._listeners[0].getsockname()[1]),
            "socket": str(folder / "s"), "abstract": self.mark, "end": end,
            "within": within,
        }  # fmt: skip
        sandbox = Sandbox(kind=kind, memory_bytes=memory_bytes)
        environment = {VARIABLE: sandbox.to_text(), "AIM": json.dumps(aim), "MARK": self.mark}
        self.child = ChildProcess("none", self.measuring, ATTACKER, environment)

    @staticmethod
    def _listen(family: int, address: Any) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        return listener

    def told(self) -> dict[str, Any]:
        return self.child.receive(time.monotonic() + 60)

    def processes(self) -> list[int]:
        """Every process of the machine that has the mark in its environment."""
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        self.child.close()
        for listener in self._listeners:
            listener.close()


@contextmanager
def attack(
    folder: Path, kind: str, end: str = "", within: str = "", memory_bytes: int = 1 << 30
) -> Iterator[Attack]:
    under_way = Attack(folder, kind, end, within, memory_bytes)
    try:
        yield under_way
    finally:
        under_way.close()


def kinds() -> list[str]:
    return ["namespaces", *(["landlock"] if landlock.edition() else []), "limits"]


@pytest.mark.parametrize("kind", kinds())
def test_child_gets_nothing_of_the_machine(tmp_path: Path, kind: str) -> None:
    with attack(tmp_path, kind) as under_way:
        told = under_way.told()
    facts, got = told["facts"], set(told["got"])
    if kind != "namespaces" and os.getuid() == 0:
        # The system does not count root's processes; only in namespaces root becomes another.
        assert "the child is root" in lacking(facts)
        got -= {"forks"}
    assert told["workload"] == "numbers"
    assert facts["sandbox.signals"] in {"own", "scoped", "to itself"}
    assert facts["sandbox.network"] == "none" and facts["sandbox.calls"] == "filtered"
    if kind == "limits":
        assert facts["sandbox.files"] == "open"
        assert got <= _OPEN_FILES, told["got"]
        assert "other files of this machine can be read" in lacking(facts)
        return
    assert facts["sandbox.files"] == {"namespaces": "own root", "landlock": "landlock"}[kind]
    assert not got, told["got"]
    assert not (tmp_path / "state/left-behind").exists()


def test_where_namespaces_are_refused_landlock_or_limits_hold(tmp_path: Path) -> None:
    # Within limits the filter refuses them, as many containers do.
    with attack(tmp_path, "auto", within="limits") as under_way:
        told = under_way.told()
    wanted = "landlock" if landlock.edition() else "open"
    assert told["facts"]["sandbox.files"] == wanted
    assert told["facts"]["sandbox.network"] == "none"
    assert told["workload"] == "numbers"
    assert wanted == "open" or "identity" not in told["got"]


@pytest.mark.parametrize("kind", kinds())
def test_processes_that_leave_the_session_end_with_the_child(tmp_path: Path, kind: str) -> None:
    with attack(tmp_path, kind, end="stay") as under_way:
        under_way.told()
        assert under_way.told() == {"stays": True}
        # Of one that is there the system shows no environment now and then, on a busy machine.
        end = time.monotonic() + 10
        while len(there := under_way.processes()) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(there) >= 2, under_way.child.stderr_tail()
        under_way.child.kill()
        end = time.monotonic() + 10
        while (left := under_way.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("how", ["shared", "file", "processes"])
def test_memory_of_all_processes_together_is_bounded(tmp_path: Path, kind: str, how: str) -> None:
    """The system's limit is one process's, and for what it allocates for itself."""
    with attack(tmp_path, kind, end=f"fill {how}", memory_bytes=600 << 20) as under_way:
        under_way.told()
        with pytest.raises(ChildDied, match="600 MB"):
            under_way.told()
        end = time.monotonic() + 10
        while (left := under_way.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left


@pytest.mark.parametrize("kind", kinds()[1:])
@pytest.mark.parametrize("how", ["disk", "many files", "nameless"])
def test_what_is_written_to_disk_is_bounded_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    monkeypatch.setattr(child_process, "MOST_WRITTEN_BYTES", 16 << 20)
    with attack(tmp_path, kind, end=f"fill {how}") as under_way:
        under_way.told()
        with pytest.raises(ChildDied, match="wrote too much to disk; allowed: 16 MB"):
            under_way.told()


def test_signals_that_nothing_keeps_back_are_said() -> None:
    facts = {
        "sandbox.files": "landlock", "sandbox.network": "none", "sandbox.calls": "filtered",
        "sandbox.processes": "one group", "sandbox.user": "the agent's",
    }  # fmt: skip
    assert lacking(facts) == ("signals reach other processes of the user",)
    assert not lacking({**facts, "sandbox.signals": "to itself"})


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("what", ["thread", "process"])
def test_what_a_job_leaves_running_is_seen(tmp_path: Path, kind: str, what: str) -> None:
    with attack(tmp_path, kind, end=f"start {what}") as under_way:
        under_way.told()
        under_way.child.remember_threads()
        assert not under_way.child.has_started_more()
        send(under_way.child._requests, {"start": what}, time.monotonic() + 10)
        assert under_way.told() == {"started": True}
        assert under_way.child.has_started_more()


@pytest.mark.kernels
@pytest.mark.parametrize(("module", "starts"), [(SANDBOXED_CHILD, 1), (LINGERING, 3)])
def test_a_child_in_which_a_job_lives_on_gets_no_other(
    monkeypatch: pytest.MonkeyPatch, module: str, starts: int
) -> None:
    monkeypatch.setenv(VARIABLE, Sandbox().to_text())
    golden = golden_kernel()
    with MeasuringChild(child_module=module) as child:
        child.upload_workload("golden", golden.inputs, golden.expected)
        for _ in range(3):
            outcome = child.measure(golden.plan, workload="golden")
            assert isinstance(outcome, Timed), outcome
        assert child.starts == starts


@pytest.mark.parametrize("kind", ["namespaces", "limits"])
@pytest.mark.parametrize(("end", "code"), [("0", 0), ("7", 7), ("abort", -signal.SIGABRT)])
def test_end_of_the_child_is_seen_as_it_was(tmp_path: Path, kind: str, end: str, code: int) -> None:
    with attack(tmp_path, kind, end=end) as under_way:
        under_way.told()
        with pytest.raises(ChildDied) as death:
            under_way.told()
    assert death.value.exit_code == code


def test_child_of_an_agent_that_is_killed_ends(tmp_path: Path) -> None:
    with attack(tmp_path, "namespaces", end="stay") as under_way:
        under_way.told()
        # What the end of the parent does: nobody holds the other end any more.
        os.close(under_way.child._lifeline)
        under_way.child._lifeline = -1
        end = time.monotonic() + 10
        while (left := under_way.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        # The child that nobody has waited for yet has no environment left to read.
        assert not left
