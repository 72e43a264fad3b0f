"""What became of one candidate, as it travels between processes and into the journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mapper.ast_model.nest import NestMap
from mapper.ast_model.nodes import MapId
from mapper.kernel_gen.generate import Choices
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome, Timed, outcome_kind
from mapper.pipeline import Subject
from mapper.schedule import ScheduleCode
from mapper.tuning_records import same_layer
from worker.measuring.wire import outcome_from_json, outcome_to_json

#: How a candidate's kernels could not be made: a defect of rules or generator, not a time.
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate of a layer in a variant and its outcome; ``refused`` says why there were
    no kernels to run, and the outcome is then None."""

    choices: Mapping[str, Any]
    outcome: Outcome | None
    extra_bytes: int = 0
    prepared_bytes: int = 0
    relative_error: float = 0.0
    source_hash: str = ""
    refused: str = ""

    @property
    def time_ms(self) -> float | None:
        """The median time if it ran and was right."""
        return self.outcome.time_ms if isinstance(self.outcome, Timed) else None

    @property
    def kind(self) -> str:
        """The outcome's kind, or that there was none."""
        return REFUSED if self.outcome is None else outcome_kind(self.outcome)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; :func:`trial_from_json` reads it back."""
        return {
            "choices": dict(self.choices),
            "outcome": None if self.outcome is None else outcome_to_json(self.outcome),
            "extra_bytes": self.extra_bytes,
            "prepared_bytes": self.prepared_bytes,
            "relative_error": self.relative_error,
            "source_hash": self.source_hash,
            "refused": self.refused,
        }


def trial_from_json(value: Mapping[str, Any]) -> Trial:
    """Read what :meth:`Trial.to_json` wrote (by this program, for this program).

    Raises KeyError, TypeError or BadMessage for anything else.
    """
    outcome = value["outcome"]
    return Trial(
        value["choices"],
        None if outcome is None else outcome_from_json(outcome),
        int(value["extra_bytes"]),
        int(value["prepared_bytes"]),
        float(value["relative_error"]),
        str(value["source_hash"]),
        str(value["refused"]),
    )


def layer_key(layer: LayerSpec, variant: str) -> str:
    """Names a layer in a variant, whatever the layer is called."""
    return _digest({"layer": same_layer(layer).to_json(), "variant": variant})


def choices_key(choices: Mapping[str, Any]) -> str:
    """Names a candidate among those of its layer and variant."""
    return _digest({key: choices[key] for key in choices if choices[key]})


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def generator_choices(subject: Subject, choices: Mapping[str, Any]) -> Choices:
    """A candidate's JSON as the generator's input. KeyError for a map that is not there."""
    ids: dict[str, MapId] = {}
    for nest in subject.nests:
        _collect(nest.roots, ids)
    return Choices(
        dict(choices.get("parameters", {})),
        {ids[name]: ScheduleCode(code) for name, code in choices["mapping"].items()},
        {name: (s[0], s[1], s[2]) for name, s in choices.get("local_sizes", {}).items()},
    )


def _collect(maps: tuple[NestMap, ...], ids: dict[str, MapId]) -> None:
    for item in maps:
        ids[str(item.id)] = item.id
        _collect(item.nested, ids)
