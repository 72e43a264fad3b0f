"""Predicates as Python expressions, so that the builders of other projects can have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
)

Names = Mapping[Variable, str]


def conjuncts(predicates: Iterable[Predicate]) -> list[Predicate]:
    """What must hold, taken apart: several small constraints prune earlier than a large one."""
    found: list[Predicate] = []
    for predicate in predicates:
        found += conjuncts(predicate.parts) if isinstance(predicate, And) else [predicate]
    return found


def predicate_text(item: Predicate, names: Names) -> str:
    """A Python expression that is true exactly where the predicate holds."""
    match item:
        case Truth(value):
            return "1 == 1" if value else "1 == 0"
        case Compare(relation, left, right):
            return f"{_term(left, names)} {relation.value} {_term(right, names)}"
        case Member(variable, values):
            return _member(names[variable], values, "==", "in")
        case Not(Member(variable, values)):
            return _member(names[variable], values, "!=", "not in")
        case Not(part):
            return f"not ({predicate_text(part, names)})"
        case And(parts):
            return " and ".join(f"({predicate_text(part, names)})" for part in parts)
        case Or(parts):
            return " or ".join(f"({predicate_text(part, names)})" for part in parts)
        case _:
            assert_never(item)


def _member(name: str, values: frozenset[int], equal: str, inside: str) -> str:
    if len(values) == 1:
        return f"{name} {equal} {next(iter(values))}"
    return f"{name} {inside} ({', '.join(str(value) for value in sorted(values))})"


def _term(item: IntTerm, names: Names) -> str:
    match item:
        case IntConst(value):
            return f"({value})" if value < 0 else str(value)
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return names[item]
        case Sum(terms):
            return f"({' + '.join(_term(part, names) for part in terms)})"
        case Product(factors):
            return f"({' * '.join(_term(part, names) for part in factors)})"
        case Maximum(terms):
            return f"max({', '.join(_term(part, names) for part in terms)})"
        case FloorDiv(numerator, denominator):
            # Total, as the predicates' division is.
            top, bottom = _term(numerator, names), _term(denominator, names)
            return f"({top} // {bottom} if {bottom} >= 1 else 0)"
        case Modulo(numerator, denominator):
            top, bottom = _term(numerator, names), _term(denominator, names)
            return f"({top} % {bottom} if {bottom} >= 1 else {top})"
        case Select(condition, then, otherwise):
            first, second = _term(then, names), _term(otherwise, names)
            return f"({first} if {predicate_text(condition, names)} else {second})"
        case _:
            assert_never(item)
