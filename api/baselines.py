"""What the best kernel of a run is held against: other ways to compute its layer on its device.

Every variant of the layer that any run or study of the store has timed on the device, in the
same state of its software, is one: with its fastest kernel. Two are asked for by name even where
nobody has measured them, since they are what one would do without tuning the layer's loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.layer_programs import layer_of, programs_of
from db.farm.farm import Farm
from db.farm.fronts import StudiedPoint
from db.farm.run_records import Run
from db.farm.selection import Selection
from mapper.variants import VARIANTS

#: One output element a loop iteration, and the tiled convolution of CC'22.
BASELINE_VARIANTS = ("high-level", "direct")


@dataclass(frozen=True, slots=True)
class Baseline:
    """A variant with its fastest kernel on the device; ``point`` is None where none was timed.

    ``run_id`` is None too for what was tuned without the farm. ``time_over_best`` is its time
    divided by that of the run's best kernel.
    """

    variant: str
    description: str
    point: StudiedPoint | None = None
    run_id: str | None = None
    time_over_best: float | None = None


@dataclass(frozen=True, slots=True)
class Baselines:
    """The best kernel of a run, and what it is held against: what was measured, fastest first,
    then what was not. Nothing where the run has timed nothing or is about no layer."""

    best: StudiedPoint | None
    others: tuple[Baseline, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Variants that have no time on the device yet."""
        return tuple(other.variant for other in self.others if other.point is None)


def baselines_of(farm: Farm, run: Run, best: StudiedPoint | None) -> Baselines:
    """The baselines of a run whose fastest kernel is ``best``."""
    layer = layer_of(run.request.get("subject", {}))
    if best is None or layer is None:
        return Baselines(best, ())
    programs = programs_of(layer)
    selection = Selection(
        programs=frozenset(programs.values()), device_ids=frozenset({best.device_id})
    )
    timed = farm.fronts.fastest_by_program(selection)
    variants = {program: name for name, program in programs.items()}
    measured: list[Baseline] = []
    for program, point in timed.items():
        if point.candidate_id != best.candidate_id:
            name = variants.get(program, point.variant)
            made_by = farm.measurements.measurement(point.measurement_id).run_id
            ratio = point.time_ms / best.time_ms if best.time_ms else None
            measured.append(Baseline(name, _description(name), point, made_by, ratio))
    missing = [
        Baseline(name, _description(name))
        for name in BASELINE_VARIANTS
        if name in programs and programs[name] not in timed
    ]
    measured.sort(key=lambda one: (one.time_over_best or 0.0, one.variant))
    return Baselines(best, (*measured, *missing))


def _description(name: str) -> str:
    return VARIANTS[name].description if name in VARIANTS else "a sketch of the layer's program"
