"""Terms that choose between terms: what they depend on, and what is left once that is known."""

from __future__ import annotations

from collections.abc import Mapping

from mapper.constraint_rules.predicate import (
    FloorDiv,
    IntTerm,
    Maximum,
    Modulo,
    Predicate,
    Product,
    Select,
    Sum,
    add,
    floor_divide,
    maximum,
    multiply,
    remainder,
    select,
)


def conditions_in(term: IntTerm) -> list[Predicate]:
    """What the choices within a term depend on."""
    match term:
        case Select(condition, then, otherwise):
            return [condition, *conditions_in(then), *conditions_in(otherwise)]
        case Sum(parts) | Product(parts) | Maximum(parts):
            return [found for part in parts for found in conditions_in(part)]
        case FloorDiv(top, bottom) | Modulo(top, bottom):
            return conditions_in(top) + conditions_in(bottom)
        case _:
            return []


def decided(term: IntTerm, truths: Mapping[Predicate, bool]) -> IntTerm:
    """The term with these choices made."""
    match term:
        case Select(condition, then, otherwise):
            truth = truths.get(condition)
            if truth is None:
                return select(condition, decided(then, truths), decided(otherwise, truths))
            return decided(then if truth else otherwise, truths)
        case Sum(parts):
            return add(*(decided(part, truths) for part in parts))
        case Product(parts):
            return multiply(*(decided(part, truths) for part in parts))
        case Maximum(parts):
            return maximum(*(decided(part, truths) for part in parts))
        case FloorDiv(top, bottom):
            return floor_divide(decided(top, truths), decided(bottom, truths))
        case Modulo(top, bottom):
            return remainder(decided(top, truths), decided(bottom, truths))
        case _:
            return term
