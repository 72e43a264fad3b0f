"""Solutions near one that is known: a few variables change, and what follows from them.

To know all solutions of a space takes seconds or more. Those that differ from one in three sizes
are some thousand combinations, which are looked at one by one (:mod:`mapper.solver.diagram.grid`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.evaluation import evaluate, evaluate_term
from mapper.constraint_rules.predicate import (
    CodeVariable,
    IntTerm,
    Predicate,
    Variable,
    variables,
)
from mapper.constraint_rules.rewriting import bind
from mapper.solver.diagram.grid import Grid, TooManyCombinationsError
from mapper.solver.factored.definitions import Definitions, definitions_of
from mapper.solver.factored.narrowing import Narrowing
from mapper.solver.limits import Watch
from mapper.solver.space import Domain, Space

#: Combinations that are looked at for one question.
MOST_LOOKED_AT = 1 << 14
#: Choices of codes whose constraints are kept.
_KEPT = 16


@dataclass(frozen=True, slots=True)
class _Form:
    """The constraints on parameters and sizes under some codes; ``domains`` are the values that
    those on one variable leave. ``scopes`` are the variables that each depends on, those that
    follow from others left out, ``needs`` those of what follows."""

    definitions: Definitions
    domains: Mapping[Variable, Domain]
    scopes: tuple[frozenset[Variable], ...]
    needs: Mapping[Variable, frozenset[Variable]]


class Neighbours:
    """Solutions of a space that have a known one's codes and most of its values."""

    def __init__(self, space: Space, watch: Watch | None = None) -> None:
        narrowing = Narrowing(space, (watch or Watch()).tick)
        self._domains = narrowing.domains
        self._demands = narrowing.demands
        self._names = [variable for variable, _ in space.variables]
        self._codes = [v for v in self._names if isinstance(v, CodeVariable)]
        self._own = frozenset(self._codes)
        self._forms: OrderedDict[tuple[int, ...], _Form] = OrderedDict()

    def free(self, solution: Mapping[Variable, int]) -> tuple[Variable, ...]:
        """What may change of a solution: what has several values and follows from nothing."""
        form = self._form(solution)
        follows = form.definitions.terms
        return tuple(
            name
            for name in self._names
            if name not in self._own and name not in follows and len(form.domains[name]) > 1
        )

    def recoded(
        self, solution: Mapping[Variable, int], codes: Mapping[Variable, int]
    ) -> dict[Variable, int] | None:
        """The solution with another one's codes; None where its values do not go with them."""
        made = {name: codes[name] if name in self._own else solution[name] for name in self._names}
        definitions = self._form(made).definitions
        made = definitions.complete(made)
        holds = all(evaluate(predicate, made) for predicate in definitions.rest)
        return {name: made[name] for name in self._names} if holds else None

    def near(
        self,
        solution: Mapping[Variable, int],
        freed: Sequence[Variable],
        count: int,
        random: Random,
    ) -> list[dict[Variable, int]]:
        """Up to so many different solutions with all values of a known one but of what is freed,
        each equally likely; of what is freed no more than there is time to look at."""
        form = self._form(solution)
        kept = _fewer(freed, form.domains)
        places = {name: place for place, name in enumerate(kept)}
        domains = [form.domains[name] for name in kept]
        terms = form.definitions.terms
        moved = {v: terms[v] for v, needs in form.needs.items() if not needs.isdisjoint(places)}
        fixed = {v: value for v, value in solution.items() if v not in places and v not in moved}
        grid = Grid(domains, places, fixed, moved)
        shape = [len(domain) for domain in domains]
        holds = np.ones(shape, np.bool_)
        try:
            for predicate, scope in zip(form.definitions.rest, form.scopes, strict=True):
                if scope.isdisjoint(places):
                    continue
                holds &= grid.truth(predicate)[0]
                if not holds.any():
                    return []
        except TooManyCombinationsError:
            return []
        own = [domain.index(solution[name]) for name, domain in zip(kept, domains, strict=True)]
        holds[tuple(own)] = False
        found: list[int] = np.flatnonzero(holds).tolist()
        chosen = random.sample(range(len(found)), min(count, len(found)))
        return [
            self._changed(solution, _values(kept, domains, found[place]), moved) for place in chosen
        ]

    def _changed(
        self,
        solution: Mapping[Variable, int],
        new: Mapping[Variable, int],
        moved: Mapping[Variable, IntTerm],
    ) -> dict[Variable, int]:
        made = {name: new.get(name, solution[name]) for name in self._names}
        return made | {name: evaluate_term(term, made) for name, term in moved.items()}

    def _form(self, solution: Mapping[Variable, int]) -> _Form:
        codes: dict[Variable, int] = {name: solution[name] for name in self._codes}
        key = tuple(codes.values())
        form = self._forms.pop(key, None) or self._bound(codes)
        self._forms[key] = form
        if len(self._forms) > _KEPT:
            self._forms.popitem(last=False)
        return form

    def _bound(self, codes: Mapping[Variable, int]) -> _Form:
        definitions = definitions_of((bind(d, codes) for d in self._demands), self._domains)
        needs = {name: variables(term) for name, term in definitions.terms.items()}

        def scope(predicate: Predicate) -> frozenset[Variable]:
            return frozenset[Variable]().union(
                *(needs.get(name, frozenset((name,))) for name in variables(predicate))
            )

        scopes = tuple(map(scope, definitions.rest))
        domains = dict(self._domains)
        for predicate, names in zip(definitions.rest, scopes, strict=True):
            if len(names) == 1 and names == variables(predicate):
                (name,) = names
                grid = Grid([domains[name]], {name: 0}, {})
                domains[name] = _left(domains[name], grid.truth(predicate)[0])
        return _Form(definitions, domains, scopes, needs)


def _left(domain: Domain, holds: NDArray[np.bool_] | bool) -> Domain:
    kept = np.broadcast_to(holds, (len(domain),)).tolist()
    return tuple(value for value, one in zip(domain, kept, strict=True) if one)


def _values(
    names: Sequence[Variable], domains: Sequence[Domain], place: int
) -> dict[Variable, int]:
    """The values at a place among all combinations, the last variable's going round first."""
    found: dict[Variable, int] = {}
    for name, domain in reversed(list(zip(names, domains, strict=True))):
        place, own = divmod(place, len(domain))
        found[name] = domain[own]
    return found


def _fewer(freed: Sequence[Variable], domains: Mapping[Variable, Sequence[int]]) -> list[Variable]:
    """The first of what is freed, as many as have few enough combinations together."""
    kept: list[Variable] = []
    for name in freed:
        if prod(len(domains[other]) for other in (*kept, name)) <= MOST_LOOKED_AT:
            kept.append(name)
    return kept
