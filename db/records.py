"""What the store takes and gives: frozen values without a connection behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from db.canonical import canonical_json, content_hash, plain_json
from mapper.measurement import Outcome


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """A program, named by the SHA-256 of its canonical JSON text. ``written_hash`` is that of the
    program without its schedule, where it has one."""

    hash: str
    schema: str
    json_text: str
    written_hash: str


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """A device with one state of its software; another driver version is another device."""

    id: int
    name: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Study:
    """One search for one program on one device.

    All fields but ``id`` and ``created_at`` are its identity: opening a study with the same
    ones resumes it.
    """

    id: int
    program_hash: str
    device_id: int
    mode: str
    seed: int
    label: str
    variant: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """All that is needed to build a candidate again, whatever study it came from.

    ``parameters``, ``mapping`` and ``local_sizes`` are JSON values and are held as they
    will be read back: tuples become lists and keys strings.
    """

    program_hash: str
    parameters: Mapping[str, Any]
    mapping: Any
    local_sizes: Any
    source_hash: str
    memory_bytes: int
    nestmap_version: str

    def __post_init__(self) -> None:
        for name in ("parameters", "mapping", "local_sizes"):
            object.__setattr__(self, name, plain_json(getattr(self, name)))

    @property
    def id(self) -> str:
        """See :func:`candidate_id`."""
        return candidate_id(self.program_hash, self.parameters, self.mapping, self.local_sizes)

    @property
    def chosen(self) -> dict[str, Any]:
        """What was chosen, in the form that every command reads."""
        return {
            "mapping": self.mapping,
            "parameters": self.parameters,
            "local_sizes": self.local_sizes,
        }


def candidate_id(
    program_hash: str, parameters: Mapping[str, Any], mapping: Any, local_sizes: Any
) -> str:
    """Hash of what was chosen; the source that a version prints for it does not count."""
    chosen = [program_hash, plain_json(parameters), plain_json(mapping), plain_json(local_sizes)]
    return content_hash(canonical_json(chosen))


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """One candidate's outcome in one study, with the source and version that really ran."""

    id: int
    study_id: int
    candidate_id: str
    outcome: Outcome
    memory_bytes: int
    source_hash: str
    nestmap_version: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point that no other of its study beats in both time and memory."""

    time_ms: float
    memory_bytes: int
    candidate_id: str
