"""Results on disk until the server has them: written before they are sent, through reboots.

A result is a file of its own, so that one that is spoilt takes no other along. What the server
will never take (the job was given to somebody else, or is gone) is dropped and noted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.agent.bounded import NotAcceptable, field_of, identifier, read_object
from worker.agent.state_folder import sync_folder, write_durably

SCHEMA = "nestmap/agent-journal/1"
#: A board that measures a candidate a second fills this in a quarter of an hour offline, and
#: then measures no more until the server is back.
MAX_PENDING = 1000
MAX_ENTRY_BYTES = 1024 * 1024
_MAX_NOTES_BYTES = 256 * 1024
_SUFFIX = ".result.json"


@dataclass(frozen=True, slots=True)
class Pending:
    """A result that the server has not acknowledged."""

    path: Path
    job: str
    attempt: int
    body: dict[str, Any]


class Journal:
    """The results of one agent that are still to be sent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for partial in folder.glob(".*.partial"):  # what a power cut left
            with contextlib.suppress(OSError):
                partial.unlink()

    def __len__(self) -> int:
        return len(self._paths())

    @property
    def is_full(self) -> bool:
        """Whether another result would be one too many."""
        return len(self) >= MAX_PENDING

    def _paths(self) -> list[Path]:
        # Somebody may remove the folder at any moment; the loop asks for it before each turn.
        with contextlib.suppress(FileNotFoundError):
            return sorted(self._folder.glob(f"*{_SUFFIX}"))
        return []

    def add(self, job: str, attempt: int, body: dict[str, Any]) -> Pending:
        """Store a result; it is on the disk when this returns. Raises OSError."""
        entry = {"schema": SCHEMA, "job": job, "attempt": attempt, "body": body}
        # Sorted by time as long as the clock goes forward, and never the same twice.
        digest = hashlib.sha256(f"{job} {attempt}".encode()).hexdigest()[:16]
        path = self._folder / f"{time.time_ns():020d}-{digest}{_SUFFIX}"
        write_durably(path, json.dumps(entry, allow_nan=False).encode())
        return Pending(path, job, attempt, body)

    def prove(self) -> None:
        """Write as much as a result may have and remove it; OSError where that cannot be."""
        path = self._folder / "proof"
        write_durably(path, bytes(MAX_ENTRY_BYTES))
        path.unlink()

    def oldest(self) -> Pending | None:
        """The next result to send; files that are none are set aside and noted."""
        for path in self._paths():
            try:
                with path.open("rb") as file:
                    value = read_object(file.read(MAX_ENTRY_BYTES + 1))
                return Pending(
                    path,
                    identifier(value, "job"),
                    field_of(value, "attempt", int),
                    field_of(value, "body", dict),
                )
            except (OSError, NotAcceptable) as error:
                self._note({"file": path.name, "unreadable": str(error)[:300]})
                with contextlib.suppress(OSError):
                    path.rename(path.with_suffix(".unreadable"))
        return None

    def sent(self, pending: Pending) -> None:
        """The server has it: forget it."""
        pending.path.unlink(missing_ok=True)
        sync_folder(self._folder)

    def dropped(self, pending: Pending, reason: str) -> None:
        """The server will never take it: note that, and forget it."""
        kind = pending.body.get("outcome", {}).get("kind", "")
        self._note(
            {"job": pending.job, "attempt": pending.attempt, "outcome": kind, "reason": reason}
        )
        self.sent(pending)

    def _note(self, value: dict[str, Any]) -> None:
        """Add a line to dropped.jsonl; of two files of bounded size the older goes."""
        notes = self._folder / "dropped.jsonl"
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError):
            if notes.exists() and notes.stat().st_size > _MAX_NOTES_BYTES:
                notes.replace(notes.with_suffix(".old.jsonl"))
            with notes.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"at": stamp, **value}) + "\n")
