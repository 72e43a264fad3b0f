"""Invented devices on real spaces: times made up of what times of kernels are made of.

For choosing a search's settings without looking at what it is judged on. Kinds of devices differ
in what makes their spaces hard (:class:`Kind`); on top of each comes roughness that nothing
explains, and a share of configurations fails.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bench.searches.recording import Recording
from mapper.search.candidates import candidates_of
from mapper.solver.space import Space

Floats = NDArray[np.float64]


class Kind(Enum):
    """What times are made of.

    ``BENT``: the larger of two costs, as of arithmetic and of memory; each is the exponential of
    random piecewise linear functions of the parameters' logarithms and of products of two of
    them, with jumps. ``LAUNCH``: threads, registers, occupancy, waves and traffic of a made-up
    kernel, in which parameters play random parts. ``TABLE``: every value and every pair of values
    of some parameters has an effect of its own, in no order. ``FUNNEL``: as ``BENT``, with one
    small region that is far faster than its surroundings tell.
    """

    BENT = "bent"
    LAUNCH = "launch"
    TABLE = "table"
    FUNNEL = "funnel"


def synthetic_recording(
    space: Space,
    name: str,
    document: dict[str, object],
    seed: int,
    kind: Kind = Kind.BENT,
    *,
    bytes_: bool = True,
) -> Recording:
    """Every configuration of a listed space with an invented time, and bytes if wanted; the same
    for the same seed."""
    candidates = candidates_of(space)
    rows = candidates.listed
    if rows is None:
        raise ValueError(f"{name} is too large to be listed")
    rows = rows[np.lexsort(rows.T[::-1])]
    random = np.random.default_rng(seed)
    values = rows[:, [len(d) > 1 for _, d in space.variables]].astype(np.float64)
    columns = np.log2(1 + values)
    log_time = _TIMES[kind](values, random)
    load = columns @ random.uniform(0, 1, columns.shape[1])
    failing = (load > np.quantile(load, 0.9)) & (random.random(len(rows)) < 0.3)
    time_ms = np.where(failing, np.nan, np.exp(log_time - log_time.min()))
    if np.isnan(time_ms).all():
        raise ValueError(f"{name}: everything fails")
    memory = np.rint(np.exp2(columns @ random.uniform(0, 1, columns.shape[1]))).astype(np.int64)
    variables = tuple((str(variable), domain) for variable, domain in space.variables)
    positions = [
        np.searchsorted(np.array(domain), rows[:, place])
        for place, (_, domain) in enumerate(variables)
    ]
    return Recording(
        name,
        f"invented, {kind.value}, seed {seed}",
        "bench.searches.synthetic",
        "",
        document,
        variables,
        np.stack(positions, axis=1).astype(np.int64),
        time_ms,
        {int(row): "invented" for row in np.flatnonzero(failing)},
        np.full(len(rows), 0.01),
        np.full(len(rows), 1000.0),
        memory if bytes_ else np.zeros(len(rows), np.int64),
        True,
    )


def _bent_times(values: Floats, random: np.random.Generator) -> Floats:
    columns = np.log2(1 + values)
    costs = [_cost(columns, random) for _ in range(2)]
    log_time = np.maximum(costs[0], costs[1] + random.normal(0, 0.3))
    return log_time + random.normal(0, 0.04, len(values))


def _funnel_times(values: Floats, random: np.random.Generator) -> Floats:
    """Within one value of a random configuration in a few parameters the time falls: a little for
    all but one of them, much for all."""
    log_time = _bent_times(values, random)
    number = values.shape[1]
    centre = values[random.integers(len(values))]
    chosen = random.choice(number, min(number, int(random.integers(3, 6))), replace=False)
    within = np.zeros(len(values), np.int64)
    for place in chosen:
        steps = np.unique(values[:, place])
        apart = np.abs(
            np.searchsorted(steps, values[:, place]) - np.searchsorted(steps, centre[place])
        )
        within += apart <= (1 if len(steps) > 4 else 0)
    depth = float(log_time.std()) * random.uniform(0.8, 1.6)
    log_time -= 0.25 * depth * (within == len(chosen) - 1)
    return log_time - depth * (within == len(chosen))


def _table_times(values: Floats, random: np.random.Generator) -> Floats:
    """Effects of values and of pairs, each normal; parameters differ in how much they matter."""
    codes = [np.unique(column, return_inverse=True) for column in values.T]
    log_time = np.zeros(len(values))
    for steps, places in codes:
        log_time += random.gamma(1.0, 0.3) * random.normal(size=len(steps))[places]
    for _ in range(len(codes)):
        first, second = random.choice(len(codes), 2, replace=False)
        table = random.normal(size=(len(codes[first][0]), len(codes[second][0])))
        log_time += random.gamma(1.0, 0.15) * table[codes[first][1], codes[second][1]]
    return log_time + random.normal(0, 0.04, len(values))


def _launch_times(values: Floats, random: np.random.Generator) -> Floats:
    """Two or three parameters span the work-group, others are work of each work-item or switches.

    Made up with the limits of a usual GPU: 2048 work-items, 64 Ki registers, 16 groups a unit.
    """
    number = values.shape[1]
    sizes = [place for place in range(number) if len(np.unique(values[:, place])) > 2]
    random.shuffle(sizes)
    # Large values are more likely sizes of groups.
    sizes.sort(key=lambda place: -float(values[:, place].max()) * random.uniform(0.5, 2.0))
    groupwise, itemwise = sizes[:2], sizes[2:]
    switches = [place for place in range(number) if place not in sizes]
    threads = np.clip(np.prod(values[:, groupwise], axis=1), 1, 1024)
    work = np.prod(np.maximum(values[:, itemwise], 1), axis=1) if itemwise else 1.0
    registers = random.uniform(16, 32) + random.uniform(1, 6) * work ** random.uniform(0.5, 1.0)
    arithmetic = random.uniform(0.2, 1.0) + random.uniform(0.2, 2.0) / work
    traffic = random.uniform(0.1, 0.6) * np.ones(len(values))
    for place in itemwise:
        traffic += random.uniform(0.1, 1.0) / np.maximum(values[:, place], 1)
    for place in switches:
        on = values[:, place] == values[:, place].max()
        arithmetic = arithmetic * np.where(on, random.uniform(0.7, 1.3), 1.0)
        # What a switch saves depends on what else was chosen.
        traffic = traffic * np.where(on, random.uniform(0.4, 1.3) + 0.3 / work, 1.0)
        registers = registers * np.where(on, random.uniform(0.8, 1.3), 1.0)
    warps = np.ceil(threads / 32)
    resident = np.minimum(16, np.floor(2048 / (32 * warps)))
    resident = np.minimum(resident, np.floor(65536 / (registers * 32 * warps)))
    resident = np.maximum(resident, 1)
    hiding = np.minimum(1.0, resident * warps / 64 / random.uniform(0.2, 0.7))
    groups = np.ceil(2 ** random.uniform(18, 23) / (threads * work))
    at_once = resident * random.integers(40, 120)
    idle = np.ceil(groups / at_once) * at_once / groups
    uneven = 1 + random.uniform(0, 0.5) * (values[:, groupwise[0]] % 32 != 0)
    spilled = 1 + random.uniform(0.2, 1.0) * np.maximum(registers - 128, 0) / 64
    operations = arithmetic * 32 * warps / threads / hiding ** random.uniform(0.3, 1.0)
    moved = traffic * uneven * spilled / hiding ** random.uniform(0.1, 0.6)
    total = np.maximum(operations, moved) + random.uniform(0, 0.6) * np.minimum(operations, moved)
    log_time = np.log(total * idle)
    return log_time + random.normal(0, random.uniform(0.02, 0.08), len(values))


_TIMES: dict[Kind, Callable[[Floats, np.random.Generator], Floats]] = {
    Kind.BENT: _bent_times,
    Kind.LAUNCH: _launch_times,
    Kind.TABLE: _table_times,
    Kind.FUNNEL: _funnel_times,
}


def _cost(columns: Floats, random: np.random.Generator) -> Floats:
    """Piecewise linear in each column, in a few sums of two, and in jumps of these."""
    total = np.zeros(len(columns))
    number = columns.shape[1]
    for place in range(number):
        total += random.gamma(1.0, 0.25) * _bent(columns[:, place], random)
    for _ in range(number):
        first, second = random.choice(number, 2, replace=False)
        joint = columns[:, first] + random.choice((-1.0, 1.0)) * columns[:, second]
        total += random.gamma(1.0, 0.2) * _bent(joint, random)
        # Occupancy goes by whole work-groups: a jump where one more does not fit.
        total += random.gamma(1.0, 0.1) * (joint > random.uniform(joint.min(), joint.max()))
    return total


def _bent(column: Floats, random: np.random.Generator) -> Floats:
    """The distance from a random best value, steeper on one side."""
    best = random.uniform(column.min(), column.max())
    below, above = random.uniform(0.2, 1.0, 2)
    return np.where(column < best, below * (best - column), above * (column - best))
