"""Outcomes in a file, by plan: recorded on a board once, replayed wherever there is none.

Lines of JSON. The first is ``{"schema": "nestmap/recorded-device/1", "profile": {…},
"facts": {…}}``, each other ``{"plan": <SHA-256 of the plan's canonical JSON>, "outcome": {…}}``;
of several lines for a plan the last counts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, Problem
from mapper.measurement import Outcome
from mapper.plain_files import read_plain_file
from worker.devices.recorded import RecordedDevice
from worker.measuring.measuring_child import profile_from_json
from worker.measuring.wire import BadMessage, outcome_from_json, outcome_to_json

SCHEMA = "nestmap/recorded-device/1"
_LARGEST_FILE_BYTES = 512 * 1024 * 1024


def open_recording(path: Path) -> RecordedDevice:
    """A device that replays a file; raises DeviceError for one that is none."""
    outcomes: dict[str, Outcome] = {}
    number = 1
    try:
        with io.BytesIO(read_plain_file(path, _LARGEST_FILE_BYTES)) as file:
            header = json.loads(file.readline())
            if header["schema"] != SCHEMA:
                raise ValueError(f"schema {header['schema']!r}; allowed: {SCHEMA}")
            profile = profile_from_json(header["profile"])
            for line in file:
                number += 1
                value = json.loads(line)
                outcomes[str(value["plan"])] = outcome_from_json(value["outcome"])
    except (OSError, ValueError, KeyError, TypeError, BadMessage) as error:
        raise DeviceError(
            Problem(f"recorded:{path}", f"is no recording (line {number})", repr(error))
        ) from None
    return RecordedDevice(outcomes, profile, header.get("facts") or {})


class Recorder:
    """Adds outcomes to a file for :func:`open_recording`."""

    def __init__(self, path: Path, profile: DeviceProfile, facts: Mapping[str, str]) -> None:
        self._path = path
        if not path.exists() or not path.stat().st_size:
            self._add({"schema": SCHEMA, "profile": asdict(profile), "facts": dict(facts)})

    def add(self, digest: str, outcome: Outcome) -> None:
        """Add the outcome of the plan with this digest."""
        self._add({"plan": digest, "outcome": outcome_to_json(outcome)})

    def _add(self, value: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value, allow_nan=False) + "\n")
