"""The values of nodes for many partial assignments at once.

At a level of the sweep every partial assignment (a row) is extended by every value of one
variable. What was known before has shape ``(rows, 1)``, the new variable ``(1, values)``; NumPy
broadcasts the rest, so that nothing is computed per extension that does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.nodes import Relation
from mapper.solver.diagram.expression import ASSOCIATIVE, Graph, Kind, Node

Array = NDArray[Any]
Value = Any  # an Array of shape (rows, 1), (1, values) or (rows, values), or a Python int
Bounds = tuple[Value, Value]

#: What a partial assignment must remember: a complete node, the complete part of an associative
#: node (its kind and operands), or that a constraint holds whatever follows.
Key = int | tuple[Kind, tuple[int, ...]] | tuple[str, int]

_COMBINE: dict[Kind, Callable[[Any, Any], Any]] = {
    Kind.SUM: np.add,
    Kind.PRODUCT: np.multiply,
    Kind.MAXIMUM: np.maximum,
    Kind.AND: np.logical_and,
    Kind.OR: np.logical_or,
}

_TRUTHS = frozenset({Kind.AND, Kind.OR})

COMPARISONS: dict[Relation, Callable[[Any, Any], Any]] = {
    Relation.EQ: np.equal,
    Relation.NE: np.not_equal,
    Relation.LE: np.less_equal,
    Relation.LT: np.less,
    Relation.GE: np.greater_equal,
    Relation.GT: np.greater,
}


def is_array(value: Value) -> TypeGuard[Array]:
    """Whether a value is a column and not one integer for all rows."""
    return isinstance(value, np.ndarray)


def choose(test: Value, then: Value, otherwise: Value) -> Value:
    """``then`` where the test holds, else ``otherwise``."""
    return cast("Value", np.where(test, then, otherwise))  # pyright: ignore[reportUnknownArgumentType]


def part_key(kind: Kind, children: tuple[int, ...]) -> Key | None:
    """The key of the complete part of an associative node."""
    if not children:
        return None
    return children[0] if len(children) == 1 else (kind, children)


class Level:
    """Values at one level, computed when asked for and once.

    ``values`` are those of the variable, of shape ``(1, values)`` or ``(rows, 1)``.
    """

    def __init__(
        self, graph: Graph, level: int, known: dict[Key, Array], values: Array, wide: bool
    ) -> None:
        self._nodes = graph.nodes
        self._level = level
        self._values = values
        self._wide = wide
        self._memo: dict[Key, Value] = dict(known)
        self._bounds: dict[int, Bounds] = {}

    def is_complete(self, node: Node) -> bool:
        """Whether all variables of a node have values."""
        return node.scope.bit_length() - 1 <= self._level

    def get(self, key: Key) -> Value:
        """The value of a key: a complete node or a complete part."""
        found = self._memo.get(key)
        if found is None:
            if isinstance(key, int):
                found = self._compute(self._nodes[key])
            else:
                kind, children = key
                assert isinstance(kind, Kind)
                found = self._part(kind, children)  # pyright: ignore[reportArgumentType]
            self._memo[key] = found
        return found

    def _part(self, kind: Kind, children: tuple[int, ...]) -> Value:
        """Operands of an associative operation that are complete, combined."""
        nodes, level = self._nodes, self._level
        older = tuple(c for c in children if nodes[c].scope.bit_length() <= level)
        rest = children
        total: Value = None
        key = part_key(kind, older) if len(older) < len(children) else None
        if key is not None and key in self._memo:
            total, rest = (
                self._memo[key],
                tuple(c for c in children if nodes[c].scope.bit_length() > level),
            )
        operation = _COMBINE[kind]
        for child in rest:
            value = self.get(child) if kind in _TRUTHS else self._operand(child)
            total = value if total is None else operation(total, value)
        return total

    def _operand(self, child: int) -> Value:
        return self._exact(self.get(child))

    def _exact(self, value: Value) -> Value:
        """A number or column to compute with: Python's integers where 64 bits may not do.

        A single integer becomes a column, too: NumPy would take it for one of 64 bits, of which
        it makes floating-point numbers beside unsigned ones, or an error.
        """
        if not self._wide:
            return value
        if is_array(value):
            return value if value.dtype == object else value.astype(object)
        return np.array([[value]], object)

    def _compute(self, node: Node) -> Value:
        match node.kind:
            case Kind.CONSTANT:
                return node.constant
            case Kind.VARIABLE:
                return self._values
            case Kind.LOOKUP:
                assert node.table is not None
                return node.table[self._values.astype(np.intp, copy=False)]
            case Kind.MEMBER:
                return self._member(node)
            case Kind.NOT:
                return np.logical_not(self.get(node.children[0]))
            case Kind.COMPARE:
                left, right = node.children
                found = COMPARISONS[node.relation](self._operand(left), self._operand(right))
                return found.astype(np.bool_, copy=False)
            case Kind.FLOOR_DIV:
                return self._divided(node, np.floor_divide, 0)
            case Kind.MODULO:
                return self._divided(node, np.remainder, None)
            case Kind.SELECT:
                test, then, otherwise = node.children
                return choose(self.get(test), self._operand(then), self._operand(otherwise))
            case _:
                return self._whole(node)

    def _member(self, node: Node) -> Value:
        value: Array = self.get(node.children[0])
        wanted = node.values
        if value.size <= 64:
            flat = [int(item) in wanted for item in value.ravel()]
            return np.array(flat, np.bool_).reshape(value.shape)
        return np.isin(value, list(wanted))

    def _whole(self, node: Node) -> Value:
        """A complete associative node: its operands and its folded constant."""
        key = part_key(node.kind, node.children)
        assert key is not None
        value = self._part(node.kind, node.children) if len(node.children) > 1 else self.get(key)
        if node.kind not in _TRUTHS:
            value = self._exact(value)
        match node.kind:
            case Kind.SUM:
                return value + node.constant if node.constant else value
            case Kind.PRODUCT:
                return value * node.constant if node.constant != 1 else value
            case Kind.MAXIMUM:
                return np.maximum(value, node.constant)
            case _:
                return value

    def _divided(self, node: Node, operation: Callable[..., Any], below: int | None) -> Value:
        """Total division: see the module of predicates."""
        top, bottom = (self._operand(child) for child in node.children)
        if self._nodes[node.children[1]].low >= 1 and not self._wide:
            return operation(top, bottom)
        # Where a constraint is settled its divisors may be 0, for which Python's integers raise.
        fits = np.greater_equal(bottom, 1).astype(np.bool_, copy=False)
        found = operation(top, np.where(fits, bottom, 1))
        return np.where(fits, found, top if below is None else below)

    def bounds(self, index: int) -> Bounds:
        """The least and the largest value a node can still have; truths are 0 and 1."""
        node = self._nodes[index]
        if node.kind is Kind.CONSTANT:
            return node.constant, node.constant
        if self.is_complete(node):
            value = self.get(index)
            return value, value
        if not node.scope & ((2 << self._level) - 1):
            return node.low, node.high
        found = self._bounds.get(index)
        if found is None:
            found = self._bounds[index] = self._open_bounds(node)
        return found

    def _exact_bounds(self, index: int) -> Bounds:
        low, high = self.bounds(index)
        return self._exact(low), self._exact(high)

    def _open_bounds(self, node: Node) -> Bounds:
        match node.kind:
            case Kind.NOT:
                low, high = self.bounds(node.children[0])
                return np.logical_not(high), np.logical_not(low)
            case Kind.COMPARE:
                left, right = node.children
                return _compared(node.relation, self.bounds(left), self.bounds(right))
            case Kind.SELECT:
                return self._selected(node)
            case Kind.FLOOR_DIV:
                top, bottom = (self._exact_bounds(child) for child in node.children)
                if (
                    self._nodes[node.children[1]].low >= 1
                    and self._nodes[node.children[0]].low >= 0
                ):
                    least, most = bottom
                    if self._wide:
                        least, most = np.maximum(least, 1), np.maximum(most, 1)
                    return np.floor_divide(top[0], most), np.floor_divide(top[1], least)
                return node.low, node.high
            case Kind.MODULO:
                return node.low, node.high
            case _ if node.kind in ASSOCIATIVE:
                return self._associative_bounds(node)
            case _:
                return node.low, node.high

    def _selected(self, node: Node) -> Bounds:
        test = self.bounds(node.children[0])
        then, otherwise = (self._exact_bounds(child) for child in node.children[1:])
        low: Value = np.minimum(then[0], otherwise[0])
        high: Value = np.maximum(then[1], otherwise[1])
        never = np.logical_not(test[1])
        low = choose(test[0], then[0], choose(never, otherwise[0], low))
        high = choose(test[0], then[1], choose(never, otherwise[1], high))
        return low, high

    def _associative_bounds(self, node: Node) -> Bounds:
        done = tuple(c for c in node.children if self.is_complete(self._nodes[c]))
        low: Value = None
        high: Value = None
        is_number = node.kind not in _TRUTHS
        key = part_key(node.kind, done)
        if key is not None:
            low = high = self._exact(self.get(key)) if is_number else self.get(key)
        if node.kind is not Kind.MAXIMUM or low is None:
            neutral = node.constant
            if low is None:
                low = high = neutral
            elif node.kind is Kind.SUM and neutral:
                low = high = low + neutral
            elif node.kind is Kind.PRODUCT and neutral != 1:
                low = high = low * neutral
        if is_number:
            low, high = self._exact(low), self._exact(high)
        operation = _COMBINE[node.kind]
        positive = (
            node.kind is Kind.PRODUCT
            and node.constant >= 0
            and all(self._nodes[c].low >= 0 for c in node.children)
        )
        for child in node.children:
            if self.is_complete(self._nodes[child]):
                continue
            least, most = self._exact_bounds(child) if is_number else self.bounds(child)
            if node.kind is not Kind.PRODUCT or positive:
                low, high = operation(low, least), operation(high, most)
                continue
            corners = [low * least, low * most, high * least, high * most]
            low = np.minimum(np.minimum(corners[0], corners[1]), np.minimum(corners[2], corners[3]))
            high = np.maximum(
                np.maximum(corners[0], corners[1]), np.maximum(corners[2], corners[3])
            )
        return low, high


def _compared(relation: Relation, left: Bounds, right: Bounds) -> Bounds:
    (a, b), (c, d) = left, right
    match relation:
        case Relation.LE:
            return np.less_equal(b, c), np.less_equal(a, d)
        case Relation.LT:
            return np.less(b, c), np.less(a, d)
        case Relation.GE:
            return np.greater_equal(a, d), np.greater_equal(b, c)
        case Relation.GT:
            return np.greater(a, d), np.greater(b, c)
        case _:
            apart = np.logical_or(np.less(b, c), np.less(d, a))
            same = np.logical_and(np.logical_and(np.equal(a, b), np.equal(c, d)), np.equal(a, c))
            if relation is Relation.EQ:
                return same, np.logical_not(apart)
            return apart, np.logical_not(same)
