"""What solutions of a space are expected to take, before any is timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from mapper.ast_model.loop_nest import LoopKernel
from mapper.constraint_rules.predicate import Variable
from mapper.cost.cores import CoreCost
from mapper.cost.warps import WarpCost
from mapper.device_profile import DeviceProfile


class LoopCost(Protocol):
    """Read off the loops, in about a millisecond. Only the order of its numbers is worth anything,
    and that within one program."""

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """About how long an assignment of all variables takes."""
        ...


def loop_cost(kernels: Iterable[LoopKernel], device: DeviceProfile) -> LoopCost:
    """The cost of kernels on a device of its kind: a processor, or a GPU."""
    return CoreCost(kernels, device) if device.is_processor else WarpCost(kernels, device)
