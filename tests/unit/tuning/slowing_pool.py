"""A pool whose machine gets slower with every kernel, and records that another minute left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mapper.layer_spec import LayerSpec
from mapper.measurement import CompileError, Outcome, Timed
from mapper.pipeline import assignment_to_json
from mapper.tuning_records import TuningRecord
from nestmap.tuning.layer_search import CONFIRMING, quest
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.pool import DeviceState
from nestmap.tuning.proposals.sample_and_change import SampleAndChange
from nestmap.tuning.reference import Workload
from nestmap.tuning.trial import Trial, choices_key
from tests.unit.tuning.records import SMALL, record
from worker.devices.null import NULL_PROFILE

FACTS = {"device.name": "fake", "driver.version": "1", "platform.version": "1"}


class SlowingPool:
    """Every kernel takes longer than the one before unless it is ``steady``; ``factors`` by
    variant, None for failure."""

    def __init__(self, factors: Mapping[str, float | None], *, steady: bool = False) -> None:
        self._factors = factors
        self._steady = steady
        self._variant = ""
        self._begun: list[str] = []
        self.waiting = 0
        self._asked: Mapping[str, Any] = {}
        self.measured: list[tuple[str, str]] = []

    def __enter__(self) -> SlowingPool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def device(self) -> DeviceState:
        return DeviceState(dict(FACTS), NULL_PROFILE)

    def begin(self, layer: LayerSpec, variant: str, workload: Workload) -> int:
        assert layer == SMALL and workload.expected.size
        self._begun.append(variant)
        return len(self._begun) - 1

    def resume(self, number: int) -> None:
        self._variant = self._begun[number]

    def forget(self) -> None:
        assert not self.waiting
        self._begun.clear()

    def drain(self) -> None:
        self.waiting = 0

    def submit(self, choices: Mapping[str, Any], how: Repetition) -> None:
        assert how == CONFIRMING
        self._asked = choices

    def result(self, timeout_s: float) -> Trial | None:
        self.measured.append((self._variant, choices_key(self._asked)))
        factor = self._factors[self._variant]
        outcome: Outcome = CompileError("no")
        if factor is not None:
            slower = 1 if self._steady else 1 + len(self.measured)
            outcome = Timed((int(1e6 * factor * slower),) * 5, 1e-7, 0.0)
        return Trial(self._asked, outcome, 0, 0, 1e-7, f"{self._variant} now")


def found(variant: str, count: int, time_ms: float) -> list[TuningRecord]:
    """Records of valid mappings, as a search of another minute left them."""
    wanted = quest(SMALL, variant, NULL_PROFILE)
    drawn = SampleAndChange(wanted.space, 1).propose(count)
    return [
        record(
            variant=variant, choices=assignment_to_json(chosen), time_ms=time_ms + number,
            source_hash=f"{variant} {number}",
        )
        for number, chosen in enumerate(drawn)
    ]  # fmt: skip
