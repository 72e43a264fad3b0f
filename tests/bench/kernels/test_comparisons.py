"""The comparisons: outputs held against float64, rounds that count, tables and files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.kernels.bench_file import gpu_rows, gpu_summary, gpu_value
from bench.kernels.cpu import (
    BusyCores,
    CpuFigure,
    CpuPeak,
    CpuRounds,
    CpuRow,
    MeasuredTurn,
    accepted_rounds,
    compare_on_cpu,
)
from bench.kernels.cpu_file import cpu_columns, cpu_rows, cpu_summary
from bench.kernels.cudnn import load_torch
from bench.kernels.gpu import Figure, Rounds, Row, compare_layer
from bench.kernels.judging import Judge
from bench.kernels.libraries import BY_KEY, LibraryProcess, installed, save_operands
from bench.kernels.operands import library_operands, own_layout
from bench.kernels.peak import RegisterPeak, register_peak
from bench.kernels.turns import Turn
from mapper.errors import DeviceError
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import assignment_to_json, subject_of_layer
from mapper.solver.sampling import sample
from mapper.tuning_records import TuningRecord
from nestmap.tuning.reference import make_workload
from tests.spaces import derived
from tests.unit.tuning.records import SMALL, record
from worker.devices.opencl import profile_of
from worker.measuring import back_to_back
from worker.measuring.loaded_plan import LoadedPlan, Session, open_session
from worker.measuring.settings import Tolerance

QUICK = Rounds(1, 2, 1)


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session("pocl")


def a_record(session: Session, seed: int = 0, **changes: Any) -> TuningRecord:
    wanted = derived(SMALL, "direct", profile_of(session.device))
    choices = assignment_to_json(next(iter(sample(wanted.space, 1, seed))))
    return record(choices=choices, **changes)


@pytest.mark.kernels
def test_the_kernels_of_a_record_are_verified_and_timed(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    # A machine with other work to do has no times back to back, so the test says them.
    monkeypatch.setattr(back_to_back.BackToBack, "run_ns", lambda *_: 1500.0)
    row = compare_layer(
        SMALL, [a_record(session)], session, profile_of(session.device), None, QUICK
    )
    assert row.best is not None and not row.best.failure
    assert len(row.best.times_ms) == 2 and min(row.best.times_ms) > 0
    assert row.best.back_to_back_ms == [0.0015, 0.0015]
    assert 0 < row.best.relative_error < 1e-5
    assert row.lean is None and row.cudnn is None


@pytest.mark.kernels
def test_a_second_line_is_for_the_best_without_extra_memory(session: Session):
    fast = a_record(session, time_ms=1.0, extra_bytes=64)
    lean = a_record(session, seed=1, time_ms=2.0, extra_bytes=0)
    profile = profile_of(session.device)
    row = compare_layer(SMALL, [fast, lean], session, profile, None, QUICK)
    assert row.best is not None and row.lean is not None and row.lean is not row.best
    assert row.best.details["choices"] == fast.choices
    assert row.lean.details["choices"] == lean.choices
    alone = compare_layer(SMALL, [lean], session, profile, None, QUICK)
    assert alone.lean is alone.best


@pytest.mark.kernels
def test_a_record_that_fits_the_space_no_more_fails_and_is_not_timed(session: Session):
    stale = a_record(session)
    stale = replace(stale, choices={**stale.choices, "parameters": {"th": 77}})
    row = compare_layer(SMALL, [stale], session, profile_of(session.device), None, QUICK)
    assert row.best is not None
    assert "not valid any more" in row.best.failure and row.best.times_ms == []


@pytest.mark.kernels
def test_kernels_that_compute_something_else_are_wrong(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LoadedPlan, "read_output", lambda self: np.zeros((6, 6, 8), np.float32))
    row = compare_layer(
        SMALL, [a_record(session)], session, profile_of(session.device), None, QUICK
    )
    assert row.best is not None
    assert row.best.failure.startswith("wrong") and row.best.times_ms == []


@pytest.mark.kernels
@pytest.mark.parametrize(
    "layer", [SMALL, replace(SMALL, batch=2, groups=2, layout=Layout.NCHW)], ids=["plain", "other"]
)
def test_a_layer_without_a_record_says_how_to_get_one(session: Session, layer: LayerSpec):
    notes: list[str] = []
    row = compare_layer(layer, [], session, profile_of(session.device), None, note=notes.append)
    assert row.best is None
    assert notes == ["small: no record for this device; --tune searches for one"]


def test_without_torch_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceError, match=r"pip install torch.*--no-cudnn"):
        load_torch()


def test_the_table_has_two_lines_a_layer_and_ratios_over_cudnn():
    layer = named_layer("vgg16/24")
    fast = Figure("nestmap", [0.5], 1e-7, 2_000_000, 1_000_000, back_to_back_ms=[0.4])
    lean = Figure("lean", [1.0], 2e-7)
    row = Row(layer, fast, lean, Figure("cuDNN", [0.8], 1e-6, 3_000_000, back_to_back_ms=[0.8]))
    same = Row(layer, lean, lean, Figure("cuDNN", [0.5], 1e-6))
    bare = Row(layer, None, None, Figure("cuDNN", [0.8], 1e-6))
    failed = Row(layer, Figure("nestmap", failure="wrong: x"), None, None)
    lines = gpu_rows([row, same, bare, failed])
    rate = layer.operations / 0.5e-3 / 1e12
    assert lines[0] == [
        "vgg16/24", f"{rate:.3g}", f"{rate * 0.5 / 0.8:.3g}", "1.60",
        f"{rate * 0.5 / 0.4:.3g}", "2.00", "1.0e-07", "1.0e-06", "2.00", "1.00", "3.00", "",
    ]  # fmt: skip
    assert lines[1][3] == "0.80"
    assert lines[3][-1] == "the same"
    assert lines[4][1] == "" and lines[4][-1] == "no record"
    assert lines[6][-1] == "wrong: x"
    assert gpu_summary([row, same]) == (
        "2 layers: 0.89 times cuDNN in the geometric mean, 0.63 without extra memory; "
        "2.00 back to back; slower on vgg16/24"
    )
    value = json.loads(json.dumps(gpu_value([row, bare], {}, {}, {})))
    assert value["geometric_mean_ratio"] == pytest.approx(1.6)
    assert value["rows"][0]["ratio_no_extra_memory"] == pytest.approx(0.8)
    assert value["rows"][0]["best"]["tflops"] == pytest.approx(rate)
    assert value["rows"][1]["best"] is None


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_an_output_is_judged_by_element_and_by_norm(scale: float):
    generator = np.random.default_rng(0)
    expected = generator.standard_normal((40, 30)) * scale
    judge = Judge(expected, Tolerance(accumulation_length=9))
    right = expected.astype(np.float32)
    assert judge.verdict(right).wrong is None
    for bad in (np.nan, np.inf, scale * 1e-3):
        wrong = right.copy()
        wrong[3, 4] += bad
        assert judge.verdict(wrong).wrong is not None
    assert judge.verdict(right[:-1]).wrong is not None
    assert judge.verdict(2 * right).relative_error == pytest.approx(1.0, rel=1e-6)


def figure(name: str, *turns: tuple[float, float | None], time_s: float = 1.0) -> CpuFigure:
    """Turns by cores kept busy and by cores that others kept busy."""
    measured = [MeasuredTurn(Turn((time_s,), 1.0, cores), others) for cores, others in turns]
    return CpuFigure(name, measured)


def test_a_round_counts_only_if_every_contestant_had_its_cores():
    ours = figure("nestmap", (1.9, 0.0), (1.9, 0.0), (1.0, 0.0), (1.9, 0.0))
    theirs = figure("torch", (1.99, 0.0), (1.5, 0.0), (1.99, 0.0), (1.98, 0.1))
    assert accepted_rounds([ours, theirs]) == [0, 3]


def test_a_machine_that_is_loaded_evenly_has_no_round_that_counts():
    ours = figure("nestmap", (1.0, 1.0), (1.0, 1.0))
    assert accepted_rounds([ours]) == []
    assert accepted_rounds([figure("nestmap", (1.0, None), (1.0, None))]) == [0, 1]


def test_a_contestant_that_failed_stops_no_round_from_counting():
    ours = figure("nestmap", (1.9, 0.0))
    assert accepted_rounds([ours, CpuFigure("torch", failure="has died")]) == [0]
    assert accepted_rounds([CpuFigure("torch", failure="has died")]) == []


def test_ratios_are_taken_within_rounds_that_count():
    ours = figure("nestmap", (2.0, 0.0), (2.0, 0.0), (2.0, 0.0))
    theirs = figure("torch", (2.0, 0.0), (2.0, 0.0), (2.0, 0.0), time_s=3.0)
    # A slow minute: both take twice as long, so the ratio stays.
    for f in (ours, theirs):
        f.turns[1] = MeasuredTurn(Turn((2 * f.turns[1].time_s,), 1.0, 2.0), 0.0)
    theirs.turns[2] = MeasuredTurn(Turn((30.0,), 1.0, 0.5), 0.0)
    row = CpuRow(SMALL, [ours, theirs], accepted_rounds([ours, theirs]), 3)
    assert row.accepted == [0, 1]
    assert row.ratio(theirs) == 3.0
    assert cpu_rows([row])[0][3] == "3.00" and cpu_rows([row])[0][-1] == "2 of 3"
    assert len(cpu_columns(["torch"])) == len(cpu_rows([row])[0])
    assert cpu_summary([row]) == "1 layers; in the geometric mean 3.00 times torch"
    assert row.share_of_peak() is None and row.to_json()["peak"] is None
    row.peak = CpuPeak(2 * SMALL.operations, figure("peak", *[(2.0, 0.0)] * 3, time_s=0.5))
    # The peak does four times as much in a second; in the slow minute it did not slow down.
    assert row.share_of_peak() == pytest.approx((1 / 4 + 1 / 8) / 2)
    assert row.best_share_of_peak() == pytest.approx(1 / 4)
    assert row.to_json()["peak"]["gflops"] == pytest.approx(4e-9 * SMALL.operations)
    assert cpu_rows([row])[0][4] == "0.19"
    row.accepted.clear()
    assert row.ratio(theirs) is None and row.share_of_peak() is None
    assert "no round in which all had their cores on small" in cpu_summary([row])


def test_what_others_do_is_what_is_busy_beside_the_turn(tmp_path: Path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 9999 0 0 0 50 0 0\ncpu0 1 1 1 1\n")
    busy = BusyCores(stat)
    before = busy.seconds()
    assert before is not None

    def take() -> Turn:
        stat.write_text("cpu  100000 0 50 9999 0 0 0 50 0 0\n")
        return Turn((1.0,), 1.0, 0.0)

    found = busy.during(take).foreign_cores
    assert found is not None and found > 0
    assert BusyCores(tmp_path / "absent").during(take).foreign_cores is None


LAYERS = (
    SMALL,
    LayerSpec(3, 9, 8, 5, kernel_height=3, kernel_width=2, stride=2, pad_left=1, name="strided"),
    LayerSpec(
        4, 9, 8, 6, pad_top=1, pad_right=2, name="everything",
        batch=2, groups=2, stride_y=2, dilation_x=2, layout=Layout.NCHW,
    ),
    LayerSpec(32, 5, 4, 48, stride_y=2, batch=2, layout=Layout.NCHW16C, name="in blocks"),
)  # fmt: skip


@pytest.fixture(scope="module")
def im2col() -> Iterator[LibraryProcess]:
    with LibraryProcess(BY_KEY["im2col"], Path(sys.executable), 1) as process:
        yield process


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_im2col_computes_the_layer(im2col: LibraryProcess, tmp_path: Path, layer: LayerSpec):
    workload = make_workload(subject_of_layer(layer, "high-level"), 0, {})
    save_operands(library_operands(layer, workload), tmp_path / "operands")
    result = im2col.load(layer, tmp_path / "operands", {}, 60.0)
    judge = Judge(workload.expected, workload.tolerance)
    assert judge.verdict(own_layout(layer, result)).wrong is None
    turn = im2col.turn(0.0, 3)
    assert len(turn.times) == 3 and turn.wall_s >= sum(turn.times)


def test_a_library_that_cannot_do_it_says_why_and_lives_on(im2col: LibraryProcess, tmp_path: Path):
    with pytest.raises(DeviceError, match="im2col: cannot do it; found FileNotFoundError"):
        im2col.load(SMALL, tmp_path / "absent", {}, 60.0)
    with pytest.raises(DeviceError, match="nothing is loaded"):
        im2col.turn(0.0, 1)


def test_a_python_without_the_library_has_nothing_installed(tmp_path: Path):
    assert installed(tmp_path / "python") == {}
    with pytest.raises(DeviceError, match="cannot be started"):
        LibraryProcess(BY_KEY["torch"], tmp_path / "python", 1)


@pytest.fixture
def peak(session: Session) -> Iterator[RegisterPeak]:
    with RegisterPeak(session) as found:
        yield found


@pytest.mark.kernels
def test_the_peak_is_of_every_chain_in_every_group(session: Session, peak: RegisterPeak):
    turn = peak.turn(0.0, 2)
    assert len(turn.times) == 2 and min(turn.times) > 0
    # Each chain tends to 1, and what is written is their sum.
    written = peak.written()
    groups = 4 * session.device.handle.max_compute_units
    assert len(written) == groups * session.device.handle.native_vector_width_float
    chains = round(float(written[0]))
    assert chains in (12, 24) and written == pytest.approx(chains, rel=1e-5)
    assert peak.operations == 2 * 250_000 * chains * len(written)


@pytest.mark.kernels
def test_only_cpus_that_tell_their_vectors_have_a_peak(session: Session):
    device = SimpleNamespace(kind="gpu", handle=SimpleNamespace(native_vector_width_float=4))
    asked: Any = SimpleNamespace(device=device)
    assert register_peak(asked) is None
    device.kind, device.handle.native_vector_width_float = "cpu", 1
    assert register_peak(asked) is None
    broken: Any = SimpleNamespace(
        device=session.device, context=session.context, queue=session.queue
    )
    with register_peak(session) or pytest.fail("PoCL has none") as found:
        assert found.operations > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.kernels.peak._source", lambda width: "no kernel")
        with pytest.raises(DeviceError, match="does not build"):
            register_peak(broken)


@pytest.mark.kernels
def test_kernels_libraries_and_the_peak_take_turns_on_pocl(
    session: Session, im2col: LibraryProcess, peak: RegisterPeak, tmp_path: Path
):
    row = compare_on_cpu(
        SMALL,
        [a_record(session)],
        session,
        profile_of(session.device),
        [im2col],
        tmp_path / "operands",
        CpuRounds(rounds=1, most=2, turn_s=0.0, least=2),
        lambda process: ({}, 60.0),
        peak,
    )
    ours, theirs = row.figures
    share = row.best_share_of_peak()
    assert row.peak and row.peak.operations == peak.operations
    assert len(row.peak.figure.turns) == row.tried and share and 0 < share < 1
    assert not ours.failure and not theirs.failure
    assert len(ours.turns) == len(theirs.turns) == row.tried
    assert 0 < ours.relative_error < 1e-5 and theirs.relative_error < 1e-5
    assert json.loads(json.dumps(row.to_json()))["contestants"][0]["contestant"] == "nestmap"


@pytest.mark.kernels
def test_without_a_record_the_libraries_still_run(session: Session, im2col: LibraryProcess,
                                                  tmp_path: Path):  # fmt: skip
    row = compare_on_cpu(
        SMALL,
        [],
        session,
        profile_of(session.device),
        [im2col],
        tmp_path / "operands",
        CpuRounds(rounds=1, most=1, turn_s=0.0, least=1),
        lambda process: ({}, 60.0),
    )
    assert "no record" in row.figures[0].failure and row.peak is None
    assert row.figures[1].turns and row.ratio(row.figures[1]) is None


@pytest.mark.kernels
def test_where_the_host_is_never_ahead_there_are_no_times(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    def slow(self: LoadedPlan, queue: Any) -> None:
        time.sleep(0.05)

    monkeypatch.setattr(back_to_back, "_MOST_LAUNCHES", 4)
    monkeypatch.setattr(LoadedPlan, "enqueue_run", slow)
    row = compare_layer(
        SMALL, [a_record(session)], session, profile_of(session.device), None, QUICK
    )
    assert row.best is not None and not row.best.failure
    assert len(row.best.times_ms) == 2 and row.best.back_to_back_ms == []


def test_times_that_noise_hides_are_no_times():
    layer = named_layer("vgg16/24")
    ours = Figure("nestmap", [0.5], back_to_back_ms=[-0.01, -0.02, 0.1])
    row = Row(layer, ours, None, Figure("cuDNN", [0.8], back_to_back_ms=[0.8]))
    assert ours.run_ms is None
    value = gpu_value([row], {}, {}, {})
    assert value["geometric_mean_ratio"] == pytest.approx(1.6)
    assert value["geometric_mean_run_ratio"] is None
    assert "run_ms" not in value["rows"][0]["best"]
    assert gpu_rows([row])[0][4:6] == ["", ""]
