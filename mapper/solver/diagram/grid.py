"""Predicates over all combinations of a few variables at once.

Every variable has an axis of its own, along which its values stand; whatever does not depend on
a variable has length 1 there, and NumPy broadcasts. So a constraint over three variables of
sixteen values is looked at 4,096 times, however many variables there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.evaluation import divide_bounds, modulo_bounds
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
    Product,
    Select,
    Sum,
    Truth,
    Variable,
)
from mapper.solver.diagram.columns import COMPARISONS, choose
from mapper.solver.diagram.expression import WIDE, compare_bounds

Array = NDArray[Any]

#: NumPy knows no more axes in older versions; beyond it groups are looked at apart.
MOST_AXES = 32
#: Combinations that one constraint may be looked at for.
MOST_COMBINATIONS = 1 << 16

# The values (one for all combinations, or an array), the variables they depend on as a bit
# mask, and the least and the largest of them; truths are 0 and 1.
Value = tuple[Any, int, int, int]
_NO_TERMS: Mapping[Variable, IntTerm] = MappingProxyType({})
_FALSE: Value = (False, 0, 0, 0)
_TRUE: Value = (True, 0, 1, 1)


class TooManyCombinationsError(Exception):
    """A predicate ties together too much to look at everything, or its numbers are too large."""


class Grid:
    """Axes for variables; ``places`` are theirs, ``fixed`` the variables that have one value, and
    ``terms`` give those that follow from others.

    ``parts`` counts the parts of predicates that were looked at.
    """

    def __init__(
        self,
        domains: Sequence[tuple[int, ...]],
        places: Mapping[Variable, int],
        fixed: Mapping[Variable, int],
        terms: Mapping[Variable, IntTerm] = _NO_TERMS,
    ) -> None:
        self.parts = 0
        self._terms = terms
        self._domains = domains
        self._places = places
        self._fixed = fixed
        # By identity: the hash of a variable is a call of its own. Predicates hold them.
        self._known: dict[int, Value] = {}
        self._fitting = {0}

    def truth(self, predicate: Any) -> tuple[Array | bool, int]:
        """Where a predicate holds, and on which variables that depends, as a bit mask.

        TooManyCombinationsError past :data:`MOST_COMBINATIONS`, or where 64 bits may not do.
        """
        value, scope, low, high = _LOOK[type(predicate)](self, predicate)
        return (bool(low), 0) if low == high else (value, scope)

    def _fit(self, scope: int) -> None:
        """Refuse too many combinations before they are made."""
        combinations, left = 1, scope
        while left:
            lowest = left & -left
            left ^= lowest
            combinations *= len(self._domains[lowest.bit_length() - 1])
        if combinations > MOST_COMBINATIONS:
            raise TooManyCombinationsError
        self._fitting.add(scope)

    def _pair(self, first: Any, second: Any) -> tuple[Value, Value, int]:
        self.parts += 2
        left, right = _LOOK[type(first)](self, first), _LOOK[type(second)](self, second)
        scope = left[1] | right[1]
        if scope not in self._fitting:
            self._fit(scope)
        return left, right, scope

    def _values(self, parts: Sequence[Any]) -> tuple[list[Value], int]:
        self.parts += len(parts)
        found = [_LOOK[type(part)](self, part) for part in parts]
        scope = 0
        for value in found:
            scope |= value[1]
        if scope not in self._fitting:
            self._fit(scope)
        return found, scope

    def variable(self, variable: Variable) -> Value:
        """A variable's values along its axis."""
        known = self._known.get(id(variable))
        if known is None:
            known = self._known[id(variable)] = self._found(variable)
        return known

    def _found(self, variable: Variable) -> Value:
        term = self._terms.get(variable)
        if term is not None:
            return _LOOK[type(term)](self, term)
        place = self._places.get(variable)
        if place is None:
            value = self._fixed[variable]
            if not -WIDE < value < WIDE:
                raise TooManyCombinationsError
            return value, 0, value, value
        domain = self._domains[place]
        low, high = min(domain), max(domain)
        if low <= -WIDE or high >= WIDE:
            raise TooManyCombinationsError
        return self._along(place, np.array(domain, np.int64)), 1 << place, low, high

    def _along(self, place: int, values: Array) -> Array:
        shape = [1] * len(self._domains)
        shape[place] = len(values)
        return values.reshape(shape)

    def _member(self, part: Member) -> Value:
        if part.variable in self._terms:
            value, scope, low, high = self.variable(part.variable)
            if low == high:
                return _TRUE if low in part.values else _FALSE
            return np.isin(value, list(part.values)), scope, 0, 1
        place = self._places.get(part.variable)
        if place is None:
            return _TRUE if self._fixed[part.variable] in part.values else _FALSE
        inside = [value in part.values for value in self._domains[place]]
        if all(inside):
            return _TRUE
        return (self._along(place, np.array(inside)), 1 << place, 0, 1) if any(inside) else _FALSE

    def _sum(self, part: Sum) -> Value:
        found, scope = self._values(part.terms)
        least, most, low, high = 0, 0, 0, 0
        for value in found:
            low += value[2]
            high += value[3]
            least += min(value[2], 0)
            most += max(value[3], 0)
        _refuse_wide(max(-least, most))
        total = found[0][0]
        for value in found[1:]:
            total = total + value[0]
        return _number(total, scope, low, high)

    def _product(self, part: Product) -> Value:
        found, scope = self._values(part.factors)
        result, _, low, high = found[0]
        largest = max(-low, high, 1)
        for _, _, least, most in found[1:]:
            largest *= max(-least, most, 1)
            corners = low * least, low * most, high * least, high * most
            low, high = min(corners), max(corners)
        _refuse_wide(largest)
        for value in found[1:]:
            result = result * value[0]
        return _number(result, scope, low, high)

    def _maximum(self, part: Maximum) -> Value:
        found, scope = self._values(part.terms)
        result, _, low, high = found[0]
        for value, _, least, most in found[1:]:
            result = np.maximum(result, value)
            low, high = max(low, least), max(high, most)
        return result, scope, low, high

    def _floor_div(self, part: FloorDiv) -> Value:
        top, bottom, scope = self._pair(part.numerator, part.denominator)
        low, high = divide_bounds(top[2:], bottom[2:])
        return self._divided(top, bottom, scope, low, high, False)

    def _modulo(self, part: Modulo) -> Value:
        top, bottom, scope = self._pair(part.numerator, part.denominator)
        low, high = modulo_bounds(top[2:], bottom[2:])
        return self._divided(top, bottom, scope, low, high, True)

    def _divided(
        self, top: Value, bottom: Value, scope: int, low: int, high: int, remains: bool
    ) -> Value:
        """Total division: see the module of predicates."""
        if low == high:
            return low, 0, low, low
        operation = np.remainder if remains else np.floor_divide
        if bottom[2] >= 1:
            return operation(top[0], bottom[0]), scope, low, high
        fits = np.greater_equal(bottom[0], 1)
        found = operation(top[0], np.where(fits, bottom[0], 1))
        return np.where(fits, found, top[0] if remains else 0), scope, low, high

    def _select(self, part: Select) -> Value:
        (test, then, otherwise), scope = self._values((part.condition, part.then, part.otherwise))
        if test[2] == test[3]:
            return then if test[2] else otherwise
        value = choose(test[0], then[0], otherwise[0])
        return value, scope, min(then[2], otherwise[2]), max(then[3], otherwise[3])

    def _compare(self, part: Compare) -> Value:
        left, right, scope = self._pair(part.left, part.right)
        low, high = compare_bounds(part.relation, left[2:], right[2:])
        if low == high:
            return _TRUE if low else _FALSE
        return COMPARISONS[part.relation](left[0], right[0]), scope, 0, 1

    def _not(self, part: Not) -> Value:
        (value,), scope = self._values((part.part,))
        if value[2] == value[3]:
            return _FALSE if value[2] else _TRUE
        return np.logical_not(value[0]), scope, 0, 1

    def _and(self, part: And) -> Value:
        return self._joined(part.parts, _FALSE, np.logical_and)

    def _or(self, part: Or) -> Value:
        return self._joined(part.parts, _TRUE, np.logical_or)

    def _joined(self, parts: Sequence[Any], decisive: Value, join: Callable[..., Any]) -> Value:
        found, scope = self._values(parts)
        open_values = [value for value in found if value[2] != value[3]]
        if any(value[2] == value[3] == decisive[2] for value in found):
            return decisive
        if not open_values:
            return _FALSE if decisive is _TRUE else _TRUE
        result = open_values[0][0]
        for value in open_values[1:]:
            result = join(result, value[0])
        return result, scope, 0, 1

    def constant(self, part: IntConst) -> Value:
        """An integer."""
        value = part.value
        if not -WIDE < value < WIDE:
            raise TooManyCombinationsError
        return value, 0, value, value

    def _decided(self, part: Truth) -> Value:
        return _TRUE if part.value else _FALSE

    LOOKS: ClassVar[dict[type, Callable[[Grid, Any], Value]]] = {
        IntConst: constant,
        CodeVariable: variable,
        ParameterVariable: variable,
        LocalSizeVariable: variable,
        Sum: _sum,
        Product: _product,
        Maximum: _maximum,
        FloorDiv: _floor_div,
        Modulo: _modulo,
        Select: _select,
        Compare: _compare,
        Member: _member,
        Not: _not,
        And: _and,
        Or: _or,
        Truth: _decided,
    }


_LOOK = Grid.LOOKS


def _refuse_wide(largest: int) -> None:
    """Refuse what 64 bits may not hold, before it is computed."""
    if largest >= WIDE:
        raise TooManyCombinationsError


def _number(value: Any, scope: int, low: int, high: int) -> Value:
    return (low, 0, low, low) if low == high else (value, scope, low, high)
