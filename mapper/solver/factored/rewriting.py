"""Predicates rewritten bottom up: terms replaced, common factors cancelled, constants folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import assert_never

from mapper.constraint_rules.evaluation import Domains, term_bounds
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
    add,
    all_of,
    any_of,
    compare,
    floor_divide,
    maximum,
    multiply,
    negate,
    remainder,
    select,
)

#: Says what becomes of a part before its own parts are looked at; None goes on into them.
Replacement = Callable[[Predicate | IntTerm], Predicate | IntTerm | None]
_NOTHING: Mapping[Variable, int] = {}


class Rewriter:
    """Applies one replacement to many predicates; equal parts are rewritten once.

    With ``domains`` factors that are at least 1 are cancelled in quotients.
    """

    def __init__(self, replacement: Replacement, domains: Domains | None = None) -> None:
        self._replacement = replacement
        self._domains = domains
        self._known: dict[Predicate | IntTerm, Predicate | IntTerm] = {}

    def predicate(self, predicate: Predicate) -> Predicate:
        """A predicate with its parts replaced."""
        found = self.part(predicate)
        assert isinstance(found, Predicate)
        return found

    def term(self, term: IntTerm) -> IntTerm:
        """A term with its parts replaced."""
        found = self.part(term)
        assert isinstance(found, IntTerm)
        return found

    def part(self, part: Predicate | IntTerm) -> Predicate | IntTerm:
        """A predicate or term with its parts replaced."""
        known = self._known.get(part)
        if known is None:
            known = self._replacement(part)
            known = self._known[part] = self._inside(part) if known is None else known
        return known

    def _inside(self, part: Predicate | IntTerm) -> Predicate | IntTerm:
        match part:
            case Truth() | IntConst() | Member():
                return part
            case CodeVariable() | ParameterVariable() | LocalSizeVariable():
                return part
            case And(parts):
                return _opposed(all_of(*map(self.predicate, parts)))
            case Or(parts):
                return _opposed(any_of(*map(self.predicate, parts)))
            case Not(inner):
                return negate(self.predicate(inner))
            case Compare(relation, left, right):
                return compare(relation, self.term(left), self.term(right))
            case Sum(terms):
                return add(*map(self.term, terms))
            case Product(factors):
                return multiply(*map(self.term, factors))
            case Maximum(terms):
                return maximum(*map(self.term, terms))
            case FloorDiv(top, bottom):
                return self._quotient(self.term(top), self.term(bottom))
            case Modulo(top, bottom):
                return remainder(self.term(top), self.term(bottom))
            case Select(condition, then, otherwise):
                return select(self.predicate(condition), self.term(then), self.term(otherwise))
            case _:
                assert_never(part)

    def _quotient(self, top: IntTerm, bottom: IntTerm) -> IntTerm:
        """``(a * c) // (b * c)`` is ``a // b`` where c is at least 1."""
        if self._domains is None:
            return floor_divide(top, bottom)
        left, right = Counter(_factors(top)), Counter(_factors(bottom))
        common = left & right
        for factor in tuple(common):
            if isinstance(factor, IntConst) or term_bounds(factor, _NOTHING, self._domains)[0] < 1:
                del common[factor]
        if not common:
            return floor_divide(top, bottom)
        return floor_divide(
            multiply(*(left - common).elements()), multiply(*(right - common).elements())
        )


def _opposed(predicate: Predicate) -> Predicate:
    """A part and its opposite together say nothing, or all."""
    if not isinstance(predicate, And | Or):
        return predicate
    present = set(predicate.parts)
    if any(negate(part) in present for part in predicate.parts):
        return Truth(isinstance(predicate, Or))
    return predicate


def _factors(term: IntTerm) -> tuple[IntTerm, ...]:
    return term.factors if isinstance(term, Product) else (term,)


def replaced(values: Mapping[Variable, IntTerm]) -> Replacement:
    """Variables in terms replaced by terms; in memberships they stay."""

    def replacement(part: Predicate | IntTerm) -> Predicate | IntTerm | None:
        return values.get(part) if isinstance(part, Variable) else None

    return replacement
