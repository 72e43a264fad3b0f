"""Indices put together again from their digits."""

from __future__ import annotations

from mapper.ast_model.index_expr import Expr, Remainder, floor_div


def combine_digits(expression: Expr) -> Expr:
    """``b*(e // b) + e % b -> e``, which flattening a split index leaves behind."""
    changed = True
    while changed:
        changed = False
        terms = dict(expression.terms)
        for monomial, coefficient in expression.terms:
            if len(monomial) != 1 or not isinstance(monomial[0], Remainder):
                continue
            remainder = monomial[0]
            divisor = remainder.denominator.constant
            if divisor is None:
                continue
            above = floor_div(remainder.numerator, remainder.denominator).terms
            if len(above) != 1 or above[0][1] != 1:
                continue
            quotient = above[0][0]
            if terms.get(quotient) == coefficient * divisor:
                rest = {m: c for m, c in terms.items() if m not in (monomial, quotient)}
                expression = Expr.from_terms(rest) + coefficient * remainder.numerator
                changed = True
                break
    return expression
