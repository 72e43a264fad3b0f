"""Landlock (Linux 5.13 and later): a process gives up the files that it does not need.

``linux/landlock.h``; the right bits are those of its first to seventh edition.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from worker.measuring.system_calls import call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_EDITION = 1
_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_DEVICE_CONTROL = 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
#: What a rule for a plain file may name.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | _DEVICE_CONTROL
#: Every right of an edition: 13, then moving, truncating and controlling devices.
_ALL = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_BIND_AND_CONNECT = 3
#: Neither abstract sockets nor signals reach other processes.
_SCOPES = 3


def scopes_signals() -> bool:
    """Whether whoever has given up files sends no signals to others, either (Linux 6.12)."""
    return edition() >= 6


def edition() -> int:
    """The kernel's edition of Landlock; 0 where it has none."""
    try:
        return call(_CREATE_RULESET, None, 0, _ASK_EDITION)
    except OSError:
        return 0


def give_up_files(
    read: Iterable[Path], devices: Iterable[Path], write: Iterable[Path], *, network: bool
) -> None:
    """Leave this process and all that it starts nothing but these paths, and what is below them.

    ``devices`` are read and written, below ``write`` files are made as well. ``network``: TCP stays
    (where the kernel could take it away). Raises OSError; needs ``no_new_privs``.
    """
    known = edition()
    rights = _ALL[max(1, min(known, 5))]
    attributes = struct.pack(
        "=QQQ",
        rights,
        0 if network or known < 4 else _BIND_AND_CONNECT,
        0 if known < 6 else _SCOPES,
    )
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = call(_CREATE_RULESET, attributes[:size], size, 0)
    try:
        for paths, wanted in (
            (read, _READ),
            (devices, _READ_FILE | _READ_DIR | _WRITE_FILE | _DEVICE_CONTROL),
            (write, rights & ~_DEVICE_CONTROL),
        ):
            for path in paths:
                _allow(ruleset, path, wanted & rights)
        call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not path.is_dir():
            rights &= _OF_FILES
        call(_ADD_RULE, ruleset, _BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
