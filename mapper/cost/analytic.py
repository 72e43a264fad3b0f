"""Predicted times of plans: a sum of costs, each a constant of the device times a count.

A launch takes an overhead. Work-groups run in waves, as many at once as the compute units hold:
so many as their local and private bytes and work-items allow (occupancy). In each wave a unit
does its groups' operations and moves their bytes. The counts are :mod:`mapper.cost.traffic`'s.
Because the prediction is linear in the constants, they are fitted to measurements by
non-negative least squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.nodes import Program
from mapper.cost.traffic import Traffic, traffic_of
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan, Launch
from mapper.schedule import ScheduleCode

Floats = NDArray[np.float64]
#: Work-groups that a compute unit holds at most, whatever they need.
MOST_RESIDENT = 16
#: Private bytes of a work-item that are sure to be registers.
REGISTER_BYTES = 512
DEFAULT_LANES = 16


@dataclass(frozen=True, slots=True)
class Counts:
    """What a plan's time is made of; each is multiplied by the constant of its name.

    ``launches``; ``waves`` of work-groups; and, for the compute unit that does most,
    ``operations``, ``private_accesses``, accesses of private arrays too large for registers
    (``spilled``), ``local_bytes`` and ``global_bytes`` (fetched).
    """

    launches: float
    waves: float
    operations: float
    private_accesses: float
    spilled: float
    local_bytes: float
    global_bytes: float

    def row(self) -> Floats:
        """The counts in order."""
        return np.array([getattr(self, item.name) for item in fields(self)])


@dataclass(frozen=True, slots=True)
class DeviceConstants:
    """Nanoseconds for one of each of :class:`Counts`; ``lanes`` is how many work-items of a
    group a compute unit runs at once."""

    launches: float = 5000.0
    waves: float = 200.0
    operations: float = 0.5
    private_accesses: float = 0.1
    spilled: float = 2.0
    local_bytes: float = 0.1
    global_bytes: float = 0.25
    lanes: int = DEFAULT_LANES

    def __post_init__(self) -> None:
        values = list(asdict(self).values())
        if min(values) < 0 or self.lanes < 1 or not np.isfinite(values).all():
            raise InputError(Problem("constants", "must be finite and not negative", str(values)))

    def row(self) -> Floats:
        """The constants in the order of the counts."""
        return np.array([getattr(self, item.name) for item in fields(Counts)])

    def to_json(self) -> dict[str, float]:
        """A plain JSON value."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> DeviceConstants:
        """Read what :meth:`to_json` wrote; InputError for anything else."""
        known = {item.name for item in fields(DeviceConstants)}
        numbers = {k: v for k, v in value.items() if isinstance(v, int | float)}
        if set(value) != known or set(numbers) != known:
            allowed = ", ".join(sorted(known))
            raise InputError(Problem("constants", "are not these", str(sorted(value)), allowed))
        lanes = int(numbers.pop("lanes"))
        return DeviceConstants(**{k: float(v) for k, v in numbers.items()}, lanes=lanes)


def counts_of(
    program: Program,
    parameters: Mapping[str, int],
    codes: Mapping[str, ScheduleCode],
    plan: HostPlan,
    device: DeviceProfile,
    lanes: int = DEFAULT_LANES,
) -> Counts:
    """The counts of a plan, which was generated from these parameters and codes."""
    loops = elaborate(program, dict(parameters))
    total = np.zeros(len(fields(Counts)))
    for kernel, launch in zip(loops.kernels, plan.launches, strict=True):
        total += _counts(traffic_of(kernel, codes), launch, device, lanes).row()
    return Counts(*total.tolist())


def _counts(traffic: Traffic, launch: Launch, device: DeviceProfile, lanes: int) -> Counts:
    group = prod(launch.local_size)
    groups = max(1, prod(launch.global_size) // group)
    resident = resident_groups(launch, device)
    waves = -(-groups // (device.compute_units * resident))
    # The unit that does most has this many of the groups; lanes of a group that is no multiple
    # of them stand idle.
    most = -(-groups // device.compute_units)
    idle = -(-group // lanes) * lanes / group
    share = most / groups
    spills = max(0.0, launch.private_bytes - REGISTER_BYTES) / max(1, launch.private_bytes)
    return Counts(
        1.0,
        float(waves),
        traffic.operations * share * idle / min(group, lanes),
        traffic.private_accesses * share * idle / min(group, lanes),
        traffic.private_accesses * share * spills,
        traffic.local_bytes * share,
        # Memory is shared by the units: few groups cannot use all of it.
        traffic.global_bytes * share,
    )


def resident_groups(launch: Launch, device: DeviceProfile) -> int:
    """Work-groups that a compute unit holds at once: limited by local bytes, by registers, by
    work-items, and never more than 16."""
    group = prod(launch.local_size)
    limits = [MOST_RESIDENT, max(1, 2 * device.max_work_group_size // group)]
    if launch.local_bytes:
        limits.append(max(1, device.local_bytes // launch.local_bytes))
    if launch.private_bytes:
        limits.append(max(1, register_bytes(device) // (launch.private_bytes * group)))
    return min(limits)


def register_bytes(device: DeviceProfile) -> int:
    """Bytes that all work-items of a compute unit may keep together."""
    return device.private_bytes * device.max_work_group_size // 4


def predicted_ms(counts: Counts, constants: DeviceConstants) -> float:
    """The time of a plan."""
    return float(counts.row() @ constants.row()) / 1e6


def bound_ms(counts: Counts, constants: DeviceConstants) -> float:
    """A time that the plan is unlikely to beat: launches, and the larger of arithmetic and
    fetching with the other done meanwhile."""
    row = counts.row() * constants.row()
    overhead, rest = row[:2].sum(), row[2:]
    return float(overhead + rest.max()) / 1e6


def fitted(
    counts: Sequence[Counts], times_ms: Sequence[float], lanes: int
) -> tuple[DeviceConstants, float]:
    """Constants from measured plans, and the median relative error of what they predict.

    Relative errors are squared, so that fast plans count as much as slow ones. InputError for
    fewer plans than constants.
    """
    names = [item.name for item in fields(Counts)]
    if len(counts) < len(names) or len(counts) != len(times_ms):
        raise InputError(
            Problem("plans", "are too few to fit constants", str(len(counts)), f"{len(names)}")
        )
    matrix = np.stack([count.row() for count in counts])
    times_ns = np.array(times_ms) * 1e6
    # An untyped package.
    optimize: Any = import_module("scipy.optimize")
    scale = np.maximum(matrix.max(axis=0), 1e-12)
    found: Any = optimize.nnls(matrix / scale / times_ns[:, None], np.ones(len(counts)))[0]
    values = np.asarray(found, np.float64) / scale
    errors = np.abs(matrix @ values / times_ns - 1)
    constants = DeviceConstants(**dict(zip(names, values.tolist(), strict=True)), lanes=lanes)
    return constants, float(np.median(errors))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: 1 where both order alike; equal values share their mean rank."""
    if len(first) < 2:
        return 0.0
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (first, second)]
    a, b = (r - r.mean() for r in ranks)
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0


def _ranks(values: Floats) -> Floats:
    _, place, number = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(number)
    return (last - (number - 1) / 2.0)[place]
