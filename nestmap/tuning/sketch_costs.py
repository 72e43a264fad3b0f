"""What solutions of a sketch are expected to take, before any is timed.

On a processor that is read off the loops, in a third of a millisecond (:mod:`mapper.cost.cores`).
On a GPU kernels are generated first, and their plans looked at
(:mod:`nestmap.tuning.descriptions`), which takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import exp, inf
from typing import Protocol

from mapper.ast_model.loop_nest import LoopKernel
from mapper.constraint_rules.predicate import Variable
from mapper.cost.cores import CoreCost
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.descriptions import described
from nestmap.tuning.sources import Source


class Cost(Protocol):
    """Only the order of its numbers is worth anything, and that within one program."""

    @property
    def draws(self) -> int:
        """So many solutions may be looked at before the first is tried."""
        ...

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """About how long an assignment of all variables takes; infinite where it has no kernel."""
        ...


class LoopCost:
    """From the loops, on a processor."""

    draws = 256

    def __init__(self, kernels: Sequence[LoopKernel], device: DeviceProfile) -> None:
        self._cost = CoreCost(kernels, device)

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """See :class:`Cost`."""
        return self._cost.ms(assignment)


class PlanCost:
    """From the plan of all kernels; ``others`` decides what an assignment of some leaves open."""

    def __init__(
        self,
        source: Source,
        device: DeviceProfile,
        draws: int = 24,
        others: Callable[[], Mapping[Variable, int]] = dict,
    ) -> None:
        self.draws = draws
        self._source = source
        self._device = device
        self._find_others = others

    @cached_property
    def _others(self) -> Mapping[Variable, int]:
        return self._find_others()

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """See :class:`Cost`."""
        source = self._source
        whole = {**self._others, **assignment}
        ordered = {v: whole[v] for v, _ in source.space.variables}
        try:
            found = candidate_of(source.index, source.subject, source.program_hash, ordered)
        except InputError:
            return inf
        return exp(described(source.subject, found, self._device).guess())
