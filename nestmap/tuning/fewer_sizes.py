"""The space that a search draws from: one with few values of each size is solved in a second.

All sizes are reached from there by changes of few (:mod:`mapper.solver.factored.neighbours`).
"""

from __future__ import annotations

from dataclasses import replace

from mapper.constraint_rules.predicate import ParameterVariable
from mapper.solver.diagram.sweep import TooManyArcsError
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import Watch
from mapper.solver.space import Domain, Space

#: A size keeps so many values, and fewer where there are too many solutions.
_MOST_SIZES = 6
_LEAST_SIZES = 4
#: What a diagram may have: a second's work, about.
_MOST_ARCS = 1 << 20
#: A space with so few solutions is searched with all sizes, where that is as little work.
_FEW = 100_000


def solved_for_search(space: Space, watch: Watch) -> SuitedSpace:
    """Solutions of a space, not all where they are many; LimitError and Cancelled as ``watch``
    says."""
    found = _within(with_fewer_sizes(space), watch)
    if found is None:
        return SuitedSpace(with_fewer_sizes(space, _LEAST_SIZES), watch)
    if found.count_joint() < _FEW:
        # Where nothing is found otherwise, whatever it takes.
        found = _within(space, watch) or (found if found.count_joint() else None)
    return found or SuitedSpace(space, watch)


def _within(space: Space, watch: Watch) -> SuitedSpace | None:
    try:
        return SuitedSpace(space, watch, _MOST_ARCS)
    except TooManyArcsError:
        return None


def with_fewer_sizes(space: Space, most: int = _MOST_SIZES) -> Space:
    """A space whose sizes have one value in each octave, where they are more than ``most``: what
    two divides most often, and the largest of all; of fewer than six, some of these.

    What may be 0 (what a tile lacks, say) keeps all, since it goes with sizes.
    """
    return replace(
        space,
        variables=tuple(
            (variable, _fewer(domain, most))
            if isinstance(variable, ParameterVariable) and len(domain) > most and min(domain) > 0
            else (variable, domain)
            for variable, domain in space.variables
        ),
    )


def _fewer(domain: Domain, most: int) -> Domain:
    octaves: dict[int, int] = {}
    for value in sorted(domain, reverse=True):
        kept = octaves.setdefault(value.bit_length(), value)
        if value & -value > kept & -kept:
            octaves[value.bit_length()] = value
    kept = sorted({*octaves.values(), max(domain)})
    if most < _MOST_SIZES:
        kept = [kept[round(k * (len(kept) - 1) / (most - 1))] for k in range(most)]
    return tuple(dict.fromkeys(kept))
