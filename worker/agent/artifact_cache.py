"""Artifacts on disk by the SHA-256 of their bytes: fetched once, verified, bounded in size."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from worker.agent.failures import TryAgain

#: As large as the largest layer's arrays in use; a server may not fill a board's disk.
MAX_ARTIFACT_BYTES = 1024 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_SPARED_BYTES = 64 * 1024 * 1024

Fetch = Callable[[str, Callable[[bytes], object], int], None]


class ArtifactCache:
    """Files named by their hash, those least recently used removed beyond ``most_bytes``."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        #: Verified by this process: a file's bytes are hashed once, not for every job.
        self._verified: set[str] = set()
        for partial in folder.glob("*.partial"):  # what a power cut left
            with contextlib.suppress(OSError):
                partial.unlink()

    def path_of(self, digest: str) -> Path:
        """Where an artifact lies if it is here."""
        return self._folder / digest

    def take(self, digest: str, fetch: Fetch, in_use: Collection[str] = ()) -> Path:
        """The file of an artifact, fetched if it is not here.

        ``fetch(digest, sink, most_bytes)`` downloads; ``in_use`` are not removed to make room.
        Raises TryAgain for bytes that have not the hash, OSError for a disk that is full, and
        what ``fetch`` raises.
        """
        path = self.path_of(digest)
        if self._is_here(digest, path):
            with contextlib.suppress(OSError):
                os.utime(path)  # the time of last use, for the order of removal
            return path
        partial = self._folder / f"{digest}.partial"
        try:
            with partial.open("wb") as file:
                found = hashlib.sha256()

                def sink(chunk: bytes) -> None:
                    found.update(chunk)
                    file.write(chunk)

                fetch(digest, sink, self._room())
            if found.hexdigest() != digest:
                raise TryAgain(f"artifact {digest} came with other bytes ({found.hexdigest()})")
            partial.chmod(0o400)
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        self._verified.add(digest)
        self._make_room({*in_use, digest})
        return path

    def _is_here(self, digest: str, path: Path) -> bool:
        if not path.exists():
            self._verified.discard(digest)
            return False
        if digest in self._verified:
            return True
        if _digest_of(path) == digest:
            self._verified.add(digest)
            return True
        path.unlink()  # a disk that lies, or a cut-off copy
        return False

    def require_room(self) -> None:
        """OSError where there is no room for an artifact of any size."""
        self._room()

    def _room(self) -> int:
        """Most bytes that the next artifact may have, so that results still fit on the disk;
        OSError where there is no room for any."""
        disk = os.statvfs(self._folder)
        room = disk.f_frsize * disk.f_bavail - _SPARED_BYTES
        if room <= 0:
            kept = f"fewer than {_SPARED_BYTES >> 20} MiB are free, which are kept for results"
            raise OSError(errno.ENOSPC, kept, str(self._folder))
        return min(MAX_ARTIFACT_BYTES, room)

    def _make_room(self, in_use: Collection[str]) -> None:
        """Remove what was used least recently until the rest fits."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._most_bytes:
                return
            if path.name in in_use:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
            self._verified.discard(path.name)

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                yield status.st_mtime_ns, status.st_size, path


def _digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
