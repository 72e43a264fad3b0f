"""How long it takes from a program and a mapping to OpenCL source, in CPU time of one core.

Each mapping is generated once, as a search meets it: nothing of it is known from before but
what other mappings of the same program left in caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any

from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, derive_space, generate_kernels, subject_of_layer
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from mapper.variants import LAST_RESORT, VARIANTS, variants_of
from nestmap.tuning.sketch_subjects import (
    PossibleSketch,
    is_sketch,
    possible_subjects,
    with_suits,
)

SCHEMA = "nestmap/bench-generation/1"
#: Upper limit of the median, ms of CPU time a kernel, that is aimed at.
AIM_MS = 50.0

Assignments = Sequence[Mapping[Variable, int]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One layer in one variant: CPU time of each plan in ms, kernels and characters of each."""

    layer: str
    variant: str
    plan_ms: tuple[float, ...]
    kernels: tuple[int, ...]
    characters: tuple[int, ...]

    @property
    def kernel_ms(self) -> tuple[float, ...]:
        """CPU time a kernel, of each plan."""
        return tuple(ms / count for ms, count in zip(self.plan_ms, self.kernels, strict=True))


def all_of(layer: LayerSpec, device: DeviceProfile) -> tuple[str, ...]:
    """The variants that compute the layer, and the sketches that it may have on the device."""
    sketches = possible_subjects(subject_of_layer(layer, LAST_RESORT), device)
    return tuple(dict.fromkeys((*variants_of(layer), *(sketch.variant for sketch in sketches))))


def measured(
    layer: LayerSpec,
    variant: str,
    device: DeviceProfile,
    mappings: int,
    seed: int,
    clock: Callable[[], float] = time.process_time,
) -> Cell:
    """Generate ``mappings`` plans of a layer; fewer where no more are found."""
    subject = _subject(layer, variant, device)
    if subject is None:
        return Cell(layer.name, variant, (), (), ())
    space = derive_space(subject, Mode.STRICT, device, with_suits(subject, RuleOptions()))
    plan_ms: list[float] = []
    kernels: list[int] = []
    characters: list[int] = []
    for assignment in _assignments(subject, space, mappings, seed):
        start = clock()
        plan = generate_kernels(subject, assignment)
        plan_ms.append((clock() - start) * 1e3)
        kernels.append(len(plan.launches))
        characters.append(len(plan.source))
    return Cell(layer.name, variant, tuple(plan_ms), tuple(kernels), tuple(characters))


def _subject(layer: LayerSpec, variant: str, device: DeviceProfile) -> Subject | None:
    """The layer in a variant or under a sketch; None where that sketch does not apply after all."""
    if variant in VARIANTS:
        return subject_of_layer(layer, variant)
    return PossibleSketch(subject_of_layer(layer, LAST_RESORT), variant, device).derive()


def _assignments(subject: Subject, space: Space, count: int, seed: int) -> Assignments:
    """Samples of the space; of a sketch those that suit the device."""
    if not is_sketch(subject):
        return list(sample(space, count, seed))
    suited, random = SuitedSpace(space), Random(seed)
    drawn = (suited.draw_joint(random) for _ in range(count))
    return [found for found in drawn if found is not None]


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """The figures of all cells together; medians are over plans."""
    kernel_ms = [ms for cell in cells for ms in cell.kernel_ms]
    plan_ms = [ms for cell in cells for ms in cell.plan_ms]
    return {
        "plans": len(plan_ms),
        "kernels": sum(count for cell in cells for count in cell.kernels),
        "median_kernel_ms": median(kernel_ms),
        "median_plan_ms": median(plan_ms),
        "largest_plan_ms": max(plan_ms),
    }


def to_json(cells: Sequence[Cell], about: Mapping[str, Any]) -> dict[str, Any]:
    """``nestmap/bench-generation/1``: the summary, what is said ``about`` the run, the cells."""
    return {
        "schema": SCHEMA,
        **about,
        "summary": summary(cells),
        "cells": [asdict(cell) for cell in cells],
    }


def by_variant(cells: Sequence[Cell]) -> Iterator[tuple[str, Sequence[Cell]]]:
    """The cells of each variant, in the order in which variants come first."""
    for variant in dict.fromkeys(cell.variant for cell in cells):
        yield variant, [cell for cell in cells if cell.variant == variant]
