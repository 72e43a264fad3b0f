"""Variables that an equation gives in terms of others, taken out of a space.

A local size that must equal the iterations of the maps that use it is no choice of its own: its
value follows, and what speaks of it speaks of the trip counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.evaluation import Domains, evaluate_term
from mapper.constraint_rules.predicate import (
    Compare,
    IntTerm,
    LocalSizeVariable,
    Member,
    ParameterVariable,
    Predicate,
    Truth,
    Variable,
    variables,
)
from mapper.constraint_rules.rewriting import Rewriter, replaced
from mapper.solver.diagram.compile import conjuncts


@dataclass(frozen=True, slots=True)
class Definitions:
    """``terms`` of the variables that follow from others; ``rest`` is what else must hold.

    In ``rest`` a variable that follows stands in memberships alone, one of them its domain.
    Terms speak of no variable that follows.
    """

    terms: Mapping[Variable, IntTerm]
    rest: tuple[Predicate, ...]

    def complete(self, chosen: Mapping[Variable, int]) -> dict[Variable, int]:
        """Values of all variables, from those of the others."""
        return {**chosen, **{v: evaluate_term(term, chosen) for v, term in self.terms.items()}}


def definitions_of(predicates: Iterable[Predicate], domains: Domains) -> Definitions:
    """What follows from what, and what is left to satisfy."""
    left = list(dict.fromkeys(p for predicate in predicates for p in conjuncts(predicate)))
    left = _rewritten(left, {}, domains)
    found: dict[Variable, IntTerm] = {}
    while (next_one := next(_definitions(left, found, domains), None)) is not None:
        variable, term = next_one
        step = Rewriter(replaced({variable: term}), domains)
        found = {name: step.term(other) for name, other in found.items()}
        found[variable] = term
        left = _rewritten(left, {variable: term}, domains)
    inside = [Member(name, frozenset(domains[name])) for name in found]
    return Definitions(found, (*left, *inside))


def _rewritten(
    predicates: Iterable[Predicate], terms: Mapping[Variable, IntTerm], domains: Domains
) -> list[Predicate]:
    step = Rewriter(replaced(terms), domains)
    parts = (part for p in predicates for part in conjuncts(step.predicate(p)))
    return [part for part in dict.fromkeys(parts) if not (isinstance(part, Truth) and part.value)]


def _definitions(
    predicates: Iterable[Predicate], known: Mapping[Variable, IntTerm], domains: Domains
) -> Iterator[tuple[Variable, IntTerm]]:
    """Equations that give a variable: of local sizes alone, which are many values for what
    mostly is one product."""
    for predicate in predicates:
        if not isinstance(predicate, Compare) or predicate.relation is not Relation.EQ:
            continue
        sides = ((predicate.left, predicate.right), (predicate.right, predicate.left))
        for variable, term in sides:
            if not isinstance(variable, LocalSizeVariable) or variable in known:
                continue
            names = variables(term)
            if names and all(isinstance(name, ParameterVariable) for name in names):
                yield variable, term
