"""Predicates rewritten bottom up: values and terms put in, factors cancelled, constants folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import assert_never

from mapper.constraint_rules.evaluation import Domains, term_bounds
from mapper.constraint_rules.predicate import (
    FALSE,
    TRUE,
    And,
    Assignment,
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


def rebuilt(
    part: Predicate | IntTerm,
    predicate: Callable[[Predicate], Predicate],
    term: Callable[[IntTerm], IntTerm],
) -> Predicate | IntTerm:
    """A part made anew of what these functions give for its own parts, constants folded."""
    match part:
        case Truth() | IntConst() | Member():
            return part
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return part
        case And(parts):
            return all_of(*map(predicate, parts))
        case Or(parts):
            return any_of(*map(predicate, parts))
        case Not(inner):
            return negate(predicate(inner))
        case Compare(relation, left, right):
            return compare(relation, term(left), term(right))
        case Sum(terms):
            return add(*map(term, terms))
        case Product(factors):
            return multiply(*map(term, factors))
        case Maximum(terms):
            return maximum(*map(term, terms))
        case FloorDiv(top, bottom):
            return floor_divide(term(top), term(bottom))
        case Modulo(top, bottom):
            return remainder(term(top), term(bottom))
        case Select(condition, then, otherwise):
            return select(predicate(condition), term(then), term(otherwise))
        case _:
            assert_never(part)


class _Binding:
    """Known variables replaced by their values."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def predicate(self, predicate: Predicate) -> Predicate:
        match predicate:
            case Member(variable, values):
                value = self._assignment.get(variable)
                return predicate if value is None else Truth(value in values)
            case And(parts):
                return all_of(*self._until(parts, FALSE))
            case Or(parts):
                return any_of(*self._until(parts, TRUE))
            case _:
                found = rebuilt(predicate, self.predicate, self.term)
                assert isinstance(found, Predicate)
                return found

    def term(self, term: IntTerm) -> IntTerm:
        match term:
            case CodeVariable() | ParameterVariable() | LocalSizeVariable():
                value = self._assignment.get(term)
                return term if value is None else IntConst(value)
            case _:
                found = rebuilt(term, self.predicate, self.term)
                assert isinstance(found, IntTerm)
                return found

    def _until(self, parts: tuple[Predicate, ...], decisive: Truth) -> Iterator[Predicate]:
        """The parts up to the first that decides, for those behind it do not matter."""
        for part in parts:
            bound = self.predicate(part)
            yield bound
            if bound == decisive:
                return


def bind(predicate: Predicate, assignment: Assignment) -> Predicate:
    """The predicate with known variables replaced by their values and folded."""
    return _Binding(assignment).predicate(predicate)


def bind_term(term: IntTerm, assignment: Assignment) -> IntTerm:
    """The term with known variables replaced by their values and folded."""
    return _Binding(assignment).term(term)


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
            case And(parts):
                return _opposed(all_of(*map(self.predicate, parts)))
            case Or(parts):
                return _opposed(any_of(*map(self.predicate, parts)))
            case FloorDiv(top, bottom):
                return self._quotient(self.term(top), self.term(bottom))
            case _:
                return rebuilt(part, self.predicate, self.term)

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
