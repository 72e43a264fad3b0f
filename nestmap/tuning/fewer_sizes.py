"""The space that a search draws from: one with few values of each size is solved in a second.

All sizes are reached from there by changes of few (:mod:`mapper.solver.factored.neighbours`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import (
    ParameterVariable,
    Predicate,
    Variable,
    variables,
)
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
        found = SuitedSpace(with_fewer_sizes(space, _LEAST_SIZES), watch)
        return found if found.count_joint() else SuitedSpace(space, watch)
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
    goes with most of the sizes around it and without a rest, then what two divides most often; and
    the largest of all. Of fewer than six, some of these.

    What may be 0 (what a tile lacks, say) keeps all, since it goes with sizes.
    """
    told = _Told(space)
    kept: list[tuple[Variable, Domain]] = []
    for variable, domain in space.variables:
        if isinstance(variable, ParameterVariable) and len(domain) > most and min(domain) > 0:
            domain = _fewer(domain, most, told.scores(variable, domain))
        if isinstance(variable, ParameterVariable):
            told.kept[variable] = domain
        kept.append((variable, domain))
    return replace(space, variables=tuple(kept))


class _Told:
    """What constraints on one size, or on two, tell of its values."""

    def __init__(self, space: Space) -> None:
        # No rest: what may be 0 is.
        self._zeros = {v: 0 for v, domain in space.variables
                       if isinstance(v, ParameterVariable) and 0 in domain}  # fmt: skip
        self._about: dict[frozenset[Variable], list[Predicate]] = {}
        for constraint in space.constraints:
            open_ones = variables(constraint.predicate) - self._zeros.keys()
            if len(open_ones) in (1, 2):
                self._about.setdefault(frozenset(open_ones), []).append(constraint.predicate)
        self.kept: dict[Variable, Domain] = {}
        """The values of the sizes before."""

    def scores(self, variable: Variable, domain: Domain) -> dict[int, int]:
        """How many values of other sizes go with each of a size's, without a rest."""
        others = [(other, values, both) for other, values in self.kept.items()
                  if (both := self._about.get(frozenset((variable, other))))]  # fmt: skip
        alone = self._about.get(frozenset((variable,)), [])
        found: dict[int, int] = {}
        for value in domain:
            mine = {**self._zeros, variable: value}
            fits = all(evaluate(predicate, mine) for predicate in alone)
            found[value] = fits + sum(
                all(evaluate(predicate, {**mine, other: its}) for predicate in both)
                for other, values, both in others
                for its in values
            )
        return found


def _fewer(domain: Domain, most: int, scores: Mapping[int, int]) -> Domain:
    octaves: dict[int, int] = {}
    for value in sorted(domain, reverse=True):
        kept = octaves.setdefault(value.bit_length(), value)
        if (scores[value], value & -value) > (scores[kept], kept & -kept):
            octaves[value.bit_length()] = value
    kept = sorted({*octaves.values(), max(domain)})
    if most < _MOST_SIZES:
        kept = [kept[round(k * (len(kept) - 1) / (most - 1))] for k in range(most)]
    return tuple(dict.fromkeys(kept))
