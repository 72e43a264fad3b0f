"""Constraints that need more than the nest: index functions, types, buffers, a device.

They are derived once from the loop nests of a program with its tuning parameters still
symbolic, so that codes, parameters and local sizes meet in one model.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.loop_nest import LoopProgram
from mapper.ast_model.obligations import Obligation
from mapper.constraint_rules import (
    algorithmic,
    buffer_scoping,
    dependence_rules,
    limits,
    vectorisation,
)
from mapper.constraint_rules.rule import Constraint, RuleOptions
from mapper.constraint_rules.suits import catalogue as suitability
from mapper.device_profile import DeviceProfile


def program_constraints(
    loops: LoopProgram,
    obligations: tuple[Obligation, ...],
    sizes: dict[str, int],
    device: DeviceProfile,
    options: RuleOptions,
) -> Iterator[Constraint]:
    """Every constraint of a program beyond those of its nests, rule by rule."""
    yield from algorithmic.produce(obligations, sizes)
    for kernel in loops.kernels:
        yield from buffer_scoping.produce(kernel, options)
        yield from dependence_rules.cross_group(kernel)
        yield from dependence_rules.synchronisability(kernel)
        if options.vectorise:
            yield from vectorisation.produce(kernel)
        yield from limits.kernel_limits(kernel, device)
    yield from limits.memory_limits(loops, device)
    yield from suitability.produce(loops, device, options.suits)
