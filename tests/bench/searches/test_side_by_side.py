"""Layers recorded by many processes: the same candidates however many, none of them twice."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.searches.recording import Recording, read_recording, write_recording
from bench.searches.replay import Arena
from bench.searches.side_by_side import DrawnRow, draw_chunk, record_layers
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome, Timed, Timeout
from mapper.rewrites.families import Family
from nestmap.tuning.descriptions import COLUMNS
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.pool import DeviceState
from nestmap.tuning.reference import Workload
from nestmap.tuning.trial import Trial, choices_key
from tests.unit.tuning.fakes import TINY
from worker.devices.null import NULL_PROFILE

POINTS = 6


class ShuffledPool:
    """Has several candidates at once, and is done with any of them first."""

    def __init__(self, seed: int, *, fails: bool = False) -> None:
        self._queue: deque[Mapping[str, Any]] = deque()
        self._random = random.Random(seed)
        self._fails = fails
        self.begun: list[str] = []
        self.cutoffs_ms: list[float] = []

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def device(self) -> DeviceState:
        return DeviceState({"device.name": "fake", "device.kind": "gpu"}, NULL_PROFILE)

    def begin(self, layer: LayerSpec, variant: str, workload: Workload) -> None:
        del workload
        self.begun.append(f"{layer.name}/{variant}")

    def submit(self, choices: Mapping[str, Any], how: Repetition) -> None:
        self._queue.append(choices)
        self.cutoffs_ms.append(how.cutoff_ms)

    def drop_queued(self) -> None:
        self._queue.clear()

    def result(self, timeout_s: float) -> Trial | None:
        del timeout_s
        if len(self._queue) < 4 and self._random.random() < 0.5:
            return None
        self._queue.rotate(self._random.randrange(4))
        choices = self._queue.popleft()
        return Trial(choices, self._outcome(int(choices_key(choices)[:4], 16)))

    def _outcome(self, number: int) -> Outcome:
        if self._fails or number % 5 == 0:
            return Timeout(2.0)
        return Timed((1000 + number,) * 5, 1e-7, 7.0)


@cache
def drawn_once(*arguments: Any) -> list[DrawnRow]:
    return draw_chunk(*arguments)


class Drawn(Future[list[DrawnRow]]):
    """Drawn when somebody wants it, once for all tests."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self._arguments = arguments

    def result(self, timeout: float | None = None) -> list[DrawnRow]:
        del timeout
        return drawn_once(*self._arguments)


class AtOnce(Executor):
    """Draws in the test's own process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert fn is draw_chunk and not kwargs
        return Drawn(args)


def recorded(pool: ShuffledPool, *variants: str, **more: Any) -> list[Recording]:
    wanted = [(TINY, variant) for variant in variants]
    limits: dict[str, Any] = {"points": POINTS, "seconds": 1e6} | more
    return list(record_layers(wanted, pool, AtOnce(), **limits))


def test_recordings_do_not_depend_on_who_is_done_first(tmp_path: Path) -> None:
    first, second = (recorded(ShuffledPool(seed), "high-level") for seed in (1, 2))
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        paths = tmp_path / f"{number}a.json.gz", tmp_path / f"{number}b.json.gz"
        for path, recording in zip(paths, (a, b), strict=True):
            write_recording(path, recording)
        assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [found.name for found in first] == ["tiny/high-level"]


def test_a_recording_holds_what_was_asked_once_with_its_cost(tmp_path: Path) -> None:
    pool = ShuffledPool(0)
    (found,) = recorded(pool, "high-level")
    assert found.rows == len(found.row_of) == POINTS
    assert set(found.failures.values()) <= {"timeout"}
    for row in range(POINTS):
        failed = row in found.failures
        cost_ms = 2000.0 if failed else 7.0 + 5 * found.time_ms[row]
        assert found.cost_ms[row] == pytest.approx(cost_ms)
    assert pool.cutoffs_ms[0] == 0.0
    # Replays read it as any other.
    write_recording(tmp_path / "tiny.json.gz", found)
    assert Arena.of(read_recording(tmp_path / "tiny.json.gz")).known is not None


def test_recording_side_by_side_ends_with_its_time_and_refuses_nothing_timed() -> None:
    ticks = iter(range(10_000))
    (found,) = recorded(
        ShuffledPool(0), "high-level", points=40, seconds=12.0, clock=lambda: float(next(ticks))
    )
    assert 1 <= found.rows < 20
    with pytest.raises(InputError, match="no candidate was timed"):
        recorded(ShuffledPool(0, fails=True), "high-level", points=3)


def test_drawn_candidates_of_a_blocked_variant_have_codes_that_suit_the_device() -> None:
    layer = LayerSpec(8, 8, 8, 8, name="pointwise")
    (row,) = draw_chunk(layer, "tiled", NULL_PROFILE, Family.GROUPS, 1, 0)
    # Of the kernel that multiplies: work-groups of tiles, work-items within.
    codes = set(row.choices["mapping"].values())
    assert codes & {20, 21, 22} and codes & {10, 11, 12}
    assert row.description.parameter_names and np.isfinite(row.description.tile_costs).all()
    assert row.memory_bytes > 0 and len(row.description.columns()) == COLUMNS
