"""Constants of the analytic cost model, fitted to a short run on a device.

Random candidates of a few cut layers are measured like those of any run and kept in the store.
Whether the model is any good is told by rank correlations on candidates that it was not fitted
to, layer by layer: a search needs the order of candidates, not their times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.cost.analytic import (
    DEFAULT_LANES,
    Counts,
    DeviceConstants,
    counts_of,
    fitted,
    predicted_ms,
    rank_correlation,
)
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import LayerSpec
from mapper.measurement import Timed
from mapper.pipeline import (
    Subject,
    assignment_from_json,
    choices_of,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from mapper.plain_files import read_plain_file
from nestmap.tuning.events import Listener, silent
from nestmap.tuning.policy import device_identity
from nestmap.tuning.run import Budget, subject_json, tune
from nestmap.tuning.strategy import random_strategy
from worker.devices.interface import MeasuringDevice

SCHEMA = "nestmap/device-constants/1"
MAX_CONSTANTS_BYTES = 2**20
LAYERS = ("vgg16/7", "vgg16/17")
VARIANTS = ("direct", "partial")
#: One in so many candidates is not fitted to, but predicted.
_HELD_OUT = 3


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the model orders the held-out candidates of one layer in one variant (Spearman)."""

    subject: str
    fitted: int
    held_out: int
    correlation: float

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value."""
        return {
            "subject": self.subject,
            "fitted": self.fitted,
            "held_out": self.held_out,
            "rank_correlation": round(self.correlation, 4),
        }


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants fitted to all candidates but the held-out ones, and how good they are on these:
    the median relative error of the time, and the order within each subject."""

    device: str
    facts: Mapping[str, str]
    constants: DeviceConstants
    median_error: float
    rankings: tuple[Ranking, ...]

    @property
    def correlation(self) -> float:
        """The median over the subjects."""
        return float(np.median([ranking.correlation for ranking in self.rankings]))

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; ``DeviceConstants.from_json`` reads its ``constants``."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "facts": dict(self.facts),
            "constants": self.constants.to_json(),
            "held_out": {
                "median_relative_error": round(self.median_error, 4),
                "rank_correlation": round(self.correlation, 4),
                "subjects": [ranking.to_json() for ranking in self.rankings],
            },
        }


def read_constants(path: Path) -> DeviceConstants:
    """The constants in a file of :meth:`Calibration.to_json`; InputError for anything else."""
    try:
        value: Any = json.loads(read_plain_file(path, MAX_CONSTANTS_BYTES))
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise ValueError("another schema")
        return DeviceConstants.from_json(dict(value["constants"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            Problem(str(path), "holds no constants", str(error)[:200], SCHEMA)
        ) from error


def scaled_layer(layer: LayerSpec) -> LayerSpec:
    """An eighth of channels and filters on a smaller image: 15 million products at most."""
    return layer.scaled(
        spatial=28 if layer.height >= 56 else 14,
        channels=max(3, layer.channels // 8),
        filters=max(4, layer.filters // 8),
    )


def calibration_layers() -> tuple[LayerSpec, ...]:
    """Small layers of two shapes: many pixels, and many channels."""
    return tuple(scaled_layer(layer_of_name(name)) for name in LAYERS)


def calibrate(
    device: MeasuringDevice,
    store: Store,
    *,
    layers: Sequence[LayerSpec],
    variants: Sequence[str] | None = None,
    candidates: int = 24,
    seconds: float = 120.0,
    seed: int = 0,
    lanes: int = DEFAULT_LANES,
    listener: Listener = silent,
) -> Calibration:
    """Measure up to ``candidates`` of each layer and variant, ``seconds`` in all, and fit.

    What the store holds of the same study is not measured again. InputError where too few were
    timed to fit constants.
    """
    subjects: list[Subject] = []
    for layer in layers:
        of_layer = [subject_of_layer(layer, variant) for variant in variants or VARIANTS]
        budget = Budget(candidates * len(of_layer), seconds / len(layers))
        tune(
            of_layer,
            device,
            store,
            seed=seed,
            budget=budget,
            listener=listener,
            make=random_strategy(),
        )
        subjects += of_layer
    profile, facts = device.profile(), device_identity(device.facts())
    device_id = store.add_device(profile.name, facts)
    found = [_measured(subject, store, device_id, seed, profile, lanes) for subject in subjects]
    return _fitted(subjects, found, profile.name, facts, lanes)


_Measured = list[tuple[Counts, float]]


def _measured(
    subject: Subject, store: Store, device_id: int, seed: int, device: DeviceProfile, lanes: int
) -> _Measured:
    """Counts and times of a study's timed candidates, in the order of their measurement."""
    value = subject_json(subject)
    study = store.open_study(
        store.add_program(value["schema"], json.dumps(value)),
        device_id,
        mode=Mode.STRICT.value,
        seed=seed,
        label=subject.label,
        variant=subject.variant,
    )
    space = derive_space(subject, Mode.STRICT, device, DEFAULT_OPTIONS)
    found: _Measured = []
    for row in store.measurements(study):
        if not isinstance(row.outcome, Timed) or row.outcome.time_ms <= 0:
            continue
        assignment = assignment_from_json(space, store.candidate(row.candidate_id).chosen)
        choices = choices_of(assignment)
        codes = {str(name): code for name, code in choices.codes.items()}
        plan = generate_kernels(subject, assignment)
        program = subject.require_program()
        counts = counts_of(program, choices.parameters, codes, plan, device, lanes)
        found.append((counts, row.outcome.time_ms))
    return found


def _fitted(
    subjects: Sequence[Subject],
    found: Sequence[_Measured],
    name: str,
    facts: Mapping[str, str],
    lanes: int,
) -> Calibration:
    held = [measured[_HELD_OUT - 1 :: _HELD_OUT] for measured in found]
    used = [_without(measured, _HELD_OUT) for measured in found]
    training = [entry for measured in used for entry in measured]
    if min(len(entries) for entries in held) < 2:
        fewest = min(len(measured) for measured in found)
        raise InputError(
            Problem("candidates", "too few were timed to fit constants and judge them",
                    f"{fewest} of one variant", f"{2 * _HELD_OUT} of each",
                    "more --candidates or --seconds")
        )  # fmt: skip
    constants, _ = fitted([c for c, _ in training], [t for _, t in training], lanes)
    errors = [
        abs(predicted_ms(counts, constants) / time_ms - 1)
        for measured in held
        for counts, time_ms in measured
    ]
    rankings = tuple(
        Ranking(
            f"{subject.label}/{subject.variant}",
            len(fit),
            len(measured),
            rank_correlation(
                [predicted_ms(counts, constants) for counts, _ in measured],
                [time_ms for _, time_ms in measured],
            ),
        )
        for subject, fit, measured in zip(subjects, used, held, strict=True)
    )
    return Calibration(name, facts, constants, float(np.median(errors)), rankings)


def _without(measured: _Measured, every: int) -> _Measured:
    return [entry for place, entry in enumerate(measured) if place % every != every - 1]
