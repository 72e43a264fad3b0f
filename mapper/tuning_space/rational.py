"""Exact fractions of integer terms: what ``/`` means, with nothing but integers underneath.

A :class:`Fraction` is ``top / bottom`` with a bottom of at least 1 wherever the expression is
defined at all; so comparisons multiply crosswise, and ``//`` and ``%`` divide integers. Signs
are brought upward when a fraction is made: terms divide by 1 and more only (see
:mod:`mapper.constraint_rules.predicate`), Python's ``//`` and ``%`` by negative numbers too.

Every term carries the interval of its values and its size, so that most signs are known and
what would grow without end is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import assert_never

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    IntConst,
    IntTerm,
    ParameterVariable,
    Predicate,
    Truth,
    add,
    compare,
    floor_divide,
    maximum,
    member,
    multiply,
    remainder,
    select,
)
from mapper.errors import LimitError, Problem

# Of one integer of an expression, in bits, and of the parts of what an expression becomes.
MAX_BITS = 512
MAX_PARTS = 5000
_LARGEST = 2**MAX_BITS


# Neither kind of number is changed once it is made; freezing them would cost a good part of the
# time that it takes to read a space.
@dataclass(slots=True, eq=False)
class Whole:
    """An integer term, the interval of its values, and of how many parts it consists."""

    term: IntTerm
    low: int
    high: int
    parts: int = 1

    def __post_init__(self) -> None:
        if self.low <= -_LARGEST or self.high >= _LARGEST:
            raise LimitError(
                Problem("", "a number in the expression may become too large",
                        f"{max(self.high.bit_length(), self.low.bit_length())} bits",
                        f"{MAX_BITS} bits", "fewer factors, or a smaller exponent")
            )  # fmt: skip
        if self.parts > MAX_PARTS:
            check_parts(self.parts)


def check_parts(parts: int) -> None:
    """LimitError if what an expression becomes is too large."""
    if parts > MAX_PARTS:
        raise LimitError(
            Problem("", "the expression becomes too large", "",
                    f"{MAX_PARTS} parts after fractions are cleared",
                    "several constraints, or fewer divisions within divisions")
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Fraction:
    """``top / bottom``; the bottom is at least 1 where the expression is defined."""

    top: Whole
    bottom: Whole

    @property
    def parts(self) -> int:
        """Of how many parts it consists."""
        return self.top.parts + self.bottom.parts

    @property
    def constant(self) -> tuple[int, int] | None:
        """Its value in lowest terms, if there is one value only."""
        if self.top.low != self.top.high or self.bottom.low != self.bottom.high:
            return None
        top, bottom = self.top.low, self.bottom.low
        shared = gcd(top, bottom) or 1
        return top // shared, bottom // shared


ONE = Whole(IntConst(1), 1, 1)


def constant(value: int) -> Whole:
    """An integer."""
    return ONE if value == 1 else Whole(IntConst(value), value, value)


def _made(term: IntTerm, low: int, high: int, parts: int) -> Whole:
    return constant(low) if low == high else Whole(term, low, high, parts)


def whole(value: Whole) -> Fraction:
    """An integer as a fraction."""
    return Fraction(value, ONE)


def _product(values: list[Whole]) -> Whole:
    factors = [value for value in values if value is not ONE]
    if not factors:
        return ONE
    if len(factors) == 1:
        return factors[0]
    low = high = 1
    for factor in factors:
        corners = (low * factor.low, low * factor.high, high * factor.low, high * factor.high)
        low, high = min(corners), max(corners)
    parts = sum(factor.parts for factor in factors) + 1
    return _made(multiply(*(factor.term for factor in factors)), low, high, parts)


def _times(left: Whole, right: Whole) -> Whole:
    return _product([left, right])


def _minus(value: Whole) -> Whole:
    return _made(multiply(-1, value.term), -value.high, -value.low, value.parts + 1)


def _chosen(condition: Predicate, size: int, then: Whole, otherwise: Whole) -> Whole:
    return _made(
        select(condition, then.term, otherwise.term),
        min(then.low, otherwise.low),
        max(then.high, otherwise.high),
        size + then.parts + otherwise.parts + 1,
    )


def _largest(values: list[Whole]) -> Whole:
    return _made(
        maximum(*(value.term for value in values)),
        max(value.low for value in values),
        max(value.high for value in values),
        sum(value.parts for value in values) + 1,
    )


def total(values: list[Fraction]) -> Fraction:
    """The sum of one or more."""
    if len(values) == 1:
        return values[0]
    tops, bottom = _common(values)
    top = _made(
        add(*(value.term for value in tops)),
        sum(value.low for value in tops),
        sum(value.high for value in tops),
        sum(value.parts for value in tops) + 1,
    )
    return Fraction(top, bottom)


def minus(value: Fraction) -> Fraction:
    """The negative."""
    return Fraction(_minus(value.top), value.bottom)


def product(values: list[Fraction]) -> Fraction:
    """The product of one or more."""
    if len(values) == 1:
        return values[0]
    if all(value.bottom is ONE for value in values):
        return Fraction(_product([value.top for value in values]), ONE)
    return Fraction(
        _product([value.top for value in values]), _product([value.bottom for value in values])
    )


def power(base: Fraction, exponent: int) -> Fraction:
    """The product of ``exponent`` equal factors."""
    return product([base] * exponent) if exponent else whole(ONE)


def power_of_parameter(
    base: Fraction, exponent: ParameterVariable, values: Sequence[int]
) -> Fraction:
    """``base`` to the power of a parameter that has one of these values, none negative."""
    powers = [power(base, value) for value in values]
    return Fraction(
        _selected(exponent, values, [value.top for value in powers]),
        _selected(exponent, values, [value.bottom for value in powers]),
    )


def _selected(variable: ParameterVariable, values: Sequence[int], cases: list[Whole]) -> Whole:
    """The case of the variable's value, as a sum in which all others are 0."""
    if all(case is ONE for case in cases):
        return ONE
    terms = [
        select(member(variable, (value,)), case.term, 0)
        for value, case in zip(values, cases, strict=True)
    ]
    low, high = min(case.low for case in cases), max(case.high for case in cases)
    return _made(add(*terms), low, high, sum(case.parts + 3 for case in cases))


def inverse(value: Fraction) -> Fraction:
    """1 / value, with the sign brought upward; nothing is said of a value that is 0."""
    top, bottom = value.top, value.bottom
    if top.low >= 0:
        return Fraction(bottom, top)
    if top.high <= 0:
        return Fraction(_minus(bottom), _minus(top))
    negative = compare(Relation.LT, top.term, 0)
    signed = _chosen(negative, top.parts + 1, _minus(bottom), bottom)
    return Fraction(signed, _largest([top, _minus(top)]))


def divided(left: Fraction, right: Fraction) -> Fraction:
    """The quotient, exactly."""
    return product([left, inverse(right)])


def floor_divided(left: Fraction, right: Fraction) -> Fraction:
    """The largest integer that is no larger than the quotient, as Python's ``//``."""
    quotient = divided(left, right)
    top, bottom = quotient.top, quotient.bottom
    if bottom is ONE:
        return quotient
    # A bottom of 0 is allowed to give anything: the expression is not defined there.
    ends = [value // max(1, end) for value in (top.low, top.high)
            for end in (bottom.low, bottom.high)]  # fmt: skip
    low, high = min(ends), max(ends)
    if bottom.low < 1:
        low, high = min(low, 0), max(high, 0)
    term = floor_divide(top.term, bottom.term)
    return whole(_made(term, low, high, top.parts + bottom.parts + 1))


def modulo(left: Fraction, right: Fraction) -> Fraction:
    """``left - right * (left // right)``, as Python's ``%``: it has the sign of ``right``."""
    if right.top.low >= 0:
        return _modulo_of_positive(left, right)
    flipped = minus(_modulo_of_positive(minus(left), minus(right)))
    if right.top.high <= 0:
        return flipped
    size = right.top.parts + 1
    negative = compare(Relation.LT, right.top.term, 0)
    # Where the sign is the other one, the divisor is below 1 and the remainder unused.
    return choose(negative, size, flipped, _modulo_of_positive(left, right))


def _modulo_of_positive(left: Fraction, right: Fraction) -> Fraction:
    bottom = _times(left.bottom, right.bottom)
    dividend = _times(left.top, right.bottom)
    divisor = _times(right.top, left.bottom)
    term = remainder(dividend.term, divisor.term)
    low, high = 0, max(divisor.high - 1, 0)
    if dividend.low >= 0:
        high = min(high, dividend.high)
    if divisor.low < 1:  # the remainder of such a term is the dividend
        low, high = min(low, dividend.low), max(high, dividend.high)
    return Fraction(_made(term, low, high, dividend.parts + divisor.parts + 1), bottom)


def largest(values: list[Fraction]) -> Fraction:
    """The largest of one or more."""
    tops, bottom = _common(values)
    return Fraction(_largest(tops), bottom)


def smallest(values: list[Fraction]) -> Fraction:
    """The smallest of one or more."""
    return minus(largest([minus(value) for value in values]))


def absolute(value: Fraction) -> Fraction:
    """The value without its sign."""
    if value.top.low >= 0:
        return value
    negative = _minus(value.top)
    top = negative if value.top.high <= 0 else _largest([value.top, negative])
    return Fraction(top, value.bottom)


def choose(condition: Predicate, size: int, then: Fraction, otherwise: Fraction) -> Fraction:
    """``then`` where the condition, of ``size`` parts, holds, else ``otherwise``."""
    top = _chosen(condition, size, then.top, otherwise.top)
    if then.bottom.term == otherwise.bottom.term:
        return Fraction(top, then.bottom)
    return Fraction(top, _chosen(condition, size, then.bottom, otherwise.bottom))


def related(relation: Relation, left: Fraction, right: Fraction) -> Predicate:
    """The comparison, multiplied crosswise; decided where the intervals decide it."""
    (first, second), _ = _common([left, right])
    known = _decided(relation, first, second)
    return compare(relation, first.term, second.term) if known is None else Truth(known)


def _decided(relation: Relation, left: Whole, right: Whole) -> bool | None:
    match relation:
        case Relation.LE:
            return True if left.high <= right.low else False if left.low > right.high else None
        case Relation.LT:
            return True if left.high < right.low else False if left.low >= right.high else None
        case Relation.GE:
            return _decided(Relation.LE, right, left)
        case Relation.GT:
            return _decided(Relation.LT, right, left)
        case Relation.EQ:
            return False if left.high < right.low or right.high < left.low else None
        case Relation.NE:
            equal = _decided(Relation.EQ, left, right)
            return None if equal is None else not equal
        case Relation.DIVIDES:
            raise ValueError("divisibility is written as a remainder of zero")
        case _:
            assert_never(relation)


def _common(values: list[Fraction]) -> tuple[list[Whole], Whole]:
    """The tops over one bottom for all."""
    if all(value.bottom is ONE for value in values):
        return [value.top for value in values], ONE
    bottoms = {value.bottom.term: value.bottom for value in values if value.bottom is not ONE}
    tops: list[Whole] = []
    for value in values:
        others = [b for term, b in bottoms.items() if term != value.bottom.term]
        tops.append(_product([value.top, *others]))
    return tops, _product(list(bottoms.values()))
