"""Spaces too large to enumerate, made from published ones, each with an independent count.

What counts them here shares nothing with the solver: loops over divisors, NumPy over the few
parameters that are tied, and products of published sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

import numpy as np

from mapper.tuning_space.document import TuningConstraint, TuningParameter, TuningSpace

REDUCTION_SIZE = 4096
_SMALL_MEMORY, _LARGE_MEMORY = 49152, 102400


def divisors(number: int) -> list[int]:
    """Ascending."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def reduction_over_divisors(published: TuningSpace, size: int = REDUCTION_SIZE) -> TuningSpace:
    """``atf_prl_16x16`` for a larger input: the same constraints, ranges become divisors.

    Its two dimensions share one inequality of two values, so nearly everything decouples.
    """
    sizes = tuple(divisors(size))
    parameters = tuple(
        TuningParameter(parameter.name, (size,))
        if parameter.name.startswith("INPUT_SIZE")
        else replace(parameter, values=sizes)
        if len(parameter.values) > 3
        else parameter
        for parameter in published.parameters
    )
    return replace(
        published,
        name=f"atf_prl_{size}x{size}_divisors",
        notes=f"{published.name} with inputs of {size} and, for ranges, the divisors of it",
        parameters=parameters,
        expected_count=_count_reduction(size),
    )


def _count_reduction(size: int) -> int:
    left = right = 0
    for block in divisors(size):
        for private in divisors(block):
            for groups in divisors(size // block):
                for items in divisors(block // private):
                    if items <= size + groups - 1 / groups:
                        left += 1
                        right += groups == 1 or groups % block == 0
    # CACHE_L_CB and CACHE_P_CB, 6 ordered pairs of levels, 2 ways to have different dimensions.
    return 2 * 2 * 6 * 2 * left * right


def fine_hotspot(
    published: TuningSpace,
    *,
    block_x: int = 1024,
    block_y: int = 32,
    tile: int = 10,
    time_steps: int = 10,
    blocks: int = 16,
) -> TuningSpace:
    """``hotspot`` with every size up to a limit, and factors by which to unroll the tiles.

    Coupled: one product ties both block sizes, both tiles, the time steps, the use of shared
    memory and the number of blocks.
    """
    ranges = {
        "block_size_x": range(1, block_x + 1),
        "block_size_y": range(1, block_y + 1),
        "tile_size_x": range(1, tile + 1),
        "tile_size_y": range(1, tile + 1),
        "temporal_tiling_factor": range(1, time_steps + 1),
        "loop_unroll_factor_t": range(1, time_steps + 1),
        "blocks_per_sm": range(blocks + 1),
    }
    parameters = [
        replace(parameter, values=tuple(ranges.get(parameter.name, parameter.values)))
        for parameter in published.parameters
    ]
    parameters += [
        TuningParameter(f"loop_unroll_factor_{axis}", tuple(range(1, tile + 1))) for axis in "xy"
    ]
    return replace(
        published,
        name="hotspot_fine",
        notes="hotspot with every size up to a limit, and tiles unrolled in x and y",
        parameters=tuple(parameters),
        constraints=(
            *published.constraints,
            TuningConstraint("tile_size_x % loop_unroll_factor_x == 0"),
            TuningConstraint("tile_size_y % loop_unroll_factor_y == 0"),
        ),
        expected_count=_count_hotspot(block_x, block_y, tile, time_steps, blocks),
    )


def _count_hotspot(block_x: int, block_y: int, tile: int, time_steps: int, blocks: int) -> int:
    x, y = np.meshgrid(np.arange(1, block_x + 1), np.arange(1, block_y + 1))
    threads = x * y
    kept = (threads >= 32) & (threads <= 1024)
    x, y = x[kept], y[kept]
    tiles = np.arange(1, tile + 1)
    unrolls = np.array([len(divisors(int(size))) for size in tiles])
    total = 0
    for steps in range(1, time_steps + 1):
        wide = x[:, None] * tiles + 2 * steps
        high = y[:, None] * tiles + 2 * steps
        area = wide[:, :, None] * high[:, None, :]
        for arrays in (2, 3):
            memory = area * (arrays * 4)
            fits = memory <= _SMALL_MEMORY
            residents = np.minimum(_LARGE_MEMORY // memory, blocks) + 1
            ways = np.where(fits, residents, 0).sum(axis=0)
            total += len(divisors(steps)) * int(unrolls @ ways @ unrolls)
    return total


def side_by_side(published: Sequence[TuningSpace]) -> TuningSpace:
    """Kernels of one application, tuned together: their parameters under other names.

    Decoupled; the count is the product of the published ones.
    """
    parameters: list[TuningParameter] = []
    constraints: list[TuningConstraint] = []
    for place, space in enumerate(published):
        names = {parameter.name: f"k{place}_{parameter.name}" for parameter in space.parameters}
        parameters += [replace(p, name=names[p.name]) for p in space.parameters]
        constraints += [
            TuningConstraint(renamed(constraint.expression, names))
            for constraint in space.constraints
        ]
    counts = [space.expected_count for space in published]
    return TuningSpace(
        "+".join(space.name for space in published),
        tuple(parameters),
        tuple(constraints),
        source="; ".join(dict.fromkeys(space.source for space in published)),
        licence=published[0].licence,
        notes="kernels tuned together",
        expected_count=math.prod(count for count in counts if count is not None)
        if None not in counts
        else None,
    )


def renamed(expression: str, names: dict[str, str]) -> str:
    """An expression with other names for its parameters."""
    return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), expression)
