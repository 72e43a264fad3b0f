"""What is known of the published convolution without running it: counts, never a recorded time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.searches import earlier_searches
from bench.searches.campaign import Run, measure, own_trace, run_of
from bench.searches.contestants import OWN, WITH_DEVICES, WITH_KERNEL, Trace
from bench.searches.earlier_searches import evaluated, told_elsewhere
from bench.searches.published_kernel import GPUS, SERVED, known_of, predicted
from bench.searches.recording import Recording, read_recording
from bench.searches.replay import Arena, teaching
from bench.searches.tables import summaries, verdict
from bench.space_solving.cases import ROOT

RECORDINGS = ROOT / "bench" / "recordings"
PLAIN = {
    "block_size_x": 32, "block_size_y": 4, "tile_size_x": 1, "tile_size_y": 1,
    "use_padding": 0, "use_shmem": 1, "filter_width": 15, "filter_height": 15,
}  # fmt: skip


@lru_cache
def hub(name: str) -> Recording:
    return read_recording(RECORDINGS / f"hub_convolution_{name}.json.gz")


def known(gpu: str = "NVIDIA A100-PCIE-40GB", /, **changes: int) -> tuple[float, float]:
    """The predicted time and the cycles of a multiplication."""
    one = {name: np.array([value]) for name, value in {**PLAIN, **changes}.items()}
    time, cycles = predicted(one, GPUS[gpu])[0].tolist()
    return 2**time, 2**cycles


def test_taps_that_pixels_of_a_work_item_share_are_loaded_once() -> None:
    # 15 rows of 15 taps for a pixel; 18 rows for four pixels below each other; 60 if far apart.
    assert known()[1] == pytest.approx(1.0)
    assert known(block_size_y=4, tile_size_y=2)[1] == pytest.approx(19 / 30)
    assert known(block_size_y=16, tile_size_y=2)[1] == pytest.approx(1.0)
    # Then arithmetic limits: 64 lanes for 32 multiplications.
    assert known(block_size_y=1, tile_size_y=4)[1] == pytest.approx(0.5)


@given(
    width=st.sampled_from([16, 32, 48, 64, 80, 112]),
    height=st.sampled_from([1, 2, 4, 8]),
    tile=st.integers(1, 4),
)
def test_accesses_of_one_bank_wait_for_each_other(width: int, height: int, tile: int) -> None:
    columns = width * tile + 14
    cycles: list[int] = []
    for first in range(0, width * height, SERVED):
        banks: dict[int, set[int]] = defaultdict(set)
        for item in range(first, min(first + SERVED, width * height)):
            place = item // width * columns + item % width
            banks[place % 32].add(place)
        cycles.append(max(map(len, banks.values())))
    shape = {"block_size_x": width, "block_size_y": height, "tile_size_x": tile}
    accesses = sum(cycles) / len(cycles)
    # Pixels beside each other are a block apart, and share no tap.
    assert known(**shape)[1] == pytest.approx(max(accesses, 0.5))
    assert known(**shape, use_padding=1)[1] == pytest.approx(1.0)


def test_what_is_done_in_vain_counts() -> None:
    # A wave of 64 with 16 work-items; a block that covers 5120 columns of 4096.
    assert (
        known("AMD Instinct MI250X", block_size_x=16, block_size_y=1)[0]
        > 3.9 * known("AMD Instinct MI250X", block_size_x=64, block_size_y=1)[0]
    )
    assert (
        known(block_size_x=256, tile_size_x=4, block_size_y=1)[0]
        < known(block_size_x=240, tile_size_x=4, block_size_y=1)[0]
    )


@pytest.mark.parametrize("name", ["a100", "a4000", "mi250x"])
def test_no_recorded_time_is_used(name: str) -> None:
    recording = hub(name)
    found = known_of(recording)
    assert found is not None and found.shape == (4362, 2) and np.isfinite(found).all()
    reversed_times = replace(recording, time_ms=recording.time_ms[::-1], spread=recording.cost_ms)
    again = known_of(reversed_times)
    assert again is not None and np.array_equal(again, found)


def test_nothing_is_known_of_other_spaces_and_devices() -> None:
    recording = hub("a100")
    assert known_of(replace(recording, device="Some GPU")) is None
    assert known_of(replace(recording, document={"name": "gemm"})) is None
    another = (("block_size_z", (1,)), *recording.variables[1:])
    assert known_of(replace(recording, variables=another)) is None
    layer = read_recording(RECORDINGS / "vgg16_7_quick_partial_pocl.json.gz")
    assert known_of(layer) is None


def test_the_search_that_knows_the_kernel_takes_part_where_it_is_known() -> None:
    done: dict[tuple[str, str, str, int], Run] = {}
    files = ("hub_convolution_a100", "vgg16_7_quick_partial_pocl")
    recordings = [
        (path, read_recording(path)) for path in (RECORDINGS / f"{n}.json.gz" for n in files)
    ]
    chosen = {OWN: ["random", WITH_KERNEL]}
    measure(recordings, chosen, [0], 18, Path("absent"), done, lambda _: None)
    took_part = {(name, search) for name, _, search, _ in done}
    assert ("hub_convolution/A100", WITH_KERNEL) in took_part
    assert [search for name, search in took_part if name.startswith("vgg16")] == ["random"]


def test_it_starts_as_without_and_then_goes_its_own_way() -> None:
    arena = Arena.of(hub("a100"))
    without = own_trace(arena, "model-guided", 3, 20).rows
    with_it = own_trace(arena, WITH_KERNEL, 3, 20).rows
    assert with_it[:16] == without[:16] and with_it != without
    assert own_trace(arena, WITH_KERNEL, 3, 20).rows == with_it


def test_the_search_that_knows_other_devices_learns_from_what_was_evaluated_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(earlier_searches, "EARLIER", 40)
    earlier_searches.evaluated.cache_clear()
    own, other = hub("a4000"), hub("a100")
    layer = read_recording(RECORDINGS / "vgg16_7_quick_partial_pocl.json.gz")
    part = replace(hub("mi250x"), complete=False)
    assert teaching(own, [own, other, layer, part]) == [other]
    arena = Arena.of(own, [own, other, layer])
    (elsewhere,) = arena.elsewhere
    rows = evaluated(elsewhere, 1003)
    assert len(rows) == len(set(rows)) == 40
    described = told_elsewhere(arena, 3)(own.values[list(rows)])
    assert described.guess is None and described.columns.shape == (40, 3)
    times = np.log(other.time_ms[list(rows)])
    limit = np.quantile(times[~np.isnan(times)], 0.9)
    expected = np.where(np.isnan(times), limit, np.minimum(times, limit))
    # Both recordings have their configurations in the same order.
    assert np.array_equal(own.values, other.values)
    assert described.columns[:, -1].tolist() == pytest.approx(expected.tolist())
    earlier_searches.evaluated.cache_clear()


def test_it_takes_part_where_the_space_was_recorded_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(earlier_searches, "EARLIER", 40)
    earlier_searches.evaluated.cache_clear()
    files = ("hub_convolution_a100", "hub_convolution_a4000", "vgg16_7_quick_partial_pocl")
    every = [(path, read_recording(path)) for path in (RECORDINGS / f"{n}.json.gz" for n in files)]
    for teachers, expected in ((every, {WITH_DEVICES}), (every[:1], set[str]())):
        done: dict[tuple[str, str, str, int], Run] = {}
        chosen = {OWN: [WITH_DEVICES]}
        measure(
            [every[0], every[2]], chosen, [3], 18, Path("absent"), done, lambda _: None,
            learn_from=teachers,
        )  # fmt: skip
        assert {search for _, _, search, _ in done} == expected
        assert {name for name, *_ in done} <= {"hub_convolution/A100"}
    earlier_searches.evaluated.cache_clear()


def test_its_place_beside_the_peers_is_said_too() -> None:
    arena = Arena.of(hub("a100"))
    best = int(np.nanargmin(arena.recording.time_ms))
    traces = {"model-guided": (0, 1), WITH_KERNEL: (best, 1), "tpe": (1, 0)}
    runs = [
        run_of(arena, "optuna" if name == "tpe" else OWN, Trace(name, 0, rows * 13, 0.1))
        for name, rows in traces.items()
    ]
    lines = verdict(summaries(arena, runs, 25), 25)
    assert len(lines) == 2 and lines[1].startswith(f"{WITH_KERNEL}, at 25: 1.000, ahead of ")
