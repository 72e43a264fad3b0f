"""The meaning of predicates: under a full assignment, and under a partial one by intervals.

No solver is involved: what a solver answers is checked with :func:`evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
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
    floor_div_total,
    modulo_total,
    related,
)
from mapper.errors import InputError

Domains = Mapping[Variable, Sequence[int]]
Interval = tuple[int, int]


def evaluate(predicate: Predicate, assignment: Assignment) -> bool:
    """Whether the predicate holds; InputError names a variable without a value."""
    match predicate:
        case Member(variable, values):
            return _value(variable, assignment) in values
        case And(parts):
            return all(evaluate(part, assignment) for part in parts)
        case Or(parts):
            return any(evaluate(part, assignment) for part in parts)
        case Not(part):
            return not evaluate(part, assignment)
        case Compare(relation, left, right):
            return related(
                relation, evaluate_term(left, assignment), evaluate_term(right, assignment)
            )
        case Truth(value):
            return value
        case _:
            assert_never(predicate)


def _value(variable: Variable, assignment: Assignment) -> int:
    try:
        return assignment[variable]
    except KeyError:
        raise InputError(f"no value for {variable}") from None


def evaluate_term(term: IntTerm, assignment: Assignment) -> int:
    """The integer that a term stands for."""
    match term:
        case IntConst(value):
            return value
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return _value(term, assignment)
        case Sum(terms):
            return sum(evaluate_term(part, assignment) for part in terms)
        case Product(factors):
            product = 1
            for factor in factors:
                product *= evaluate_term(factor, assignment)
            return product
        case FloorDiv(numerator, denominator):
            return floor_div_total(
                evaluate_term(numerator, assignment), evaluate_term(denominator, assignment)
            )
        case Modulo(numerator, denominator):
            return modulo_total(
                evaluate_term(numerator, assignment), evaluate_term(denominator, assignment)
            )
        case Select(condition, then, otherwise):
            return evaluate_term(then if evaluate(condition, assignment) else otherwise, assignment)
        case Maximum(terms):
            return max(evaluate_term(part, assignment) for part in terms)
        case _:
            assert_never(term)


def evaluate_partial(predicate: Predicate, assignment: Assignment, domains: Domains) -> bool | None:
    """True or false if that is so whatever the open variables are; None if not known.

    Sound, not complete: integer terms are bounded by intervals over ``domains``, so None
    may be answered where an exhaustive search would know.
    """
    match predicate:
        case Member(variable, values):
            value = assignment.get(variable)
            if value is not None:
                return value in values
            inside = outside = False
            for candidate in domains[variable]:
                if candidate in values:
                    inside = True
                else:
                    outside = True
                if inside and outside:
                    return None
            return inside
        case And(parts):
            known = True
            for part in parts:
                result = evaluate_partial(part, assignment, domains)
                if result is False:
                    return False
                known = known and result is not None
            return True if known else None
        case Or(parts):
            known = True
            for part in parts:
                result = evaluate_partial(part, assignment, domains)
                if result is True:
                    return True
                known = known and result is not None
            return False if known else None
        case Not(part):
            result = evaluate_partial(part, assignment, domains)
            return None if result is None else not result
        case Compare(relation, left, right):
            return _compare_intervals(
                relation,
                term_bounds(left, assignment, domains),
                term_bounds(right, assignment, domains),
            )
        case Truth(value):
            return value
        case _:
            assert_never(predicate)


def _compare_intervals(relation: Relation, left: Interval, right: Interval) -> bool | None:
    (low1, high1), (low2, high2) = left, right
    match relation:
        case Relation.LE:
            return True if high1 <= low2 else (False if low1 > high2 else None)
        case Relation.LT:
            return True if high1 < low2 else (False if low1 >= high2 else None)
        case Relation.GE:
            return _compare_intervals(Relation.LE, right, left)
        case Relation.GT:
            return _compare_intervals(Relation.LT, right, left)
        case Relation.EQ | Relation.NE:
            equal: bool | None = None
            if high1 < low2 or high2 < low1:
                equal = False
            elif low1 == high1 == low2 == high2:
                equal = True
            return equal if relation is Relation.EQ or equal is None else not equal
        case Relation.DIVIDES:
            if low1 == high1 and low2 == high2:
                return related(relation, low1, low2)
            return None
        case _:
            assert_never(relation)


def term_bounds(term: IntTerm, assignment: Assignment, domains: Domains) -> Interval:
    """An interval that holds the term's value whatever the open variables are."""
    match term:
        case IntConst(value):
            return value, value
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            value = assignment.get(term)
            if value is not None:
                return value, value
            domain = domains[term]
            return min(domain), max(domain)
        case Sum(terms):
            bounds = [term_bounds(part, assignment, domains) for part in terms]
            return sum(low for low, _ in bounds), sum(high for _, high in bounds)
        case Product(factors):
            low, high = 1, 1
            for factor in factors:
                low2, high2 = term_bounds(factor, assignment, domains)
                corners = (low * low2, low * high2, high * low2, high * high2)
                low, high = min(corners), max(corners)
            return low, high
        case FloorDiv(numerator, denominator):
            return divide_bounds(
                term_bounds(numerator, assignment, domains),
                term_bounds(denominator, assignment, domains),
            )
        case Modulo(numerator, denominator):
            return modulo_bounds(
                term_bounds(numerator, assignment, domains),
                term_bounds(denominator, assignment, domains),
            )
        case Select(condition, then, otherwise):
            chosen = evaluate_partial(condition, assignment, domains)
            if chosen is not None:
                return term_bounds(then if chosen else otherwise, assignment, domains)
            low1, high1 = term_bounds(then, assignment, domains)
            low2, high2 = term_bounds(otherwise, assignment, domains)
            return min(low1, low2), max(high1, high2)
        case Maximum(terms):
            bounds = [term_bounds(part, assignment, domains) for part in terms]
            return max(low for low, _ in bounds), max(high for _, high in bounds)
        case _:
            assert_never(term)


def divide_bounds(top: Interval, bottom: Interval) -> Interval:
    """Bounds of total floor division."""
    candidates: list[int] = []
    if bottom[0] < 1:
        candidates.append(0)
    if bottom[1] >= 1:
        smallest = max(1, bottom[0])
        candidates += [a // b for a in top for b in (smallest, bottom[1])]
    return min(candidates), max(candidates)


def modulo_bounds(top: Interval, bottom: Interval) -> Interval:
    """Bounds of the total remainder."""
    if top[0] == top[1] and bottom[0] == bottom[1]:
        value = modulo_total(top[0], bottom[0])
        return value, value
    if bottom[0] > top[1] and top[0] >= 0:
        return top
    low, high = 0, bottom[1] - 1
    if top[0] >= 0:
        high = min(high, top[1])
    if bottom[0] < 1:
        # The remainder may be the dividend itself.
        low, high = min(low, top[0]), max(high, top[1])
    return low, max(low, high)


def is_linear(term: IntTerm) -> bool:
    """True if no two variables are multiplied, divided or chosen between."""
    match term:
        case FloorDiv() | Modulo() | Maximum() | Select():
            return False
        case Product(factors):
            open_factors = [part for part in factors if not isinstance(part, IntConst)]
            return len(open_factors) <= 1 and all(is_linear(part) for part in open_factors)
        case Sum(terms):
            return all(is_linear(part) for part in terms)
        case IntConst() | CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return True
        case _:
            assert_never(term)
