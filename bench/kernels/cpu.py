"""Kernels of tuning records on a CPU device and the libraries for CPUs, in turns.

Cores that others use too change speed within minutes, so contestants take turns in rounds and
a ratio is taken within each round; only rounds count in which every contestant had its cores.
All times are wall-clock from the call to the result, also those of the kernels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.kernels.by_hand import BY_HAND, HandWritten
from bench.kernels.judging import Judge
from bench.kernels.libraries import LibraryProcess, save_operands
from bench.kernels.operands import library_operands, library_tolerance, own_layout
from bench.kernels.peak import RegisterPeak
from bench.kernels.turns import Turn, turn_of
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError, Problem
from mapper.layer_spec import Activation, DType, LayerSpec
from mapper.pipeline import subject_of_layer
from mapper.tuning_records import TuningRecord, tflops
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import make_workload
from nestmap.tuning.valid_records import best_valid, plan_of
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import LoadedPlan, Session

OURS = "nestmap"
#: Of the cores that a contestant kept busy in its best turn, it must have had this share.
_LEAST_SHARE = 0.9
#: Cores that all others together may have been busy on during a turn.
_MOST_FOREIGN = 0.15
#: Seconds between turns, for the last contestant's threads to go to sleep.
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class CpuRounds:
    """``rounds`` that count are wanted, and at most ``most`` tried; a turn takes so many
    seconds and at least so many runs."""

    rounds: int = 7
    most: int = 21
    turn_s: float = 0.3
    least: int = 3


@dataclass(frozen=True, slots=True)
class MeasuredTurn:
    """A turn with the cores that others kept busy meanwhile (None: not known)."""

    turn: Turn
    foreign_cores: float | None

    @property
    def time_s(self) -> float:
        """The median run."""
        return median(self.turn.times)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value, without the single runs."""
        return {
            "median_ms": self.time_s * 1e3,
            "best_ms": min(self.turn.times) * 1e3,
            "runs": len(self.turn.times),
            "cores": self.turn.cores,
            "foreign_cores": self.foreign_cores,
        }


@dataclass(slots=True)
class CpuFigure:
    """One contestant on one layer: a turn for each round tried. ``failure`` says why none."""

    contestant: str
    turns: list[MeasuredTurn] = field(default_factory=list[MeasuredTurn])
    relative_error: float = 0.0
    extra_bytes: int = 0
    prepared_bytes: int = 0
    failure: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    def best_s(self) -> float:
        """The fastest run of all turns; there must be one."""
        return min(min(turn.turn.times) for turn in self.turns)


@dataclass(slots=True)
class CpuPeak:
    """What the cores reached without memory beside the contestants: ``operations`` a run."""

    operations: int
    figure: CpuFigure


@dataclass(slots=True)
class CpuRow:
    """A layer with its contestants, ours first; ``accepted`` are the rounds that count."""

    layer: LayerSpec
    figures: list[CpuFigure]
    accepted: list[int] = field(default_factory=list[int])
    tried: int = 0
    peak: CpuPeak | None = None

    def time_s(self, figure: CpuFigure) -> float | None:
        """The median over the rounds that count."""
        times = [figure.turns[i].time_s for i in self.accepted if i < len(figure.turns)]
        return median(times) if times else None

    def ratio(self, figure: CpuFigure) -> float | None:
        """A contestant's time over ours: the median of the rounds' ratios."""
        ours = self.figures[0]
        ratios = [
            figure.turns[i].time_s / ours.turns[i].time_s
            for i in self.accepted
            if i < len(figure.turns) and i < len(ours.turns)
        ]
        return median(ratios) if ratios else None

    def share_of_peak(self) -> float | None:
        """Our operations a second over the peak's: the median of the rounds' shares."""
        ratio = None if self.peak is None else self.ratio(self.peak.figure)
        if self.peak is None or ratio is None:
            return None
        return ratio * self.layer.operations / self.peak.operations

    def best_share_of_peak(self) -> float | None:
        """The same of the fastest run and the fastest of the peak's, of all turns."""
        ours = self.figures[0]
        if self.peak is None or not ours.turns or not self.peak.figure.turns:
            return None
        ratio = self.peak.figure.best_s() / ours.best_s()
        return ratio * self.layer.operations / self.peak.operations

    def _peak_to_json(self) -> dict[str, Any] | None:
        if self.peak is None:
            return None
        time_s = self.time_s(self.peak.figure)
        return {
            "operations": self.peak.operations,
            "gflops": None if time_s is None else self.peak.operations / time_s / 1e9,
            "share": self.share_of_peak(),
            "best_share": self.best_share_of_peak(),
            "turns": [turn.to_json() for turn in self.peak.figure.turns],
        }

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value with every turn."""
        contestants: list[dict[str, Any]] = []
        for figure in self.figures:
            time_s = self.time_s(figure)
            contestants.append(
                {
                    "contestant": figure.contestant,
                    "time_ms": None if time_s is None else time_s * 1e3,
                    "gflops": None if time_s is None else tflops(self.layer, time_s * 1e3) * 1e3,
                    "time_over_ours": self.ratio(figure),
                    "relative_error": figure.relative_error,
                    "extra_bytes": figure.extra_bytes,
                    "prepared_bytes": figure.prepared_bytes,
                    "failure": figure.failure,
                    "details": figure.details,
                    "turns": [turn.to_json() for turn in figure.turns],
                }
            )
        return {
            "layer": self.layer.to_json(),
            "operations": self.layer.operations,
            "rounds_tried": self.tried,
            "rounds_accepted": list(self.accepted),
            "peak": self._peak_to_json(),
            "contestants": contestants,
        }


def accepted_rounds(figures: Sequence[CpuFigure]) -> list[int]:
    """The rounds in which every contestant had its cores.

    That is: it kept nearly as many busy as in its best turn, and others kept hardly any busy.
    The first alone would pass a machine that is loaded evenly; the second alone one whose
    cores are taken away from outside.
    """
    running = [figure for figure in figures if figure.turns]
    if not running:
        return []
    rounds = min(len(figure.turns) for figure in running)
    best = {id(f): max(turn.turn.cores for turn in f.turns) for f in running}

    def had_its_cores(figure: CpuFigure, index: int) -> bool:
        measured = figure.turns[index]
        if measured.foreign_cores is not None and measured.foreign_cores > _MOST_FOREIGN:
            return False
        return measured.turn.cores >= _LEAST_SHARE * best[id(figure)]

    return [i for i in range(rounds) if all(had_its_cores(figure, i) for figure in running)]


class BusyCores:
    """What Linux counts as busy on all cores, to tell what others did meanwhile."""

    def __init__(self, path: Path = Path("/proc/stat")) -> None:
        self._path = path
        self._ticks = float(os.sysconf("SC_CLK_TCK"))

    def seconds(self) -> float | None:
        """Busy core-seconds since the start, stolen ones included; None where not shown."""
        try:
            first = self._path.read_text().splitlines()[0].split()
        except (OSError, IndexError):
            return None
        if len(first) < 9 or first[0] != "cpu":
            return None
        user, nice, system, _, _, irq, softirq, steal = map(int, first[1:9])
        return (user + nice + system + irq + softirq + steal) / self._ticks

    def during(self, take: Callable[[], Turn]) -> MeasuredTurn:
        """A turn with what all others were busy with."""
        before, started = self.seconds(), time.monotonic()
        turn = take()
        after, wall_s = self.seconds(), time.monotonic() - started
        if before is None or after is None:
            return MeasuredTurn(turn, None)
        return MeasuredTurn(turn, max(0.0, after - before - turn.cpu_s) / max(wall_s, 1e-9))


class _Ours:
    """The kernels of a record, in this process."""

    def __init__(self, record: TuningRecord, session: Session, profile: DeviceProfile) -> None:
        plan = plan_of(record, profile)
        self.extra_bytes, self.prepared_bytes = plan.scratch_bytes, plan.prepared_bytes
        self.loaded = LoadedPlan(session, plan)

    def turn(self, seconds: float, least: int) -> Turn:
        """As a library's turn."""
        return turn_of(self._run_s, seconds, least)

    def _run_s(self) -> float:
        started = time.perf_counter()
        self.loaded.run()
        return time.perf_counter() - started


def compare_on_cpu(
    layer: LayerSpec,
    records: Sequence[TuningRecord],
    session: Session,
    profile: DeviceProfile,
    libraries: Sequence[LibraryProcess],
    folder: Path,
    how: CpuRounds,
    settings: Callable[[LibraryProcess], tuple[dict[str, Any], float]],
    peak: RegisterPeak | None = None,
    by_hand: bool = False,
) -> CpuRow:
    """Time the best record of a layer and the libraries in turns; outputs are verified first.

    ``peak`` has a turn in each round too, if it is given, and the hand-written kernel of the layer
    if it is asked for, as the last figure. ``folder`` is for the operands.
    ``settings`` gives what a library is told beside the layer, and the seconds that loading may
    take. InputError for what libraries are not called with.
    """
    _require_plain(layer)
    record = best_valid(records, layer, profile)
    subject = subject_of_layer(layer, "high-level")
    workload = make_workload(subject, INPUT_SEED, {})
    judge = Judge(workload.expected, workload.tolerance)
    ours = CpuFigure(OURS)
    row = CpuRow(layer, [ours])
    takers: list[tuple[CpuFigure, Callable[[float, int], Turn]]] = []
    kernels: _Ours | None = None
    try:
        if record is None:
            raise NestmapError("no record for this device; --tune searches for one")
        kernels = _Ours(record, session, profile)
        ours.extra_bytes, ours.prepared_bytes = kernels.extra_bytes, kernels.prepared_bytes
        ours.details = {"variant": record.variant, "choices": dict(record.choices)}
        kernels.loaded.poison()
        kernels.loaded.fill_inputs(workload.inputs)
        kernels.loaded.run()
        verdict = judge.verdict(kernels.loaded.read_output())
        ours.relative_error = verdict.relative_error
        if verdict.wrong is not None:
            raise NestmapError(f"wrong: {verdict.wrong.message}")
        takers.append((ours, kernels.turn))
    except PlanFailure as failure:
        ours.failure = str(failure.outcome)
    except NestmapError as error:
        ours.failure = str(error)
    operands = library_operands(layer, workload)
    save_operands(operands, folder)
    for process in libraries:
        figure = CpuFigure(process.library.key)
        row.figures.append(figure)
        more, timeout_s = settings(process)
        try:
            result = process.load(layer, folder, more, timeout_s)
        except NestmapError as error:
            figure.failure = str(error)
            continue
        figure.relative_error = judge.verdict(own_layout(layer, result)).relative_error
        if figure.relative_error > library_tolerance(layer):
            figure.failure = f"computes something else: relative error {figure.relative_error:.1e}"
            continue
        takers.append((figure, process.turn))
    hand: HandWritten | None = None
    if by_hand:
        figure = CpuFigure(BY_HAND)
        row.figures.append(figure)
        try:
            hand = HandWritten(session, layer, operands)
            hand.run()
            figure.relative_error = judge.verdict(own_layout(layer, hand.result())).relative_error
            if figure.relative_error > library_tolerance(layer):
                raise NestmapError(f"wrong: relative error {figure.relative_error:.1e}")
            figure.details = {"point": asdict(hand.point)}
            takers.append((figure, hand.turn))
        except NestmapError as error:
            figure.failure = str(error)
    if peak is not None and takers:
        row.peak = CpuPeak(peak.operations, CpuFigure("peak"))
        takers.append((row.peak.figure, peak.turn))
    _play(row, takers, how)
    if kernels is not None:
        kernels.loaded.__exit__()
    if hand is not None:
        hand.__exit__()
    return row


def _require_plain(layer: LayerSpec) -> None:
    if layer.bias or layer.activation is not Activation.NONE or layer.dtype is not DType.FLOAT32:
        raise InputError(
            Problem(
                layer.name,
                "is more than a convolution of 32-bit floats",
                f"bias {layer.bias}, activation {layer.activation}, {layer.dtype}",
                "no bias, no activation, float32",
            )
        )


def _play(
    row: CpuRow, takers: list[tuple[CpuFigure, Callable[[float, int], Turn]]], how: CpuRounds
) -> None:
    busy = BusyCores()
    for _, take in takers:
        # Warm: pages, caches, thread pools.
        take(0.0, 2)
    for _ in range(how.most):
        for figure, take in takers:
            time.sleep(_PAUSE_S)
            measured = busy.during(lambda take=take: take(how.turn_s, how.least))
            figure.turns.append(measured)
        row.tried += 1
        row.accepted = accepted_rounds([figure for figure, _ in takers])
        if len(row.accepted) >= how.rounds:
            break
