"""Plain ways to compute a layer, measured in the same run as what tuning found.

Shared cores change speed within minutes, so all contestants take turns for a few rounds and
the medians over the rounds count, with the ratio to the tuned kernel taken round by round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mapper.ast_model.nest import maps_below
from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.measurement import Timed, outcome_kind
from mapper.pipeline import generate_kernels, subject_of_layer
from mapper.programs.common import BIAS, IMAGE, WEIGHTS
from mapper.schedule import ScheduleCode
from nestmap.tuning.reference import (
    Workload,
    activated,
    channels_last_image,
    channels_last_weights,
    from_channels_last,
)
from worker.devices.interface import MeasuringDevice
from worker.measuring import Protocol

ROUNDS = 3
_REPETITIONS = 5
_PLACES = (
    "tuned", "sequential loops", "one output a work-item", "im2col + GEMM", "GEMM alone",
)  # fmt: skip
#: Operations that one work-item of a GPU does in a second or so.
_MOST_SEQUENTIAL = 1e8
#: What a turn may take even at the end of the time.
_LEAST_TURN_S = 1.0
#: A contestant that takes longer has one turn: what is so slow needs no second look.
_ONE_TURN_MS = 500.0
#: Slow contestants run once a round; the verified run of a plan is one more.
_PROTOCOL = Protocol(warmup=1, repetitions=_REPETITIONS, slow_after_ms=100.0, budget_ms=500.0)
_LARGEST_IM2COL_BYTES = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run a layer. ``time_ms`` is None where it failed; ``note`` says why or how.

    ``time_over_tuned`` is its time divided by the tuned kernel's, the median of the ratios of
    the rounds (above 1: the tuned kernel is faster); None where there is nothing to compare.
    """

    name: str
    time_ms: float | None
    gflops: float | None
    extra_bytes: int
    time_over_tuned: float | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value."""
        return asdict(self)


@dataclass(slots=True)
class _Entrant:
    name: str
    run: Callable[[], float | str]
    extra_bytes: int
    note: str
    times: list[float]


def compare_with_baselines(
    layer: LayerSpec,
    workload: Workload,
    device: MeasuringDevice,
    best: HostPlan | None,
    *,
    rounds: int = ROUNDS,
    timeout_s: float = 60.0,
    within_s: float | None = None,
) -> tuple[Contestant, ...]:
    """The tuned kernel (if any), two untuned kernels and im2col with NumPy's BLAS, in turns.

    With ``within_s`` no turn begins after so many seconds, and a plain kernel that would take
    longer is stopped: who had no turn says so.
    """
    key = "baselines"
    begun = time.monotonic()

    def left_s() -> float:
        return float("inf") if within_s is None else within_s - (time.monotonic() - begun)

    device.upload_workload(key, workload.inputs, workload.expected)

    def on_device(plan: HostPlan) -> Callable[[], float | str]:
        def run() -> float | str:
            outcome = device.measure(
                plan,
                workload=key,
                tolerance=workload.tolerance,
                protocol=_PROTOCOL,
                timeout_s=min(timeout_s, max(_LEAST_TURN_S, left_s())),
            )
            return outcome.time_ms if isinstance(outcome, Timed) else outcome_kind(outcome)

        return run

    entrants: list[_Entrant] = []
    if best is not None:
        entrants.append(_Entrant("tuned", on_device(best), best.extra_bytes, "", []))
    entrants += _im2col_entrants(layer, workload, left_s)
    plain = [("one output a work-item", "high-level program, untuned", one_output_each(layer))]
    if layer.operations <= _MOST_SEQUENTIAL or device.facts().get("device.kind") == "cpu":
        note = "high-level program, one work-item"
        plain.append(("sequential loops", note, sequential_loops(layer)))
    for name, note, plan in plain:
        entrants.append(_Entrant(name, on_device(plan), plan.extra_bytes, note, []))
    for _ in range(rounds):
        for entrant in entrants:
            slow = bool(entrant.times) and entrant.times[0] > _ONE_TURN_MS
            if slow or entrant.note.startswith("failed") or left_s() <= 0:
                continue
            result = entrant.run()
            if isinstance(result, str):
                entrant.note, entrant.times = f"failed: {result}", []
            else:
                entrant.times.append(result)
    for entrant in entrants:
        if not entrant.times and not entrant.note.startswith("failed"):
            entrant.note = "no time was left for it"
    tuned = entrants[0].times if best is not None else []
    # Shown from the plainest on, whoever had the first turn.
    shown = sorted(entrants, key=lambda entrant: _PLACES.index(entrant.name))
    return tuple(_contestant(entrant, tuned, layer) for entrant in shown)


def _contestant(entrant: _Entrant, tuned: list[float], layer: LayerSpec) -> Contestant:
    if not entrant.times:
        return Contestant(entrant.name, None, None, entrant.extra_bytes, None, entrant.note)
    time_ms = median(entrant.times)
    ratios = [mine / best for mine, best in zip(entrant.times, tuned, strict=False)]
    return Contestant(
        entrant.name,
        time_ms,
        gflops(layer, time_ms),
        entrant.extra_bytes,
        median(ratios) if ratios else None,
        entrant.note,
    )


def gflops(layer: LayerSpec, time_ms: float) -> float:
    """10^9 floating-point operations a second, a multiply and an add each counted."""
    return layer.operations / max(time_ms, 1e-9) / 1e6


def sequential_loops(layer: LayerSpec) -> HostPlan:
    """The plain kernel: every map of the high-level program a loop, run by one work-item."""
    return _high_level(layer, {})


def one_output_each(layer: LayerSpec) -> HostPlan:
    """What one writes first for a GPU: a work-item for every output element."""
    return _high_level(
        layer,
        {
            "row": ScheduleCode.GLOBAL_1,
            "column": ScheduleCode.FUSED,
            "filter": ScheduleCode.GLOBAL_0,
        },
    )


def _high_level(layer: LayerSpec, codes: dict[str, ScheduleCode]) -> HostPlan:
    subject = subject_of_layer(layer, "high-level")
    assignment: dict[Variable, int] = {
        CodeVariable(item.id): int(codes.get(str(item.id), ScheduleCode.SEQUENTIAL))
        for nest in subject.nests
        for item in maps_below(nest.roots)
    }
    return generate_kernels(subject, assignment)


def _im2col_entrants(
    layer: LayerSpec, workload: Workload, left_s: Callable[[], float]
) -> list[_Entrant]:
    """The matrix product alone, and with making the matrix, timed by the same calls."""
    pixels = layer.batch * layer.output_height * layer.output_width
    extra = 4 * layer.groups * layer.accumulation_length * pixels
    blas = f"NumPy {np.__version__}, {blas_name()}"
    if extra > _LARGEST_IM2COL_BYTES:
        return [_Entrant("im2col + GEMM", lambda: "matrix too large", extra, blas, [])]
    # BLAS has 32-bit floats only; what it works on is made before the clock starts.
    floats = {name: array.astype(np.float32) for name, array in workload.inputs.items()}
    image, bias = floats[IMAGE], floats.get(BIAS)
    matrices = filter_matrices(layer, floats[WEIGHTS])
    timed: dict[str, float] = {}

    def both() -> float | str:
        result = columns = product = np.empty(0, np.float32)
        totals: list[float] = []
        products: list[float] = []
        for number in range(_REPETITIONS):
            if number and left_s() <= 0:
                break
            start = time.perf_counter()
            columns = im2col(layer, image)
            middle = time.perf_counter()
            product = columns @ matrices
            end = time.perf_counter()
            result = from_matrices(layer, product, bias)
            totals.append((time.perf_counter() - start) * 1e3)
            products.append((end - middle) * 1e3)
        expected = workload.expected
        scale = float(np.sqrt(np.mean(expected**2)))
        # Looser than for a kernel: BLAS sums in its own order. It must only be the same thing.
        if not float(np.abs(result - expected).max()) <= 1e-3 * scale:
            return "wrong"
        timed["product"] = median(products)
        return median(totals)

    return [
        _Entrant("im2col + GEMM", both, extra, blas, []),
        _Entrant("GEMM alone", lambda: timed.get("product", "wrong"), extra, blas, []),
    ]


def im2col(layer: LayerSpec, image: NDArray[np.float32]) -> NDArray[np.float32]:
    """[groups][batch * OH * OW][kh * kw * C / groups]: every window of a group as a row."""
    images = channels_last_image(layer, image)
    padded = np.pad(
        images,
        ((0, 0), (layer.pad_top, layer.pad_bottom), (layer.pad_left, layer.pad_right), (0, 0)),
    )
    windows = sliding_window_view(padded, (layer.window_height, layer.window_width), axis=(1, 2))  # pyright: ignore[reportCallIssue, reportArgumentType]
    windows = windows[:, :: layer.stride_y, :: layer.stride_x]
    windows = windows[..., :: layer.dilation_y, :: layer.dilation_x]
    kernel = (layer.kernel_height, layer.kernel_width)
    parts = windows.reshape(*windows.shape[:3], layer.groups, -1, *kernel)
    # [N][OH][OW][G][C][kh][kw] -> [G][N][OH][OW][kh][kw][C]
    rows = np.ascontiguousarray(parts.transpose(3, 0, 1, 2, 5, 6, 4))
    return rows.reshape(layer.groups, -1, layer.accumulation_length)


def filter_matrices(layer: LayerSpec, weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """[groups][kh * kw * C / groups][filters / groups], to multiply :func:`im2col` with."""
    weights = channels_last_weights(layer, weights)
    matrices = weights.reshape(layer.groups, -1, layer.accumulation_length)
    return np.ascontiguousarray(matrices.swapaxes(1, 2))


def from_matrices(
    layer: LayerSpec, product: NDArray[np.float32], bias: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """The result of a layer from the product [groups][batch * OH * OW][filters / groups]."""
    places = (layer.batch, layer.output_height, layer.output_width)
    filters_last = product.reshape(layer.groups, *places, -1).transpose(1, 2, 3, 0, 4)
    result = filters_last.reshape(*places, layer.filters)
    if bias is not None:
        result = result + bias
    return from_channels_last(layer, activated(layer, result))


def blas_name() -> str:
    """The BLAS that NumPy was built with, and its version."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown BLAS')} {blas.get('version', '')}".strip()
