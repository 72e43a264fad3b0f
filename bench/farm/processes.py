"""Processes that the bench starts, and what each of them uses, children included."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_TICKS = os.sysconf("SC_CLK_TCK")
_GRACE_S = 20.0
_EVERY_S = 1.0


class Service:
    """A process in a session of its own: a Ctrl-C at the terminal does not reach it, we do."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        user: str | None = None,
        pipes: bool = False,
        stop_with: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._stop_with = stop_with
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else log,
                stderr=log,
                user=user,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """The end of what it has written."""
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Ask it to end; what is left of its session after a while is killed."""
        if self.process.poll() is None:
            self.process.send_signal(self._stop_with)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process and all its descendants. ``cpu_s`` counts children that have ended and were
    waited for; ``waited_s`` is how long the threads that live now were ready to run and had no
    processor; ``memory_bytes`` counts anonymous memory of all, shared memory and mapped files
    once (the most that one of them has)."""

    cpu_s: float
    waited_s: float
    memory_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    cpu_s: float
    anonymous_bytes: int
    shared_bytes: int


def usages(roots: Mapping[str, Sequence[int]]) -> dict[str, Usage]:
    """By name, what the trees under these processes use now."""
    table = dict(_processes())
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)

    def tree(pid: int) -> Iterator[_Process]:
        if pid in table:
            yield table[pid]
        for child in children.get(pid, ()):
            yield from tree(child)

    return {
        name: _sum([process for pid in pids for process in tree(pid)])
        for name, pids in roots.items()
    }


def _sum(found: Sequence[_Process]) -> Usage:
    shared = max((process.shared_bytes for process in found), default=0)
    return Usage(
        sum(process.cpu_s for process in found),
        sum(_waited_s(process.pid) for process in found),
        sum(process.anonymous_bytes for process in found) + shared,
        len(found),
    )


def _waited_s(pid: int) -> float:
    """The second number of each thread's ``schedstat``; 0 where the kernel keeps none."""
    waited_ns = 0
    with contextlib.suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


def _processes() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The name is in parentheses and may hold anything; numbers follow the last of them.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            status = (folder / "status").read_text()
        except OSError:
            continue  # it has ended
        memory = {
            line.partition(":")[0]: int(line.split()[1]) * 1024
            for line in status.splitlines()
            if line.startswith(("RssAnon:", "RssFile:", "RssShmem:"))
        }
        ticks = sum(int(field) for field in fields[11:15])
        shared = memory.get("RssFile", 0) + memory.get("RssShmem", 0)
        yield (
            int(folder.name),
            _Process(
                int(folder.name), int(fields[1]), ticks / _TICKS, memory.get("RssAnon", 0), shared
            ),
        )


class Meter:
    """Watches services from beginning to end of its block, in a thread.

    ``own`` names this very process, whose children are not counted with it.
    """

    def __init__(self, roots: Mapping[str, Sequence[int]], own: str = "bench") -> None:
        self._roots = roots
        self._own = own
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
        self._before: dict[str, Usage] = {}
        self._after: dict[str, Usage] = {}
        self._peak: dict[str, int] = {}
        self._own_before = self._own_after = 0.0

    def __enter__(self) -> Self:
        self._before, self._own_before = self._look(), _own_cpu_s()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        self._after, self._own_after = self._look(), _own_cpu_s()

    def report(self) -> dict[str, dict[str, Any]]:
        """By service: seconds of processor time within the block and of waiting for a processor,
        most memory, processes."""
        found = {
            name: {
                "cpu_s": round(after.cpu_s - self._before[name].cpu_s, 2),
                "waited_s": round(max(0.0, after.waited_s - self._before[name].waited_s), 2),
                "peak_memory_mib": round(self._peak[name] / 2**20, 1),
                "processes": after.processes,
            }
            for name, after in self._after.items()
        }
        found[self._own] = {
            "cpu_s": round(self._own_after - self._own_before, 2),
            "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1),
            "processes": 1,
        }
        return found

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._look()

    def _look(self) -> dict[str, Usage]:
        found = usages(self._roots)
        for name, usage in found.items():
            self._peak[name] = max(self._peak.get(name, 0), usage.memory_bytes)
        return found


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
