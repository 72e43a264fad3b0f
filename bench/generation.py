"""How long it takes from a program and a mapping to OpenCL source, in CPU time of one core.

Each mapping is generated once, as a search meets it: nothing of it is known from before but
what other mappings of the same program left in caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, derive_space, generate_kernels, subject_of_layer
from mapper.rewrites.catalogue import CHAINS, LONE_VARIANTS
from mapper.rewrites.families import Family
from mapper.solver.space import Space
from mapper.variants import VARIANTS

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


def applicable(layer: LayerSpec, variants: Sequence[str]) -> Iterator[str]:
    """Those of the variants that compute the layer."""
    return (name for name in variants if VARIANTS[name].applies(layer) is None)


def measured(
    layer: LayerSpec,
    variant: str,
    device: DeviceProfile,
    mappings: int,
    seed: int,
    clock: Callable[[], float] = time.process_time,
) -> Cell:
    """Generate ``mappings`` plans of a layer; fewer where no more are found."""
    subject = subject_of_layer(layer, variant)
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    plan_ms: list[float] = []
    kernels: list[int] = []
    characters: list[int] = []
    for assignment in _assignments(subject, space, device, mappings, seed):
        start = clock()
        plan = generate_kernels(subject, assignment)
        plan_ms.append((clock() - start) * 1e3)
        kernels.append(len(plan.launches))
        characters.append(len(plan.source))
    return Cell(layer.name, variant, tuple(plan_ms), tuple(kernels), tuple(characters))


def _assignments(
    subject: Subject, space: Space, device: DeviceProfile, count: int, seed: int
) -> Assignments:
    """Samples of the space; of blocked variants what a search proposes, which unrolls more."""
    if subject.variant not in CHAINS or subject.layer is None:
        from mapper.solver.sampling import sample

        return list(sample(space, count, seed))
    from nestmap.tuning.proposals.blocked_proposals import BlockedProposals

    family = Family.SINGLE if subject.variant in LONE_VARIANTS else Family.GROUPS
    proposals = BlockedProposals(
        subject.layer, subject.variant, subject, space, device, family, seed
    )
    return proposals.propose(count)


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
