"""Devices whose answers a test chooses, and a tiny layer with its subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from mapper.constraint_rules.predicate import Variable
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome, Timed
from mapper.pipeline import Subject, subject_of_layer
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from worker.devices.null import NullDevice

TINY = LayerSpec(2, 5, 5, 4, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, name="tiny")


def tiny_subjects(*variants: str) -> tuple[Subject, ...]:
    """The tiny layer in each variant."""
    return tuple(subject_of_layer(TINY, variant) for variant in variants)


class ScriptedDevice(NullDevice):
    """A null device that notes what it measured; ``answer`` may choose outcomes or raise.

    ``answer(number, candidate)`` returns None for the null device's own outcome.
    """

    def __init__(
        self, answer: Callable[[int, str], Outcome | None] = lambda number, candidate: None
    ) -> None:
        super().__init__()
        self._answer = answer
        self.measured: list[str] = []
        self.timeouts_s: list[float] = []
        self.uploads = 0

    def upload_workload(
        self,
        key: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        expected: np.ndarray[Any, Any],
    ) -> None:
        self.uploads += 1
        super().upload_workload(key, inputs, expected)

    def measure(self, plan: HostPlan, *, candidate: str = "", **options: Any) -> Outcome:  # pyright: ignore[reportIncompatibleMethodOverride]
        outcome = super().measure(plan, candidate=candidate, **options)
        chosen = self._answer(len(self.measured), candidate)
        self.measured.append(candidate)
        self.timeouts_s.append(options.get("timeout_s", 0.0))
        return outcome if chosen is None else chosen


def timed(time_ms: float) -> Timed:
    """A right candidate with this time."""
    return Timed((int(time_ms * 1e6),), 0.0, 0.0)


_POOL = 96
_DRAWN: dict[str, list[dict[Variable, int]]] = {}


def draw_once(space: Space, count: int, seed: int) -> list[dict[Variable, int]]:
    """A draw by seed from what the sampler drew once a test session: drawing is most of these
    tests' time."""
    key = repr(space.variables)
    if key not in _DRAWN:
        _DRAWN[key] = list(sample(space, _POOL, 1))
    return Random(seed).sample(_DRAWN[key], min(count, len(_DRAWN[key])))
