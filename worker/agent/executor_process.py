"""The executor as the agent sees it: a process that answers in lines of JSON, replaced at will."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.agent.bounded import NotAcceptable, read_object
from worker.agent.process_tree import adopt_orphans, children_of, kill_tree, stuck_text
from worker.agent.waiting import Waiter

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
EXECUTOR = "worker.executor"
MAX_LINE_BYTES = 2 * 1024 * 1024
_STDERR_CHARACTERS = 2000
_READ_BYTES = 64 * 1024


class ExecutorDied(Exception):
    """The executor ended by itself or sent nonsense; the message says how."""


class ExecutorStuck(Exception):
    """Processes of the executor do not go, not even when killed."""


class Executor:
    """One executor process with its own descendants."""

    def __init__(self, arguments: Sequence[str], folder: Path, waiter: Waiter, module: str) -> None:
        adopt_orphans()
        self._waiter = waiter
        self._stderr_path = folder / "executor.stderr"
        self._buffer = bytearray()
        self._spared = children_of(os.getpid())
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env=_environment(),
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._events = self._process.stdout.fileno()
        os.set_blocking(self._events, False)

    @property
    def pid(self) -> int:
        """The executor's process id."""
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        """Give it a message; raises ExecutorDied when it does not read."""
        text = memoryview(json.dumps(message, allow_nan=False).encode() + b"\n")
        try:
            while text:
                text = text[os.write(self._requests, text) :]
        except OSError as error:
            raise ExecutorDied(self._end_text(str(error))) from None

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """Its next event; None after ``timeout_s`` or a wake-up. Raises ExecutorDied."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise ExecutorDied(f"a line of more than {MAX_LINE_BYTES} bytes came")
            if not self._waiter.wait(max(0.0, deadline - time.monotonic()), self._events):
                return None
            try:
                chunk = os.read(self._events, _READ_BYTES)
            except BlockingIOError:
                continue
            if not chunk:
                raise ExecutorDied(self._end_text(""))
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            return read_object(line)
        except NotAcceptable as error:
            raise ExecutorDied(f"the executor sent nonsense: {error}") from None

    def _end_text(self, detail: str) -> str:
        """How the executor ended, with the end of what it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)
        parts = [f"the executor ended: {_code_text(self._process.returncode)}", detail]
        parts.append(self.stderr_tail())
        return "\n".join(part for part in parts if part)

    def stderr_tail(self) -> str:
        """The end of what it wrote to standard error."""
        try:
            with self._stderr_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _STDERR_CHARACTERS))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def stop(self, grace_s: float = 10.0) -> None:
        """Let it end by itself, then end it and all that it started; raises ExecutorStuck."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        end = time.monotonic() + grace_s
        while time.monotonic() < end and self._process.poll() is None:
            self._waiter.wait(0.02)
        self.kill()

    def kill(self) -> None:
        """End it and all that it started, at once; raises ExecutorStuck."""
        # An id that was collected may be somebody else's by now.
        root = self._process.pid if self._process.poll() is None else None
        try:
            left = kill_tree(root, self._spared)
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        # It was collected there; Popen finds no child then, and is content.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.1)
        if left:
            raise ExecutorStuck(stuck_text(left))


def _code_text(code: int | None) -> str:
    if code is None:
        return "it closed its output"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _environment() -> dict[str, str]:
    """The agent's environment without what is the agent's alone: its secrets."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("NESTMAP_")}
    search = [str(_PACKAGE_ROOT), kept.get("PYTHONPATH", "")]
    kept["PYTHONPATH"] = os.pathsep.join(part for part in search if part)
    kept["PYTHONUNBUFFERED"] = "1"
    return kept
