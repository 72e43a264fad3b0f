"""A root folder of its own for a process; nothing else of the machine is there.

mount(2), pivot_root(2), mount_setattr(2). Everything that can be written to is in memory, bounded,
and gone with the process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from worker.measuring.system_calls import call, done, leave_root, libc
from worker.measuring.visible_paths import VisiblePaths

_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXECUTION = 1, 2, 4, 8
_REMOUNT, _BIND, _BELOW, _SLAVE = 0x20, 0x1000, 0x4000, 0x80000
_MOUNT_SETATTR = 442
_AT_FDCWD, _RECURSIVE = -100, 0x8000
_SCRATCH = "size=512m,nr_inodes=20k,mode=0700"
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
          "stderr": "/proc/self/fd/2"}  # fmt: skip


def enter_own_root(
    visible: VisiblePaths, shared: Path, scratch: Path, folders: Iterable[str]
) -> None:
    """Make a root of the visible paths, and of ``shared`` to read, and move into it.

    ``scratch`` becomes an empty folder in memory, with these ``folders`` in it; the real one is
    where the new root is put together. The process must be the only one in its mount namespace and
    have a namespace of processes, both new. Raises OSError.
    """
    _mount(None, "/", None, _BELOW | _SLAVE)
    root = scratch
    _mount("nestmap", root, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,mode=0755")
    for path in (*visible.read, shared):
        _show(path, root, read_only=True)
    (root / "dev").mkdir()
    for path in visible.devices:
        _show(path, root, read_only=False)
    for name, target in _LINKS.items():
        (root / "dev" / name).symlink_to(target)
    (root / "dev/shm").mkdir()
    _mount("nestmap", root / "dev/shm", "tmpfs", _NO_SUID | _NO_DEVICES, "size=64m,mode=1777")
    _show_processes(visible, root)
    place = root / scratch.relative_to("/")
    place.mkdir(parents=True, exist_ok=True)
    # Linkers of kernels are run from here, and their results loaded.
    _mount("nestmap", place, "tmpfs", _NO_SUID | _NO_DEVICES, _SCRATCH)
    for name in folders:
        (place / name).mkdir()
    os.chdir(root)
    leave_root()
    os.chdir("/")


def _show_processes(visible: VisiblePaths, root: Path) -> None:
    """The processes of this namespace; where that is refused, this process alone."""
    place = root / "proc"
    place.mkdir()
    try:
        _mount("proc", place, "proc", _NO_SUID | _NO_DEVICES | _NO_EXECUTION)
    except OSError:
        # A container's /proc is covered in parts, and then nobody may mount a whole one.
        for path in visible.processes:
            _show(path, root, read_only=False)


def _show(path: Path, root: Path, *, read_only: bool) -> None:
    """Have a path of the machine in the new root, and all that lies below it."""
    place = root / path.relative_to("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and not str(path).startswith("/proc/"):
        target = path.readlink()
        place.symlink_to(target)
        real = path.resolve()
        if not (root / real.relative_to("/")).exists() and real.exists():
            _show(real, root, read_only=read_only)
        return
    if path.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    _mount(path, place, None, _BIND | _BELOW)
    if read_only:
        _make_read_only(place)


def _make_read_only(place: Path) -> None:
    try:
        # set, clear, propagation, user namespace: 8 bytes each.
        attributes = (_READ_ONLY | _NO_SUID).to_bytes(8, "little") + bytes(24)
        call(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), _RECURSIVE, attributes, 32)
    except OSError:
        # Before Linux 5.12: this mount only, with what its owner has it keep.
        kept = os.statvfs(place).f_flag & (_NO_SUID | _NO_DEVICES | _NO_EXECUTION | 0x400 | 0x800)
        _mount(None, place, None, _REMOUNT | _BIND | _READ_ONLY | kept)


def _mount(
    source: str | Path | None, place: str | Path, kind: str | None, flags: int, options: str = ""
) -> None:
    done(
        libc.mount(
            None if source is None else os.fsencode(source),
            os.fsencode(place),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount {place}",
    )
