"""Agents as processes, since signals, locks and kill -9 are what they must bear."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.unit.agent.fake_server import DEVICE, TOKEN, FakeServer

ROOT = Path(__file__).resolve().parents[3]


class RunningAgent:
    """An agent process whose JSON events are read; a context manager that leaves none behind."""

    def __init__(
        self, server: str | FakeServer, state: Path, *options: str, device: str = "null",
        executor: str = "", identity: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        url = server if isinstance(server, str) else server.url
        if identity is None:
            identity = ("--token", TOKEN, "--id", DEVICE)
        program = ["tests.unit.agent.faulty_agent", executor] if executor else ["worker.agent"]
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", *program, "--url", url, *identity, "--json",
                "--state", str(state), "--device", device, *options,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, bufsize=0,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._buffer = b""
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> RunningAgent:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while chunk := self._process.stdout.read(65536) or b"":
            self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        self.events += [json.loads(line) for line in lines]

    def wait_until(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        end = time.monotonic() + timeout_s
        while not (found := condition()):
            self._read()
            assert time.monotonic() < end, f"nothing came in {timeout_s} s: {self.events[-5:]}"
            time.sleep(0.01)
        return found

    def wait_for(self, event: str, timeout_s: float = 60.0, **fields: Any) -> dict[str, Any]:
        """The first event of that name with those fields."""
        wanted = {"event": event, **fields}
        return self.wait_until(
            lambda: next((e for e in self.events if wanted.items() <= e.items()), None), timeout_s
        )

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def exit_code(self, timeout_s: float = 60.0) -> int:
        code = self._process.wait(timeout_s)
        self._read()
        return code


def descendants(pid: int) -> list[int]:
    """Processes below one, dead ones left out."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found += [int(entry.name), *descendants(int(entry.name))]
    return found


def running(pid: int) -> bool:
    """Whether a process is there and not dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
