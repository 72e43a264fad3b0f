"""A guess, without running it, of how slow a candidate is: only good enough to sort a batch.

The guess counts the stores that a plan executes (each stands for a few operations), shares
them among the parallel units that the launch really occupies, and adds a cost for every
work-group and every byte of intermediate results. It knows nothing of caches, barriers or
registers beyond a penalty for large private arrays, so a share of every batch is taken in
random order (strategy.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.loop_nest import Loop, Statement, Store
from mapper.ast_model.nodes import Program
from mapper.device_profile import DeviceProfile
from mapper.pipeline import choices_of
from mapper.schedule import VECTOR_CODES
from nestmap.tuning.candidates import Candidate

#: Store-equivalents that starting a work-group costs.
_GROUP_COST = 200.0
#: Store-equivalents that an intermediate float costs, written and read again.
_INTERMEDIATE_COST = 2.0
#: Lanes that a work-group of many work-items can fill at best.
_MAX_LANES = 16
#: Private arrays beyond this do not stay in registers.
_REGISTER_BYTES = 512


def guessed_cost(program: Program, candidate: Candidate, device: DeviceProfile) -> float:
    """Store-equivalents one after the other; smaller is probably faster."""
    choices = choices_of(candidate.assignment)
    loops = elaborate(program, dict(choices.parameters))
    codes = {str(map_id): int(code) for map_id, code in choices.codes.items()}
    widest = max(device.vector_widths)
    total = _INTERMEDIATE_COST * candidate.plan.extra_bytes / 4
    for kernel, launch in zip(loops.kernels, candidate.plan.launches, strict=True):
        items, group = prod(launch.global_size), prod(launch.local_size)
        groups = items // group
        # A wave that is not full takes as long as a full one.
        waves = -(-groups // device.compute_units)
        busy = groups / waves
        lanes = min(group, _MAX_LANES) ** 0.5
        spill = max(1.0, launch.private_bytes / _REGISTER_BYTES) ** 0.5
        total += sum(_stores(kernel.statements, 1, codes, widest)) * spill / (busy * lanes)
        total += _GROUP_COST * waves
    return total


def _stores(
    statements: tuple[Statement, ...], times: int, codes: dict[str, int], widest: int
) -> Iterator[float]:
    for statement in statements:
        if isinstance(statement, Store):
            yield times
        elif isinstance(statement, Loop):
            trip = statement.trip.constant or 1
            code = codes.get(str(statement.map_id), 0)
            # A longer vector than the device's takes as many operations as it has of those.
            width = min(code, widest) if code in VECTOR_CODES else 1
            yield from _stores(statement.body, max(1, times * trip // width), codes, widest)
