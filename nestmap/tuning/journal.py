"""Every trial of a search in a file, at once, so that a search goes on after any end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from mapper.errors import InputError, Problem
from nestmap.tuning.trial import Trial, trial_from_json
from worker.devices.pocl_target import target_in
from worker.measuring.wire import BadMessage

SCHEMA = "nestmap/search-journal/2"
#: Read as well: without the target that the device's compiler had.
_WITHOUT_TARGET = "nestmap/search-journal/1"
#: Facts that have to be the same for a trial to be worth anything to a later run.
_IDENTITY = ("device.name", "driver.version", "platform.version", "device.target")


class Journal:
    """NDJSON: a line that names the device, then a line for each trial; a context manager.

    A line with another device's name begins a part that is skipped when read. The last line
    may be cut off: the process may have been killed while it wrote.
    """

    def __init__(self, path: Path, facts: Mapping[str, str]) -> None:
        self._path = path
        self._identity = {key: facts.get(key, "") for key in _IDENTITY}
        # What a journal without targets was measured with: nobody set one then.
        self._untold = target_in(facts.get("device.version", ""))
        self._trials: dict[str, list[Trial]] = {}
        self._file: IO[str] | None = None
        self._read()

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(
                Problem(str(self._path), f"cannot be written: {error.strerror}")
            ) from error
        self._write({"schema": SCHEMA, "device": self._identity})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def trials(self, layer: str) -> list[Trial]:
        """The trials of this device under a layer's key."""
        return list(self._trials.get(layer, ()))

    def add(self, layer: str, trial: Trial) -> None:
        """Store a trial; it is in the file when this returns."""
        self._trials.setdefault(layer, []).append(trial)
        self._write({"layer": layer, "trial": trial.to_json()})

    def _write(self, value: dict[str, Any]) -> None:
        assert self._file is not None, "the journal is not open"
        # A line break first as well: the last line of a killed process may have none.
        self._file.write("\n" + json.dumps(value, separators=(",", ":")) + "\n")
        self._file.flush()

    def _read(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise InputError(Problem(str(self._path), "cannot be read", str(error))) from error
        ours = False
        for line in filter(str.strip, text.splitlines()):
            try:
                value = json.loads(line)
                if "schema" in value:
                    self._check_schema(value["schema"])
                    device = {"device.target": self._untold, **value["device"]}
                    ours = device == self._identity
                elif ours:
                    trial = trial_from_json(value["trial"])
                    self._trials.setdefault(value["layer"], []).append(trial)
            except (ValueError, KeyError, TypeError, BadMessage):
                # The line that was being written when its process was killed.
                continue

    def _check_schema(self, schema: object) -> None:
        if schema not in (SCHEMA, _WITHOUT_TARGET):
            raise InputError(
                Problem(str(self._path), "is no journal of a search", repr(schema), SCHEMA)
            )
