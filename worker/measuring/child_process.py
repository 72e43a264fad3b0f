"""The life of one measuring child process as its parent sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mapper.errors import DeviceError, Problem
from worker.devices.pocl_target import CACHE_SETTING, cache_folder
from worker.measuring.process_watch import is_written_beyond, memory_of, processes_of, threads_of
from worker.measuring.sandbox import (
    MOST_WRITTEN_BYTES,
    MOST_WRITTEN_FILES,
    VARIABLE,
    Sandbox,
)
from worker.measuring.wire import BadMessage, DeadlinePassed, StreamEnded, receive, send

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
MEASURING_CHILD = "worker.measuring.child_main"
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
_STDERR_CHARACTERS = 2000
#: How long a killed process may take to go; only a stuck driver takes longer.
_KILL_GRACE_S = 5.0
#: Memory fills at some GB a second at most; to look takes a few milliseconds.
_WATCH_S = 0.25
#: Every so many looks the disk is looked at, too: it fills more slowly.
_DISK_EVERY = 4
#: What a process that ends takes to be gone, compilers and linkers that a driver starts.
_SETTLE_S = 0.5


class ChildTimedOut(Exception):
    """No answer came before the deadline; the child was killed."""


class ChildDied(Exception):
    """The child ended by itself. ``exit_code`` is negative for a signal."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message


def signal_text(exit_code: int) -> str:
    """Words for an exit code: ``SIGSEGV (Segmentation fault)`` or ``exit code 3``."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
    return f"{name} ({signal.strsignal(-exit_code)})"


class ChildProcess:
    """A child in a session of its own, with private caches, killed as a whole group.

    One that enters a sandbox is watched: it ends when its processes take more memory together than
    the sandbox has, and :meth:`has_started_more` says what a job left running.

    ``directory`` is private to this child and removed with it. Requests and replies have deadlines
    on the monotonic clock. ``module`` is what the child runs, ``environment`` what it has beside
    the parent's.
    """

    def __init__(
        self,
        device: str,
        directory: Path,
        module: str = MEASURING_CHILD,
        environment: Mapping[str, str] = NOTHING_MORE,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(
            prefix="child-", dir=directory, ignore_cleanup_errors=True
        )
        private = Path(self._directory.name)
        # Without a name: what the child puts in its place is never opened by the parent.
        self._stderr = _nameless(directory)
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    module,
                    f"--device={device}",
                    f"--lifeline={lifeline}",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env=_environment(private) | dict(environment),
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        except OSError:
            os.close(self._lifeline)
            os.close(self._stderr)
            raise
        finally:
            os.close(lifeline)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._replies = self._process.stdout.fileno()
        for pipe in (self._requests, self._replies):
            # The child can open a pipe's other end too, and take away what poll() has seen.
            os.set_blocking(pipe, False)
        self._job_stderr_start = 0
        self._at_first: frozenset[int] | None = None
        self._reaping = threading.Lock()
        self._reaped = threading.Event()
        self._over = ""
        sandbox = environment.get(VARIABLE, os.environ.get(VARIABLE))
        self._memory_bytes = None if sandbox is None else Sandbox.from_text(sandbox).most_bytes
        if self._memory_bytes is not None:
            watch = threading.Thread(target=self._watch, args=(self._memory_bytes,), daemon=True)
            watch.start()

    def _watch(self, most_bytes: int) -> None:
        """End the child when its processes take too much memory together, or too much disk."""
        folder, look = Path(self._directory.name), 0
        while not self._reaped.wait(_WATCH_S):
            processes = processes_of(self._process.pid)
            taken = memory_of(processes, most_bytes)
            look += 1
            if taken > most_bytes:
                over = (
                    f"its processes took {taken >> 20} MB of memory together; "
                    f"allowed: {most_bytes >> 20} MB"
                )
            elif look % _DISK_EVERY == 0 and is_written_beyond(
                folder, processes, MOST_WRITTEN_BYTES, MOST_WRITTEN_FILES
            ):
                over = (
                    "it wrote too much to disk; allowed: "
                    f"{MOST_WRITTEN_BYTES >> 20} MB in {MOST_WRITTEN_FILES} files"
                )
            else:
                continue
            with self._reaping:
                # Until it is reaped its number is nobody else's.
                if not self._reaped.is_set():
                    self._over = over
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._process.pid, signal.SIGKILL)
            return

    def remember_threads(self) -> None:
        """Take what runs now for what belongs to the child, its driver's threads among it."""
        if self._memory_bytes is not None:
            self._at_first = threads_of(processes_of(self._process.pid))

    def has_started_more(self) -> bool:
        """Whether a thread or a process runs that did not when :meth:`remember_threads` was called:
        what outlives its job could look on or disturb the next."""
        if self._at_first is None:
            return False
        end = time.monotonic() + _SETTLE_S
        while threads_of(processes_of(self._process.pid)) - self._at_first:
            if time.monotonic() > end:
                return True
            time.sleep(0.02)
        return False

    @property
    def pid(self) -> int:
        """The child's process id, which is its group's too."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the child still runs."""
        # Not poll(): it would reap the child, and its group's id must stay taken until killed.
        return self._process.returncode is None and not _is_dead(self._process.pid)

    def receive(self, deadline: float) -> dict[str, Any]:
        """Wait for a message.

        Raises ChildTimedOut (the group was killed), ChildDied, or DeviceError when the
        process cannot be killed.
        """
        try:
            return receive(self._replies, deadline)
        except DeadlinePassed:
            self.kill()
            raise ChildTimedOut from None
        except (StreamEnded, BadMessage) as error:
            exit_code = self.kill(wait_first=isinstance(error, StreamEnded))
            raise ChildDied(exit_code, self._death_message(exit_code, str(error))) from None

    def submit(self, message: dict[str, Any], deadline: float) -> None:
        """Send a message and wait until the child has it; raises as :meth:`receive` does.

        A child that dies before it has the message did not die of it.
        """
        self._job_stderr_start = self._stderr_size()
        try:
            send(self._requests, message, deadline)
        except DeadlinePassed:
            self.kill()
            raise ChildTimedOut from None
        except StreamEnded:
            exit_code = self.kill(wait_first=True)
            raise ChildDied(exit_code, self._death_message(exit_code, "")) from None
        self.receive(deadline)

    def stderr_tail(self) -> str:
        """The end of what driver and kernel wrote during the current job."""
        start = max(self._job_stderr_start, self._stderr_size() - _STDERR_CHARACTERS)
        try:
            text = os.pread(self._stderr, _STDERR_CHARACTERS, start).decode(errors="replace")
        except OSError:
            return ""
        return text.replace(self._directory.name, "").strip()

    def _stderr_size(self) -> int:
        try:
            return os.fstat(self._stderr).st_size
        except OSError:  # closed
            return 0

    def _death_message(self, exit_code: int, detail: str) -> str:
        parts = [f"the measuring process died: {signal_text(exit_code)}", detail]
        if self._over:
            parts.append(self._over)
        elif exit_code == -signal.SIGKILL:
            parts.append("killed from outside, perhaps because memory ran out")
        return "\n".join(part for part in (*parts, self.stderr_tail()) if part)

    def kill(self, *, wait_first: bool = False) -> int:
        """End the whole group and return the child's exit code.

        ``wait_first`` lets a child that is dying already finish, so that its own exit code
        is seen. Raises DeviceError when the process does not go: in state D it waits inside
        the driver and ignores even SIGKILL.
        """
        if wait_first:
            self._wait_unreaped()
        self.interrupt()
        # Not reaped before it is signalled: until then, the group's id must stay taken.
        self._wait_unreaped()
        with self._reaping:
            self._reaped.set()
            exit_code = self._process.poll()
        self._close()
        if exit_code is None:
            raise DeviceError(
                Problem(
                    "device",
                    f"measuring process {self._process.pid} cannot be killed",
                    found=f"process state {_process_state(self._process.pid)}",
                    remedy="reset the device or reboot: its driver is stuck",
                )
            )
        return exit_code

    def interrupt(self) -> None:
        """Kill the whole group and return at once; who waits for a reply sees the child die.

        For any thread: a group whose id may belong to others by now is left alone.
        """
        with self._reaping:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _wait_unreaped(self) -> None:
        """Wait some seconds until the child is dead, and leave it to be reaped."""
        end = time.monotonic() + _KILL_GRACE_S
        while self.is_alive() and time.monotonic() < end:
            time.sleep(0.005)

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def close(self) -> None:
        """Kill the child and remove its directory; raises as :meth:`kill` does."""
        try:
            self.kill()
        finally:
            if self._stderr >= 0:
                os.close(self._stderr)
                self._stderr = -1
            _remove(self._directory)


def _nameless(folder: Path) -> int:
    """A file to append to that nobody can open by a name."""
    descriptor, path = tempfile.mkstemp(dir=folder)
    os.unlink(path)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor


def _remove(directory: tempfile.TemporaryDirectory[str]) -> None:
    """Remove what a child could write to; folders in folders may be deeper than Python's stack."""
    try:
        directory.cleanup()
    except RecursionError:
        command = ["rm", "-rf", "--one-file-system", "--", directory.name]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _is_dead(pid: int) -> bool:
    """Whether a child that was not reaped yet is dead; it is left for its owner to reap."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _process_state(pid: int) -> str:
    """The state letter in /proc (``D`` is uninterruptible sleep), or ``unknown``."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "unknown"
    # The second field is the command in brackets and may hold anything but ends at the last.
    return text.rpartition(")")[2].split()[0]


def _environment(private: Path) -> dict[str, str]:
    """The child's environment: kernel caches off or private, so that compile times are real."""
    search = [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    cache = private / "cache"
    scratch = private / "tmp"
    cache.mkdir()
    scratch.mkdir()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(part for part in search if part),
        "PYOPENCL_NO_CACHE": "1",
        "POCL_CACHE_DIR": str(cache),
        "POCL_KERNEL_CACHE": "0",
        "CUDA_CACHE_DISABLE": "1",
        "XDG_CACHE_HOME": str(cache),
        CACHE_SETTING: str(cache_folder()),
        "TMPDIR": str(scratch),
    }
