"""Symbolic integers as functions of their symbols' values, for whoever evaluates many.

Functions of functions, and no source text: names in expressions are a user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter

from mapper.ast_model.index_expr import Expr, Quotient, Symbol
from mapper.ast_model.polynomial import Atom

#: From values by name to the integer; KeyError for a symbol without a value.
Function = Callable[[Mapping[str, int]], int]


@lru_cache(maxsize=4096)
def function_of(expression: Expr) -> Function:
    """What :meth:`Expr.evaluate` gives, made ready once."""
    return _sum_of([_term(factor, tuple(map(_atom, atoms))) for atoms, factor in expression.terms])


def _sum_of(terms: list[Function]) -> Function:
    match terms:
        case []:
            return lambda values: 0
        case [only]:
            return only
        case [one, other]:
            return lambda values: one(values) + other(values)
        case _:
            return lambda values: sum([term(values) for term in terms])


def _term(factor: int, atoms: tuple[Function, ...]) -> Function:
    match atoms:
        case ():
            return lambda values: factor
        case (only,) if factor == 1:
            return only
        case (only,):
            return lambda values: factor * only(values)
        case _:

            def product(values: Mapping[str, int]) -> int:
                found = factor
                for atom in atoms:
                    found *= atom(values)
                return found

            return product


def _atom(atom: Atom) -> Function:
    if isinstance(atom, Symbol):
        return itemgetter(atom.name)
    top, bottom = function_of(atom.numerator), function_of(atom.denominator)
    if isinstance(atom, Quotient):
        return lambda values: top(values) // bottom(values)
    return lambda values: top(values) % bottom(values)
