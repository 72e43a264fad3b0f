"""What a child and all that it started take of the machine, as the system counts it (proc(5)).

A limit of the system holds for one process, and for what that allocates for itself alone. So
somebody outside adds up what the processes of a child have together.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Folders in folders that a driver's cache may have.
_MOST_DEPTH = 32
#: Places in /proc/PID/stat behind the name.
_STATE, _PARENT, _GROUP, _SESSION = range(4)


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    group: int
    session: int


def processes_of(child: int) -> list[int]:
    """A child that leads a session, what descends from it, and who else is in its session or its
    group: what it started and left to others, where it cannot leave them."""
    table = list(_table())
    found = {
        process.pid for process in table if child in (process.pid, process.group, process.session)
    }
    grown = True
    while grown:
        more = {process.pid for process in table if process.parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found)


def _table() -> Iterable[_Process]:
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError, IndexError):
            # The second field is the command in brackets and may hold anything.
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if fields[_STATE] not in (b"Z", b"X"):
                yield _Process(
                    int(name), int(fields[_PARENT]), int(fields[_GROUP]), int(fields[_SESSION])
                )


def threads_of(processes: Iterable[int]) -> frozenset[int]:
    """The numbers of all threads of these processes; each process has one of its own number."""
    found: set[int] = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            found.update(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    return frozenset(found)


def is_written_beyond(
    folder: Path, processes: Iterable[int], most_bytes: int, most_files: int
) -> bool:
    """Whether there is more on disk in a folder, and in files that have no name any more but that
    processes have open. What cannot be looked into counts as more."""
    taken, number = _nameless(processes), 0
    waiting = [(str(folder), 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    number += 1
                    with contextlib.suppress(FileNotFoundError):
                        taken += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    if taken > most_bytes or number > most_files or depth > _MOST_DEPTH:
                        return True
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
    return taken > most_bytes


def _nameless(processes: Iterable[int]) -> int:
    """Bytes of files on disk that were deleted and that processes have open, each once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in processes:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    found = os.stat(f"{folder}/{name}")
                    if not stat.S_ISREG(found.st_mode) or found.st_nlink:
                        continue
                    if not os.readlink(f"{folder}/{name}").startswith("/memfd:"):
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def memory_of(processes: Iterable[int], enough: int) -> int:
    """Bytes of memory that processes have together, files in memory that they hold included; what
    is surely less than ``enough`` is not looked at closely, so that nobody is held up by it."""
    there = list(processes)
    held = _files_in_memory(there)
    resident = held + sum(_resident(pid) for pid in there)
    if resident < enough:
        return resident
    return held + sum(_proportional(pid) for pid in there)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    """What a process shares with others is divided among them, programs and libraries on disk do
    not count; all of it where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found = {
            name: rest.split() for name, _, rest in (x.partition(":") for x in text.split("\n"))
        }
        if "Pss_Anon" in found:  # since Linux 5.2
            kilobytes = int(found["Pss_Anon"][0]) + int(found["Pss_Shmem"][0])
        else:
            kilobytes = int(found["Pss"][0])
    except (OSError, KeyError, ValueError, IndexError):
        return _resident(pid)
    return kilobytes * 1024


def _files_in_memory(processes: Iterable[int]) -> int:
    """Bytes of files without a name (memfd_create(2)) that processes have open, each once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in processes:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{name}").startswith("/memfd:"):
                        found = os.stat(f"{folder}/{name}")
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())
