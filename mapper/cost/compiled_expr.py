"""Symbolic integers as functions of their symbols' values, for whoever evaluates many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

from mapper.ast_model.index_expr import Expr, Quotient, Symbol
from mapper.ast_model.polynomial import Atom

#: From values by name to the integer; KeyError for a symbol without a value.
Function = Callable[[Mapping[str, int]], int]


@lru_cache(maxsize=4096)
def function_of(expression: Expr) -> Function:
    """What :meth:`Expr.evaluate` gives, compiled."""
    # Nothing of the text is a user's but names, which are quoted.
    return cast(Function, eval(f"lambda v: {_text(expression)}"))


def _text(expression: Expr) -> str:
    terms = ["*".join((str(c), *map(_atom_text, m))) for m, c in expression.terms]
    return " + ".join(terms) or "0"


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return f"v[{atom.name!r}]"
    sign = "//" if isinstance(atom, Quotient) else "%"
    return f"(({_text(atom.numerator)}) {sign} ({_text(atom.denominator)}))"
