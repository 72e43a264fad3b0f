"""What a class of codes demands of parameters and local sizes, sorted by what it speaks of.

Most demands on sizes speak of one size each ("divides the tiles of this map"). Given the
parameters, such a demand is a set of allowed values, whichever dimension the size is of: classes
that differ by a permutation of dimensions demand the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from mapper.constraint_rules.predicate import (
    And,
    CodeVariable,
    Compare,
    FloorDiv,
    IntConst,
    IntTerm,
    LocalSizeVariable,
    Maximum,
    Member,
    Modulo,
    Not,
    Or,
    ParameterVariable,
    Predicate,
    Product,
    Select,
    Sum,
    Truth,
    Variable,
    subterms,
    variables,
)
from mapper.solver.diagram.compile import conjuncts

#: Stands for whichever local size a demand is made of; kernels have names.
ANY_SIZE = LocalSizeVariable("", 0)
#: What one local size must satisfy, said of :data:`ANY_SIZE`.
Demand = frozenset[Predicate]


@dataclass(frozen=True, slots=True)
class Demands:
    """Conditions on parameters alone; one demand for each local size, in the order asked for;
    and conditions that tie sizes and mention no parameter."""

    parameters: frozenset[Predicate]
    sizes: tuple[Demand, ...]
    together: frozenset[Predicate]


class DemandReader:
    """Sorts predicates, and keeps what it found about each."""

    def __init__(self, sizes: Sequence[LocalSizeVariable]) -> None:
        self._sizes = tuple(sizes)
        self._kinds: dict[Predicate, tuple[tuple[LocalSizeVariable, ...], bool]] = {}
        self._said: dict[Predicate, Predicate] = {}

    def read(self, always: Iterable[Predicate], own: Iterable[Predicate]) -> Demands | None:
        """The demands; None where one condition ties several sizes to parameters.

        Of ``always``, what holds for every class, conditions on one size alone are counted
        among those on several: limits may differ by dimension, and demands should not.
        """
        parameters: set[Predicate] = set()
        of_size: dict[LocalSizeVariable, set[Predicate]] = {size: set() for size in self._sizes}
        together: set[Predicate] = set()
        for predicates, most in ((always, 0), (own, 1)):
            for part in (part for predicate in predicates for part in conjuncts(predicate)):
                sizes, pure = self._kind(part)
                if not sizes:
                    parameters.add(part)
                elif pure and len(sizes) > most:
                    together.add(part)
                elif len(sizes) == 1:
                    of_size[sizes[0]].add(self._of_any(part, sizes[0]))
                else:
                    return None
        demands = tuple(frozenset(of_size[size]) for size in self._sizes)
        return Demands(frozenset(parameters), demands, frozenset(together))

    def _kind(self, predicate: Predicate) -> tuple[tuple[LocalSizeVariable, ...], bool]:
        """The sizes that a predicate speaks of, and whether it speaks of sizes only."""
        found = self._kinds.get(predicate)
        if found is None:
            names = variables(predicate)
            sizes = tuple(size for size in self._sizes if size in names)
            found = self._kinds[predicate] = sizes, len(sizes) == len(names)
        return found

    def _of_any(self, predicate: Predicate, size: LocalSizeVariable) -> Predicate:
        found = self._said.get(predicate)
        if found is None:
            found = self._said[predicate] = _renamed(predicate, {size: ANY_SIZE})
        return found


def parameter_terms(demand: Iterable[Predicate]) -> tuple[Predicate | IntTerm, ...]:
    """The largest parts that speak of parameters only: all that a demand depends on."""
    found: dict[Predicate | IntTerm, None] = {}

    def visit(part: Predicate | IntTerm) -> None:
        names = variables(part)
        if ANY_SIZE not in names:
            if names:
                found[part] = None
            return
        for inner in subterms(part):
            visit(inner)

    for predicate in demand:
        visit(predicate)
    return tuple(sorted(found, key=str))


def _renamed(predicate: Predicate, names: Mapping[Variable, Variable]) -> Predicate:
    match predicate:
        case Truth():
            return predicate
        case Member(variable, values):
            return Member(names.get(variable, variable), values)
        case Compare(relation, left, right):
            return Compare(relation, _renamed_term(left, names), _renamed_term(right, names))
        case Not(part):
            return Not(_renamed(part, names))
        case And(parts):
            return And(tuple(_renamed(part, names) for part in parts))
        case Or(parts):
            return Or(tuple(_renamed(part, names) for part in parts))
        case _:
            assert_never(predicate)


def _renamed_term(term: IntTerm, names: Mapping[Variable, Variable]) -> IntTerm:
    match term:
        case IntConst():
            return term
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return names.get(term, term)
        case Sum(terms):
            return Sum(tuple(_renamed_term(part, names) for part in terms))
        case Product(factors):
            return Product(tuple(_renamed_term(part, names) for part in factors))
        case Maximum(terms):
            return Maximum(tuple(_renamed_term(part, names) for part in terms))
        case FloorDiv(top, bottom):
            return FloorDiv(_renamed_term(top, names), _renamed_term(bottom, names))
        case Modulo(top, bottom):
            return Modulo(_renamed_term(top, names), _renamed_term(bottom, names))
        case Select(condition, then, otherwise):
            return Select(
                _renamed(condition, names),
                _renamed_term(then, names),
                _renamed_term(otherwise, names),
            )
        case _:
            assert_never(term)
