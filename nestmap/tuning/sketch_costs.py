"""What solutions of a sketch are expected to take, before any is timed.

On a processor that is read off the loops, in a third of a millisecond (:mod:`mapper.cost.cores`).
On a GPU kernels are generated first, and their plans looked at
(:mod:`nestmap.tuning.descriptions`), which takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf
from typing import Protocol

from mapper.constraint_rules.predicate import Variable
from mapper.cost.cores import CoreCost
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.descriptions import described
from nestmap.tuning.sources import Source


class Cost(Protocol):
    """Only the order of its numbers is worth anything, and that within one program."""

    draws: int
    """So many solutions may be looked at before the first is tried."""

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """About how long an assignment of all variables takes; infinite where it has no kernel."""
        ...


class LoopCost:
    """From the loops, on a processor."""

    draws = 256

    def __init__(self, source: Source, device: DeviceProfile) -> None:
        self._cost = CoreCost(source.subject.require_program(), device)

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """See :class:`Cost`."""
        return self._cost.ms(assignment)


class PlanCost:
    """From the plan of the kernels."""

    draws = 24

    def __init__(self, source: Source, device: DeviceProfile) -> None:
        self._source = source
        self._device = device

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """See :class:`Cost`."""
        source = self._source
        try:
            found = candidate_of(source.index, source.subject, source.program_hash, assignment)
        except InputError:
            return inf
        return exp(described(source.subject, found, self._device).guess())


def cost_on(source: Source, device: DeviceProfile) -> Cost:
    """The cost for a device's kind."""
    return LoopCost(source, device) if device.is_processor else PlanCost(source, device)
