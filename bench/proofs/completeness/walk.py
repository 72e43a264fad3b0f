"""Every assignment of a small program, up to a permutation of the dimensions.

A space's own local sizes are a product of thousands; a few tell all that rules distinguish:
one, a divisor, a non-divisor, more than the trip count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.schedule import LOCAL_CODES, VECTOR_CODES, ScheduleCode
from mapper.solver.space import Space

Assignment = dict[Variable, int]


@dataclass(frozen=True, slots=True)
class Grid:
    """What is walked: dimensions 0 to ``dimensions`` - 1, local sizes of each, vector widths.

    ``idle_sizes`` are those of dimensions that no map of the kernel uses. ``fuse_all`` offers
    fused to maps too that the space does not offer it to.
    """

    dimensions: int = 2
    local_sizes: tuple[tuple[int, ...], ...] = ((1, 2, 3, 4), (1, 2), (1, 2))
    idle_sizes: tuple[int, ...] = (1,)
    widths: tuple[int, ...] = (2, 4)
    fuse_all: bool = False


def grid_of(maps: int) -> Grid:
    """The finest grid whose product can be walked for so many maps."""
    if maps == 1:
        return Grid(3, idle_sizes=(1, 2), widths=(2, 4, 8, 16), fuse_all=True)
    if maps == 2:
        return Grid(idle_sizes=(1, 2), fuse_all=True)
    if maps == 3:
        return Grid(local_sizes=((1, 2, 3), (1, 2)), widths=(2,))
    return Grid(1, widths=(2,))


def assignments(space: Space, kernel_of: Mapping[str, str], grid: Grid) -> Iterator[Assignment]:
    """Every assignment on the grid; ``kernel_of`` names the kernel of each map id as text.

    Vectors are offered only to maps that have them in the space, for the generator prints
    nothing for others. Of assignments that
    differ by a permutation of dimensions the one is given in which they first occur in order:
    rules and generator treat dimensions alike, and devices here have no smaller one.
    """
    codes = [v for v, _ in space.variables if isinstance(v, CodeVariable)]
    parameters = [(v, d) for v, d in space.variables if isinstance(v, ParameterVariable)]
    sizes = [v for v, _ in space.variables if isinstance(v, LocalSizeVariable)]
    domains = space.domains
    offered = [_offered(domains[variable], grid) for variable in codes]
    for chosen in product(*offered):
        if not _canonical(chosen):
            continue
        used = {
            (kernel_of[str(variable.map_id)], code % 10)
            for variable, code in zip(codes, chosen, strict=True)
            if ScheduleCode(code).is_parallel
        }
        size_lists = [_sizes(variable, used, grid) for variable in sizes]
        for values in product(*(domain for _, domain in parameters)):
            for local in product(*size_lists):
                yield {
                    **dict(zip(codes, chosen, strict=True)),
                    **dict(zip((v for v, _ in parameters), values, strict=True)),
                    **dict(zip(sizes, local, strict=True)),
                }


def without_lone_threads(assignment: Assignment, kernel_of: Mapping[str, str]) -> Assignment:
    """Local maps of one work-item as what they are: sequential.

    The same work-item does the same in the same order. Only buffers inside may be smaller, for
    there is one copy for all iterations.
    """
    changed = dict(assignment)
    for variable, value in assignment.items():
        if not isinstance(variable, CodeVariable) or value not in LOCAL_CODES:
            continue
        kernel = kernel_of[str(variable.map_id)]
        if assignment[LocalSizeVariable(kernel, value % 10)] == 1:
            changed[variable] = int(ScheduleCode.SEQUENTIAL)
    return changed


def _offered(domain: tuple[int, ...], grid: Grid) -> tuple[int, ...]:
    kept = {int(ScheduleCode.FUSED)} if grid.fuse_all else set[int]()
    for code in map(ScheduleCode, domain):
        if code in VECTOR_CODES:
            keep = code in grid.widths
        else:
            keep = code.dimension is None or code.dimension < grid.dimensions
        if keep:
            kept.add(int(code))
    return tuple(sorted(kept))


def _sizes(variable: LocalSizeVariable, used: set[tuple[str, int]], grid: Grid) -> tuple[int, ...]:
    if variable.dimension >= grid.dimensions:
        return (1,)
    if (variable.kernel, variable.dimension) not in used:
        return grid.idle_sizes
    return grid.local_sizes[variable.dimension]


def _canonical(codes: tuple[int, ...]) -> bool:
    order = [code % 10 for code in codes if ScheduleCode(code).is_parallel]
    first = list(dict.fromkeys(order))
    return first == list(range(len(first)))
