"""Kernels of tuning records and cuDNN, layer by layer, in turns in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from math import exp, log
from statistics import median
from typing import Any

from bench.kernels.cudnn import CudnnLayer
from bench.kernels.judging import Judge
from bench.kernels.operands import library_operands, library_tolerance
from mapper.device_profile import DeviceProfile
from mapper.errors import NestmapError
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer
from mapper.tuning_records import TuningRecord, tflops
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import Workload, make_workload
from nestmap.tuning.statistics import interquartile
from nestmap.tuning.valid_records import best_valid, plan_of
from worker.measuring.back_to_back import BackToBack
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import LoadedPlan, Session


@dataclass(frozen=True, slots=True)
class Rounds:
    """Contestants take turns of ``repetitions`` timed runs after ``warmup`` others."""

    rounds: int = 3
    repetitions: int = 10
    warmup: int = 5


@dataclass(slots=True)
class Figure:
    """One contestant on one layer. Times in milliseconds, all of them; ``failure`` says why
    there are none. ``times_ms`` of kernels are by their events, ``back_to_back_ms`` without what
    events and launches add; of a library, which is timed in CUDA graphs, they are the same.
    ``relative_error`` is the 2-norm of the difference to a float64 reference over the norm of the
    reference."""

    contestant: str
    times_ms: list[float] = field(default_factory=list[float])
    relative_error: float = 0.0
    extra_bytes: int = 0
    prepared_bytes: int = 0
    failure: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    back_to_back_ms: list[float] = field(default_factory=list[float])

    @property
    def time_ms(self) -> float | None:
        """The median."""
        return median(self.times_ms) if self.times_ms else None

    @property
    def run_ms(self) -> float | None:
        """The median back to back; None without times, and where noise is more than they are."""
        found = median(self.back_to_back_ms) if self.back_to_back_ms else 0.0
        # Each is the difference of two measurements.
        return found if found > 0 else None

    def to_json(self, layer: LayerSpec) -> dict[str, Any]:
        """With what follows from the times."""
        value = asdict(self)
        if self.times_ms:
            value["time_ms"] = median(self.times_ms)
            value["spread"] = interquartile(self.times_ms)
            value["tflops"] = tflops(layer, median(self.times_ms))
        if self.run_ms is not None:
            value["run_ms"] = self.run_ms
            value["run_tflops"] = tflops(layer, self.run_ms)
        return value


@dataclass(slots=True)
class Row:
    """A layer with its contestants: the fastest kernels, those without extra memory, cuDNN."""

    layer: LayerSpec
    best: Figure | None = None
    lean: Figure | None = None
    cudnn: Figure | None = None

    @property
    def ratio(self) -> float | None:
        """cuDNN's time over that of the fastest kernels."""
        return ratio(self.cudnn, self.best)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value."""
        return {
            "layer": self.layer.to_json(),
            "operations": self.layer.operations,
            **{
                name: None if figure is None else figure.to_json(self.layer)
                for name, figure in (
                    ("best", self.best),
                    ("no_extra_memory", self.lean),
                    ("cudnn", self.cudnn),
                )
            },
            "ratio": self.ratio,
            "ratio_no_extra_memory": ratio(self.cudnn, self.lean),
            "run_ratio": run_ratio(self.cudnn, self.best),
            "run_ratio_no_extra_memory": run_ratio(self.cudnn, self.lean),
        }


def ratio(other: Figure | None, ours: Figure | None) -> float | None:
    """The other's median time over ours; None unless both have one."""
    return _quotient(other and other.time_ms, ours and ours.time_ms)


def run_ratio(other: Figure | None, ours: Figure | None) -> float | None:
    """As :func:`ratio`, of runs back to back."""
    return _quotient(other and other.run_ms, ours and ours.run_ms)


def _quotient(other: float | None, ours: float | None) -> float | None:
    return None if other is None or ours is None else other / ours


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of no values."""
    return exp(sum(map(log, values)) / len(values)) if values else None


class Kernels:
    """The kernels of a plan, loaded, with their figure. PlanFailure where the device refuses."""

    def __init__(self, name: str, plan: HostPlan, session: Session) -> None:
        self.figure = Figure(name)
        self.figure.extra_bytes = plan.scratch_bytes
        self.figure.prepared_bytes = plan.prepared_bytes
        self.loaded = LoadedPlan(session, plan)

    def verify(self, workload: Workload, judge: Judge) -> None:
        """Run once from poisoned buffers; the figure says if it is wrong."""
        self.loaded.poison()
        self.loaded.fill_inputs(workload.inputs)
        self.loaded.run()
        self.judge(judge)

    def judge(self, judge: Judge) -> None:
        """Hold the output of the last run against the reference."""
        verdict = judge.verdict(self.loaded.read_output())
        self.figure.relative_error = max(self.figure.relative_error, verdict.relative_error)
        if verdict.wrong is not None:
            self.figure.failure = f"wrong: {verdict.wrong.message}"

    def end(self, judge: Judge) -> None:
        """Hold the last output against the reference, too; what is wrong has no times. The plan is
        released."""
        if not self.figure.failure:
            self.judge(judge)
        if self.figure.failure:
            self.figure.times_ms.clear()
            self.figure.back_to_back_ms.clear()
        self.loaded.__exit__()

    def time(self, how: Rounds, back_to_back: BackToBack) -> None:
        """A turn, unless it failed."""
        if self.figure.failure:
            return
        for _ in range(how.warmup):
            self.loaded.run()
        times_ns = [self.loaded.run().span_ns for _ in range(how.repetitions)]
        self.figure.times_ms += [ns / 1e6 for ns in times_ns]
        with suppress(PlanFailure):
            # Without these the figure has its times by events.
            for _ in range(how.repetitions):
                run_ns = back_to_back.run_ns(self.loaded, round(median(times_ns)))
                if run_ns is None:
                    break
                self.figure.back_to_back_ms.append(run_ns / 1e6)


def compare_layer(
    layer: LayerSpec,
    records: Sequence[TuningRecord],
    session: Session,
    profile: DeviceProfile,
    torch: Any | None,
    how: Rounds = Rounds(),
    *,
    kernel_names: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Row:
    """Time the best records of a layer and cuDNN (where there is torch) in turns.

    Everyone's output is held against float64 before the first turn and after the last. What
    fails says so in its figure; DeviceError only where the device itself fails.
    """
    row = Row(layer)
    chosen = best_valid(records, layer, profile)
    lean = best_valid(records, layer, profile, max_extra_bytes=0)
    subject = subject_of_layer(layer, "high-level")
    workload = make_workload(subject, INPUT_SEED, {})
    judge = Judge(workload.expected, workload.tolerance)
    kernels: list[Kernels] = []
    if chosen is None:
        note(f"{layer.name}: no record for this device; --tune searches for one")
    else:
        made = partial(plan_of, chosen, profile)
        row.best = entered("nestmap", chosen, made, session, workload, judge, kernels)
    if lean is not None and lean is not chosen:
        name = "nestmap, no extra memory"
        made = partial(plan_of, lean, profile)
        row.lean = entered(name, lean, made, session, workload, judge, kernels)
    elif lean is not None:
        row.lean = row.best
    library: CudnnLayer | None = None
    if torch is not None:
        row.cudnn = Figure("cuDNN")
        try:
            library = CudnnLayer(torch, layer, library_operands(layer, workload))
        except NestmapError as error:
            row.cudnn.failure = str(error)
    back_to_back = BackToBack(session)
    for _ in range(how.rounds):
        for entrant in kernels:
            entrant.time(how, back_to_back)
        if library is not None and row.cudnn is not None:
            row.cudnn.times_ms += library.graph.times_ms(how.repetitions, how.warmup)
            row.cudnn.back_to_back_ms = row.cudnn.times_ms
    for entrant in kernels:
        entrant.end(judge)
    if library is not None and row.cudnn is not None:
        _finish(layer, library, row.cudnn, judge, kernel_names)
    return row


def entered(
    name: str,
    record: TuningRecord,
    plan: Callable[[], HostPlan],
    session: Session,
    workload: Workload,
    judge: Judge,
    kernels: list[Kernels],
) -> Figure:
    """The figure of a record's kernels, made by ``plan``; among ``kernels`` if they are right."""
    try:
        entrant = Kernels(name, plan(), session)
        entrant.figure.details = {"variant": record.variant, "choices": dict(record.choices)}
        entrant.verify(workload, judge)
    except PlanFailure as failure:
        return Figure(name, failure=str(failure.outcome))
    except NestmapError as error:
        return Figure(name, failure=str(error))
    kernels.append(entrant)
    return entrant.figure


def _finish(
    layer: LayerSpec, library: CudnnLayer, figure: Figure, judge: Judge, kernel_names: bool
) -> None:
    figure.relative_error = judge.verdict(library.output()).relative_error
    if figure.relative_error > library_tolerance(layer):
        figure.failure = f"computes something else: relative error {figure.relative_error:.1e}"
        figure.times_ms.clear()
    figure.extra_bytes = library.workspace_bytes
    figure.details = {
        "calls_of_a_graph": library.graph.calls,
        "per_call_ms": median(library.graph.per_call_ms(10)),
    }
    if kernel_names:
        figure.details["kernels"] = library.kernel_names()
