"""The agent's folder: its lock, its identity, and writing files so that a power cut spoils none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from worker.agent.bounded import NotAcceptable, identifier, read_object
from worker.agent.failures import AgentExit, AgentFailure

_LARGEST_IDENTITY_BYTES = 16 * 1024


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all, and return only when it is on the disk.

    Raises OSError, for instance when the disk is full; nothing is left behind then.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names that were added or removed in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems of boards (FAT, some network ones) cannot; they sync with the file.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which device this board is to which server; ``token`` is its secret."""

    url: str
    device: str
    token: str


class StateFolder:
    """The folder, held by one agent at a time; a context manager.

    Making one raises AgentFailure when it cannot be made or another agent holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failure(f"cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise self._failure(
                f"another agent works in it (process {holder or 'unknown'}); "
                "each agent needs a folder of its own"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._lock)

    def require(self) -> None:
        """AgentFailure if somebody removed the folder: results would be lost."""
        if not (self.path / "lock").exists():
            raise self._failure("is gone")

    def _failure(self, what: str) -> AgentFailure:
        return AgentFailure(f"state folder {self.path}: {what}", AgentExit.STATE_FOLDER)

    def folder(self, name: str) -> Path:
        """A folder inside, made if it is not there."""
        path = self.path / name
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._failure(f"{name} cannot be made: {error.strerror}") from None
        return path

    def identity(self) -> Identity | None:
        """What enrolling stored; None if this board never enrolled.

        Raises AgentFailure for a file that cannot be read.
        """
        path = self.path / "identity.json"
        try:
            with path.open("rb") as file:
                value = read_object(file.read(_LARGEST_IDENTITY_BYTES))
            return Identity(str(value["url"]), identifier(value, "device"), str(value["token"]))
        except FileNotFoundError:
            return None
        except (OSError, KeyError, NotAcceptable) as error:
            raise self._failure(f"identity.json cannot be read: {error}") from None

    def keep_identity(self, identity: Identity) -> None:
        """Store it, for the owner of the folder alone to read."""
        value = {"url": identity.url, "device": identity.device, "token": identity.token}
        try:
            write_durably(self.path / "identity.json", json.dumps(value).encode())
        except OSError as error:
            raise self._failure(f"identity.json cannot be written: {error.strerror}") from None
