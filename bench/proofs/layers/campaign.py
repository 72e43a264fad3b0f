"""The campaign behind the promise that every strict candidate compiles, runs and is right.

Random candidates of every layer and variant: some at full size, the rest on the layer scaled
down, so that slow mappings end in seconds, and some in Oclgrind on a layer cut down further,
where data races and reads of unwritten memory show. Anything but a right answer is a failure,
except a timeout of a candidate that may just be slow: those are listed apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome, Timed, Timeout, outcome_detail, outcome_kind
from mapper.pipeline import (
    assignment_to_json,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from nestmap.seeds import derived_seed
from nestmap.tuning.calibration import scaled_layer
from nestmap.tuning.candidates import Draw, draw_with_sampler
from nestmap.tuning.reference import Workload, make_workload
from worker import oclgrind
from worker.devices.interface import MeasuringDevice
from worker.measuring import Protocol

CAMPAIGN_VARIANTS = ("partial", "direct")
#: Assignments drawn at a time: progress shows, and a limit of the sampler loses little.
_CHUNK = 10
_BARREN_CHUNKS = 3
_ONCE = Protocol(warmup=0, repetitions=1, max_repetitions=1, slow_after_ms=0.0, budget_ms=0.0)
_INPUT_SEED = 0


class Part(StrEnum):
    """Where the candidates of a cell run."""

    FULL = "full"
    SCALED = "scaled"
    OCLGRIND = "oclgrind"


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of candidates of one layer in one variant at one size."""

    layer: LayerSpec
    variant: str
    part: Part
    count: int
    seed: int

    @property
    def sized(self) -> LayerSpec:
        """The layer as it is run."""
        match self.part:
            case Part.FULL:
                return self.layer
            case Part.SCALED:
                return scaled_layer(self.layer)
            case Part.OCLGRIND:
                return cut_layer(self.layer)

    @property
    def key(self) -> str:
        """Names the cell in the file of results."""
        name = f"{self.layer.name}/{self.variant}/{self.part.value}"
        return f"{name}/{self.count}/seed{self.seed}"


@dataclass(slots=True)
class CellResult:
    """What became of a cell. ``failures`` and ``timeouts`` hold all that reproduces them."""

    key: str
    layer: str
    variant: str
    part: str
    size: dict[str, Any]
    seed: int
    wanted: int
    tried: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    timeouts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    best_ms: float | None = None
    seconds: float = 0.0
    commit: str = ""

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; ``CellResult(**value)`` reads it back."""
        return asdict(self)


def cut_layer(layer: LayerSpec) -> LayerSpec:
    """Small enough for a simulator: ten thousand products, several times that with padding."""
    return layer.scaled(
        spatial=6 if layer.height >= 56 else 5,
        channels=2 if layer.channels == 64 else min(layer.channels, 4),
        filters=4 if layer.filters < 256 else 8,
    )


def cells_of(
    layers: tuple[LayerSpec, ...],
    variants: tuple[str, ...],
    *,
    candidates: int,
    full: int,
    simulated: int,
    seed: int,
) -> Iterator[Cell]:
    """Every cell: the cheap ones first, so that failures show early."""
    parts = (
        (Part.OCLGRIND, simulated),
        (Part.SCALED, max(0, candidates - full)),
        (Part.FULL, min(full, candidates)),
    )
    for part, count in parts:
        for layer in layers:
            for variant in variants:
                if count:
                    yield Cell(layer, variant, part, count, seed)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for one candidate; at full size a mapping may be slow without being wrong."""

    full_s: float = 120.0
    scaled_s: float = 60.0
    simulated_s: float = 120.0
    simulators: int = 2


def run_cell(
    cell: Cell,
    device: MeasuringDevice,
    limits: Limits,
    *,
    progress: Callable[[int], None] = lambda count: None,
    draw: Draw = draw_with_sampler,
) -> CellResult:
    """Run all candidates of a cell. Raises DeviceError when the device itself fails."""
    result = CellResult(
        cell.key,
        cell.layer.name,
        cell.variant,
        cell.part.value,
        cell.sized.to_json(),
        cell.seed,
        cell.count,
    )
    subject = subject_of_layer(cell.sized, cell.variant)
    workload = make_workload(subject, _INPUT_SEED, {})
    plans = _plans(cell, device.profile(), result, draw)
    if cell.part is Part.OCLGRIND:
        _simulate(plans, workload, limits, result, progress)
    else:
        _measure(plans, workload, device, cell, limits, result, progress)
    return result


def _plans(
    cell: Cell, profile: DeviceProfile, result: CellResult, draw: Draw
) -> Iterator[tuple[dict[str, Any], HostPlan]]:
    """The cell's candidates; whatever cannot be drawn or generated is a failure."""
    subject = subject_of_layer(cell.sized, cell.variant)
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    seen: set[tuple[int, ...]] = set()
    barren = chunk = 0
    while len(seen) < cell.count and barren < _BARREN_CHUNKS:
        seed = derived_seed(cell.seed, cell.layer.name, cell.variant, cell.part.value, chunk)
        chunk += 1
        wanted = min(_CHUNK, cell.count - len(seen))
        drawn = _drawn(draw, space, wanted, seed, result)
        before = len(seen)
        for assignment in drawn:
            values = tuple(assignment.values())
            if values in seen:
                continue
            seen.add(values)
            chosen = assignment_to_json(assignment)
            try:
                plan = generate_kernels(subject, assignment)
            except NestmapError as error:
                _fail(result, "generation-error", str(error), chosen)
                continue
            yield chosen, plan
        barren = barren + 1 if len(seen) == before else 0


def _drawn(
    draw: Draw, space: Any, wanted: int, seed: int, result: CellResult
) -> tuple[Mapping[Variable, int], ...]:
    try:
        return tuple(draw(space, wanted, seed))
    except (NestmapError, AssertionError) as error:
        # The sampler checks its own answers by assertion.
        _fail(result, "sampler-error", f"drawing with seed {seed}: {error}", None)
        return ()


def _measure(
    plans: Iterator[tuple[dict[str, Any], HostPlan]],
    workload: Workload,
    device: MeasuringDevice,
    cell: Cell,
    limits: Limits,
    result: CellResult,
    progress: Callable[[int], None],
) -> None:
    key = "campaign"
    device.upload_workload(key, workload.inputs, workload.expected)
    timeout_s = limits.full_s if cell.part is Part.FULL else limits.scaled_s
    for chosen, plan in plans:
        try:
            outcome: Outcome = device.measure(
                plan,
                workload=key,
                tolerance=workload.tolerance,
                protocol=_ONCE,
                timeout_s=timeout_s,
            )
        except InputError as error:
            _fail(result, "plan-error", str(error), chosen)
            continue
        _count(result, outcome_kind(outcome))
        match outcome:
            case Timed():
                best = result.best_ms
                result.best_ms = outcome.time_ms if best is None else min(best, outcome.time_ms)
            case Timeout():
                result.timeouts.append({"candidate": chosen, "after_s": outcome.after_s})
            case _:
                detail = outcome_detail(outcome)
                _note_failure(result, outcome_kind(outcome), str(detail), chosen)
        progress(result.tried)


def _simulate(
    plans: Iterator[tuple[dict[str, Any], HostPlan]],
    workload: Workload,
    limits: Limits,
    result: CellResult,
    progress: Callable[[int], None],
) -> None:
    def check(item: tuple[dict[str, Any], HostPlan]) -> oclgrind.OclgrindReport | InputError:
        try:
            return oclgrind.check(
                item[1],
                workload.inputs,
                workload.expected,
                tolerance=workload.tolerance,
                timeout_s=limits.simulated_s,
            )
        except InputError as error:
            return error

    listed = list(plans)
    with ThreadPoolExecutor(limits.simulators) as pool:
        for (chosen, _), report in zip(listed, pool.map(check, listed), strict=True):
            if isinstance(report, InputError):
                _fail(result, "plan-error", str(report), chosen)
                continue
            _count_report(result, report, chosen, limits)
            progress(result.tried)


def _count_report(
    result: CellResult,
    report: oclgrind.OclgrindReport,
    chosen: dict[str, Any],
    limits: Limits,
) -> None:
    if report.ok:
        _count(result, "clean")
        return
    if report.kinds == {oclgrind.FindingKind.TIMEOUT}:
        _count(result, "timeout")
        result.timeouts.append({"candidate": chosen, "after_s": limits.simulated_s})
        return
    kind = "oclgrind: " + ", ".join(sorted(k.value for k in report.kinds))
    _fail(result, kind, "\n\n".join(report.messages[:3]), chosen)


def _count(result: CellResult, kind: str) -> None:
    result.tried += 1
    result.outcomes[kind] = result.outcomes.get(kind, 0) + 1


def _note_failure(
    result: CellResult, kind: str, message: str, chosen: dict[str, Any] | None
) -> None:
    result.failures.append(
        {
            "kind": kind,
            "message": message,
            "layer": result.layer,
            "variant": result.variant,
            "size": result.size,
            "seed": result.seed,
            "candidate": chosen,
        }
    )


def _fail(result: CellResult, kind: str, message: str, chosen: dict[str, Any] | None) -> None:
    _count(result, kind)
    _note_failure(result, kind, message, chosen)


def totals(results: list[CellResult]) -> dict[str, int]:
    """All outcomes by kind."""
    counted: Counter[str] = Counter()
    for result in results:
        counted.update(result.outcomes)
    return dict(counted)


def markdown_table(results: list[CellResult]) -> str:
    """A row a layer and variant, for docs/benchmarks.md."""
    rows: dict[tuple[str, str], dict[str, CellResult]] = {}
    for result in results:
        rows.setdefault((result.layer, result.variant), {})[result.part] = result
    lines = [
        "| layer | variant | full size: right / timeouts / tried | scaled: right / tried "
        "| Oclgrind: clean / tried | failures | best at full size (ms) |",
        "|---|---|---|---|---|---|---|",
    ]
    for (layer, variant), parts in rows.items():
        full, scaled, simulated = (parts.get(part.value) for part in Part)
        failures = sum(len(part.failures) for part in parts.values())
        best = f"{full.best_ms:.1f}" if full is not None and full.best_ms is not None else "-"
        right = _share(full, "timed", with_timeouts=True)
        lines.append(
            f"| {layer} | {variant} | {right} | {_share(scaled, 'timed')} "
            f"| {_share(simulated, 'clean')} | {failures} | {best} |"
        )
    return "\n".join(lines) + "\n"


def _share(result: CellResult | None, kind: str, with_timeouts: bool = False) -> str:
    if result is None:
        return "-"
    middle = f"{len(result.timeouts)} / " if with_timeouts else ""
    return f"{result.outcomes.get(kind, 0)} / {middle}{result.tried}"
