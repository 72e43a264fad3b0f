"""Symbolic integer expressions over sizes, tuning parameters and loop variables.

An :class:`Expr` is a polynomial with integer coefficients over *atoms*: symbols, floor
quotients and remainders. Polynomials are kept in one canonical form, so that two
expressions which are equal as polynomials compare equal. Lengths of arrays, trip counts
and indices all are ``Expr``. Here stand division and bounds; everything else about them is in
:mod:`mapper.ast_model.polynomial` and can be had from here.

Every symbol stands for an integer of at least 1, or of at least 0 if it ``may_be_zero``,
except a loop variable (a symbol with an ``extent``), which runs from 0 to ``extent - 1``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from math import gcd

from mapper.ast_model.polynomial import (
    SIMPLIFIES,
    Atom,
    Expr,
    ExprLike,
    Monomial,
    Quotient,
    Remainder,
    Symbol,
    as_expr,
    atom_expr,
    atom_key,
    const,
    divide_term,
    parameter_symbol,
    symbol,
    the_symbol,
    walk_atoms,
    weighted_sum,
)

__all__ = [
    "Atom",
    "Expr",
    "ExprLike",
    "Monomial",
    "Quotient",
    "Remainder",
    "Symbol",
    "as_expr",
    "as_they_are",
    "atom_expr",
    "const",
    "exact_div",
    "floor_div",
    "in_range",
    "is_nonnegative",
    "lower_bound",
    "modulo",
    "parameter_symbol",
    "symbol",
    "the_symbol",
    "upper_bound",
    "walk_atoms",
    "weighted_sum",
]


@contextmanager
def as_they_are() -> Generator[None]:
    """Within it floor quotients and remainders of what is not a number stay as they are.

    For explanations only: expressions made so are right, but not in the canonical form.
    """
    token = SIMPLIFIES.set(False)
    try:
        yield
    finally:
        SIMPLIFIES.reset(token)


def exact_div(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """Division that is known to leave no remainder (a type's constraint says so)."""
    top, bottom = as_expr(numerator), as_expr(denominator)
    if bottom == 1:
        return top
    if top.constant is not None and bottom.constant:
        # A remainder here is a violated constraint, which verification reports by name.
        return const(top.constant // bottom.constant)
    if top == bottom:
        return const(1)
    parts = [divide_term(c, m, bottom) for m, c in top.terms]
    if parts and all(part is not None for part in parts):
        total = const(0)
        for part in parts:
            assert part is not None
            total = total + part
        return total
    # (a/b)/c = a/(b*c): nested exact quotients have one form.
    if len(top.terms) == 1:
        (monomial, coefficient) = top.terms[0]
        for position, atom in enumerate(monomial):
            if isinstance(atom, Quotient) and atom.exact:
                rest = Expr.from_terms(
                    {monomial[:position] + monomial[position + 1 :]: coefficient}
                )
                return exact_div(rest * atom.numerator, atom.denominator * bottom)
    return atom_expr(Quotient(top, bottom, True))


def _split_multiple(top: Expr, bottom: Expr) -> tuple[Expr, Expr]:
    """``top = bottom * quotient + rest`` taking every term that divides exactly."""
    quotient = const(0)
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in top.terms:
        part = divide_term(coefficient, monomial, bottom)
        if part is None and bottom.constant and not monomial:
            quotient = quotient + coefficient // bottom.constant
            part, remainder = None, coefficient % bottom.constant
            rest[monomial] = remainder
            continue
        if part is None and bottom.constant and coefficient // bottom.constant:
            whole = coefficient // bottom.constant
            quotient = quotient + Expr.from_terms({monomial: whole})
            rest[monomial] = coefficient - whole * bottom.constant
            continue
        if part is None:
            rest[monomial] = coefficient
        else:
            quotient = quotient + part
    # A coefficient that changed may cancel what an exact quotient divides by: 2*(n/2) is n.
    left = Expr.from_terms(rest)
    cancelled = weighted_sum((c, Expr.from_terms({m: 1})) for m, c in rest.items())
    if cancelled == left:
        return quotient, left
    more, left = _split_multiple(cancelled, bottom)
    return quotient + more, left


def floor_div(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """Floor division, simplified where bounds allow."""
    top, bottom = as_expr(numerator), as_expr(denominator)
    if bottom == 1:
        return top
    if top.constant is not None and bottom.constant:
        return const(top.constant // bottom.constant)
    if not SIMPLIFIES.get():
        return atom_expr(Quotient(top, bottom, False))
    quotient, rest = _split_multiple(top, bottom)
    if in_range(rest, bottom):
        return quotient
    if not rest.terms:
        return quotient
    # floor((floor(a/b))/c) = floor(a/(b*c))
    if not quotient.terms and len(rest.terms) == 1:
        (monomial, coefficient) = rest.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Quotient):
            inner = monomial[0]
            return floor_div(inner.numerator, inner.denominator * bottom)
    reduced = _reduce_common(rest, bottom)
    if reduced is not None:
        return quotient + floor_div(*reduced)
    return quotient + atom_expr(Quotient(rest, bottom, False))


def modulo(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """Non-negative remainder, simplified where bounds allow."""
    top, bottom = as_expr(numerator), as_expr(denominator)
    if bottom == 1:
        return const(0)
    if top.constant is not None and bottom.constant:
        return const(top.constant % bottom.constant)
    if not SIMPLIFIES.get():
        return atom_expr(Remainder(top, bottom))
    _, rest = _split_multiple(top, bottom)
    if in_range(rest, bottom):
        return rest
    # (a mod (k*b)) mod b = a mod b
    if len(rest.terms) == 1:
        (monomial, coefficient) = rest.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Remainder):
            inner = monomial[0]
            _, left = _split_multiple(inner.denominator, bottom)
            if not left.terms:
                return modulo(inner.numerator, bottom)
    return atom_expr(Remainder(rest, bottom))


def _reduce_common(top: Expr, bottom: Expr) -> tuple[Expr, Expr] | None:
    """Divide both by a constant that divides the divisor and all but a small rest of top."""
    divisor = bottom.constant
    if not divisor:
        return None
    common = divisor
    for monomial, coefficient in top.terms:
        if monomial:
            common = gcd(common, coefficient)
    if common <= 1:
        return None
    constant = next((c for m, c in top.terms if not m), 0)
    reduced = {m: c // common for m, c in top.terms if m}
    reduced[()] = constant // common
    return Expr.from_terms(reduced), const(divisor // common)


def upper_bound(expression: Expr) -> Expr | None:
    """An upper bound free of loop variables, or None if none is found."""
    return _bound(expression, upper=True)


def lower_bound(expression: Expr) -> Expr | None:
    """A lower bound free of loop variables, or None if none is found."""
    return _bound(expression, upper=False)


def _bound(expression: Expr, *, upper: bool) -> Expr | None:
    ends = expression.ends()
    if ends is not None:
        return const(ends[1] if upper else ends[0])
    total = const(0)
    for monomial, coefficient in expression.terms:
        want_upper = upper == (coefficient > 0)
        product = const(coefficient)
        for atom in monomial:
            low_high = _atom_range(atom)
            if low_high is None:
                return None
            product = product * low_high[1 if want_upper else 0]
        total = total + product
    return total


@lru_cache(maxsize=65536)
def _atom_range(atom: Atom) -> tuple[Expr, Expr] | None:
    """Bounds of an atom that is never negative, free of loop variables."""
    match atom:
        case Symbol():
            if atom.extent is None:
                return atom_expr(atom), atom_expr(atom)
            return const(0), atom.extent - 1
        case Quotient():
            if not any(s.extent is not None for s in atom_expr(atom).symbols()):
                own = atom_expr(atom)
                return (own, own) if is_nonnegative(atom.numerator) else None
            low = lower_bound(atom.numerator)
            high = upper_bound(atom.numerator)
            if low is None or high is None or not is_nonnegative(low):
                return None
            return const(0), floor_div(high, atom.denominator)
        case Remainder():
            return const(0), atom.denominator - 1


def is_nonnegative(expression: Expr) -> bool:
    """True if provably at least 0, whatever values the symbols have."""
    ends = expression.ends()
    if ends is not None:
        return ends[0] >= 0
    low = lower_bound(expression)
    if low is None:
        return False
    if low.constant is not None:
        return low.constant >= 0
    shifted = const(0)
    for monomial, coefficient in low.terms:
        product = const(coefficient)
        for atom in monomial:
            product = product * (_fresh(atom) + (1 if _at_least_one(atom) else 0))
        shifted = shifted + product
    return all(c >= 0 for _, c in shifted.terms)


def _at_least_one(atom: Atom) -> bool:
    """True for symbols, and for exact quotients of something that is at least 1.

    Every atom that is asked about here is known to be at least 0.
    """
    match atom:
        case Symbol():
            return not atom.may_be_zero
        case Quotient():
            return atom.exact and is_nonnegative(atom.numerator - 1)
        case Remainder():
            return False


def _fresh(atom: Atom) -> Expr:
    return Expr((((Symbol(f"<{atom_key(atom)[1]}>"),), 1),))


def in_range(expression: Expr, limit: Expr) -> bool:
    """True if provably ``0 <= expression < limit``."""
    ends, size = expression.ends(), limit.constant
    if ends is not None and size is not None:
        return ends[0] >= 0 and ends[1] < size
    if not is_nonnegative(expression):
        return False
    high = upper_bound(expression)
    return high is not None and is_nonnegative(limit - 1 - high)
