"""Invented devices on real spaces: times made up of what times of kernels are made of.

For choosing a search's settings without looking at what it is judged on. The time is the larger
of two costs, as of arithmetic and of memory; each is the exponential of random piecewise linear
functions of the parameters' logarithms and of products of two of them, with jumps; on top comes
roughness that nothing explains, and a share of configurations fails where sizes are large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mapper.search.candidates import candidates_of
from mapper.solver.space import Space
from nestmap.search_bench.recording import Recording

Floats = NDArray[np.float64]


def synthetic_recording(
    space: Space, name: str, document: dict[str, object], seed: int
) -> Recording:
    """Every configuration of a listed space with an invented time; the same for the same seed."""
    candidates = candidates_of(space)
    rows = candidates.listed
    if rows is None:
        raise ValueError(f"{name} is too large to be listed")
    rows = rows[np.lexsort(rows.T[::-1])]
    random = np.random.default_rng(seed)
    columns = np.log2(1 + rows[:, [len(d) > 1 for _, d in space.variables]].astype(np.float64))
    costs = [_cost(columns, random) for _ in range(2)]
    log_time = np.maximum(costs[0], costs[1] + random.normal(0, 0.3))
    log_time += random.normal(0, 0.04, len(rows))
    load = columns @ random.uniform(0, 1, columns.shape[1])
    failing = (load > np.quantile(load, 0.9)) & (random.random(len(rows)) < 0.3)
    time_ms = np.where(failing, np.nan, np.exp(log_time - log_time.min()))
    if np.isnan(time_ms).all():
        raise ValueError(f"{name}: everything fails")
    variables = tuple((str(variable), domain) for variable, domain in space.variables)
    positions = [
        np.searchsorted(np.array(domain), rows[:, place])
        for place, (_, domain) in enumerate(variables)
    ]
    return Recording(
        name,
        f"invented, seed {seed}",
        "nestmap.search_bench.synthetic",
        "",
        document,
        variables,
        np.stack(positions, axis=1).astype(np.int64),
        time_ms,
        {int(row): "invented" for row in np.flatnonzero(failing)},
        np.full(len(rows), 0.01),
        np.full(len(rows), 1000.0),
        np.rint(np.exp2(columns @ random.uniform(0, 1, columns.shape[1]))).astype(np.int64),
        True,
    )


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
