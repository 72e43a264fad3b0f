"""Constraints as a graph of shared nodes over variables in one fixed order.

A node knows its scope (the positions of its variables as a bit mask), so that a sweep knows
when it is complete, and static bounds from the domains. Associative nodes (sum, product,
maximum, and, or) can be computed part by part as their operands become complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, assert_never

from numpy.typing import NDArray

from mapper.ast_model.nodes import Relation
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
    Predicate,
    Product,
    Select,
    Sum,
    Truth,
    Variable,
)

Domains = Sequence[Sequence[int]]
#: Beyond this, a value might not fit in 64 bits and is computed with Python's integers.
WIDE = 1 << 62


class Kind(IntEnum):
    """What a node computes."""

    CONSTANT = 0
    VARIABLE = 1
    SUM = 2
    PRODUCT = 3
    MAXIMUM = 4
    AND = 5
    OR = 6
    NOT = 7
    MEMBER = 8
    COMPARE = 9
    FLOOR_DIV = 10
    MODULO = 11
    SELECT = 12
    LOOKUP = 13


ASSOCIATIVE = frozenset({Kind.SUM, Kind.PRODUCT, Kind.MAXIMUM, Kind.AND, Kind.OR})


@dataclass(slots=True)
class Node:
    """One operation. ``low`` and ``high`` bound its value; truths are 0 and 1.

    ``constant`` is the value of a constant, the neutral or folded operand of an associative
    node, or the position of a variable; ``wide`` says that 64 bits may not hold its parts.
    ``table`` has what is looked up for each value of the variable at its only level.
    """

    kind: Kind
    children: tuple[int, ...]
    scope: int
    low: int
    high: int
    constant: int = 0
    wide: bool = False
    values: frozenset[int] = frozenset()
    relation: Relation = Relation.EQ
    table: NDArray[Any] | None = None


_NEUTRAL = {Kind.SUM: 0, Kind.PRODUCT: 1, Kind.AND: 1, Kind.OR: 0}


class Graph:
    """Nodes of all constraints; equal parts are one node."""

    def __init__(self, domains: dict[Variable, tuple[int, ...]], order: Sequence[Variable]) -> None:
        self.nodes: list[Node] = []
        self.order = tuple(order)
        self._domains = domains
        self._positions = {variable: position for position, variable in enumerate(order)}
        self._ids: dict[Predicate | IntTerm, int] = {}
        self._constants: dict[int, int] = {}
        self._allowed: dict[Variable, frozenset[int]] = {}

    def enter(self, part: Predicate | IntTerm) -> int:
        """The node of a predicate or term."""
        known = self._ids.get(part)
        if known is None:
            known = self._ids[part] = self._enter(part)
        return known

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def constant(self, value: int) -> int:
        """The node of an integer, or of a truth as 0 or 1."""
        known = self._constants.get(value)
        if known is None:
            node = Node(Kind.CONSTANT, (), 0, value, value, value, abs(value) >= WIDE)
            known = self._constants[value] = self._add(node)
        return known

    def reorder(self, order: Sequence[Variable]) -> None:
        """Put the variables in another order; constants need not be in it."""
        places = {variable: place for place, variable in enumerate(order)}
        for node in self.nodes:
            # Operands were entered before what uses them.
            if node.kind is Kind.VARIABLE:
                node.constant = places[self.order[node.constant]]
                node.scope = 1 << node.constant
                continue
            node.scope = 0
            for child in node.children:
                node.scope |= self.nodes[child].scope
        self.order = tuple(order)
        self._positions = places

    def _enter(self, part: Predicate | IntTerm) -> int:
        match part:
            case IntConst(value):
                return self.constant(value)
            case Truth(value):
                return self.constant(int(value))
            case CodeVariable() | ParameterVariable() | LocalSizeVariable():
                return self._variable(part)
            case Sum(terms):
                return self._associative(Kind.SUM, terms)
            case Product(factors):
                return self._associative(Kind.PRODUCT, factors)
            case Maximum(terms):
                return self._associative(Kind.MAXIMUM, terms)
            case And(parts):
                return self._associative(Kind.AND, parts)
            case Or(parts):
                return self._associative(Kind.OR, parts)
            case Not(inner):
                return self._not(self.enter(inner))
            case Member(variable, values):
                return self._member(self.enter(variable), values)
            case Compare(relation, left, right):
                return self._compare(relation, self.enter(left), self.enter(right))
            case FloorDiv(top, bottom):
                return self._divide(Kind.FLOOR_DIV, self.enter(top), self.enter(bottom))
            case Modulo(top, bottom):
                return self._divide(Kind.MODULO, self.enter(top), self.enter(bottom))
            case Select(condition, then, otherwise):
                return self._select(self.enter(condition), self.enter(then), self.enter(otherwise))
            case _:
                assert_never(part)

    def _variable(self, variable: Variable) -> int:
        domain = self._domains[variable]
        if len(domain) == 1:
            return self.constant(domain[0])
        position = self._positions[variable]
        low, high = min(domain), max(domain)
        wide = max(abs(low), abs(high)) >= WIDE
        return self._add(Node(Kind.VARIABLE, (), 1 << position, low, high, position, wide))

    def _associative(self, kind: Kind, parts: Sequence[Predicate | IntTerm]) -> int:
        children: list[int] = []
        folded = _NEUTRAL.get(kind)
        for child in map(self.enter, parts):
            node = self.nodes[child]
            if node.low != node.high:
                children.append(child)
            elif folded is None:
                folded = node.low
            else:
                folded = combine(kind, folded, node.low)
        if kind in (Kind.AND, Kind.OR):
            if folded != _NEUTRAL[kind]:
                return self.constant(int(kind is Kind.OR))
            children = list(dict.fromkeys(children))
        if kind is Kind.PRODUCT and folded == 0:
            return self.constant(0)
        if not children:
            assert folded is not None
            return self.constant(folded)
        if len(children) == 1 and (folded is None or folded == _NEUTRAL.get(kind)):
            return children[0]
        return self._add(self._associative_node(kind, tuple(children), folded))

    def _associative_node(self, kind: Kind, children: tuple[int, ...], folded: int | None) -> Node:
        scope, wide = 0, False
        bounds: tuple[int, int] | None = None if folded is None else (folded, folded)
        largest = abs(folded) if folded is not None else 0
        for child in children:
            node = self.nodes[child]
            scope |= node.scope
            wide = wide or node.wide
            size = max(abs(node.low), abs(node.high), 1)
            largest = max(largest, 1) * size if kind is Kind.PRODUCT else largest + size
            own = (node.low, node.high)
            bounds = own if bounds is None else _join(kind, bounds, own)
        assert bounds is not None
        constant = folded if folded is not None else min(self.nodes[c].low for c in children)
        wide = wide or largest >= WIDE
        return Node(kind, children, scope, bounds[0], bounds[1], constant, wide)

    def _not(self, child: int) -> int:
        node = self.nodes[child]
        if node.low == node.high:
            return self.constant(1 - node.low)
        return self._add(Node(Kind.NOT, (child,), node.scope, 0, 1))

    def _member(self, child: int, values: frozenset[int]) -> int:
        node = self.nodes[child]
        if node.kind is Kind.CONSTANT:
            return self.constant(int(node.constant in values))
        variable = self.order[node.constant]
        domain = self._allowed.get(variable)
        if domain is None:
            domain = self._allowed[variable] = frozenset(self._domains[variable])
        inside = len(domain & values)
        if inside in (0, len(domain)):
            return self.constant(int(inside > 0))
        return self._add(Node(Kind.MEMBER, (child,), node.scope, 0, 1, values=values))

    def _compare(self, relation: Relation, left: int, right: int) -> int:
        first, second = self.nodes[left], self.nodes[right]
        low, high = compare_bounds(relation, (first.low, first.high), (second.low, second.high))
        if low == high:
            return self.constant(low)
        scope = first.scope | second.scope
        wide = first.wide or second.wide
        return self._add(
            Node(Kind.COMPARE, (left, right), scope, 0, 1, wide=wide, relation=relation)
        )

    def _divide(self, kind: Kind, top: int, bottom: int) -> int:
        first, second = self.nodes[top], self.nodes[bottom]
        bounds = divide_bounds if kind is Kind.FLOOR_DIV else modulo_bounds
        low, high = bounds((first.low, first.high), (second.low, second.high))
        scope = first.scope | second.scope
        if low == high:
            return self.constant(low)
        wide = first.wide or second.wide
        return self._add(Node(kind, (top, bottom), scope, low, high, wide=wide))

    def _select(self, condition: int, then: int, otherwise: int) -> int:
        test, first, second = (self.nodes[part] for part in (condition, then, otherwise))
        if test.low == test.high:
            return then if test.low else otherwise
        low, high = min(first.low, second.low), max(first.high, second.high)
        scope = test.scope | first.scope | second.scope
        wide = first.wide or second.wide
        return self._add(
            Node(Kind.SELECT, (condition, then, otherwise), scope, low, high, wide=wide)
        )


def combine(kind: Kind, left: int, right: int) -> int:
    """Two operands of an associative operation."""
    match kind:
        case Kind.SUM:
            return left + right
        case Kind.PRODUCT:
            return left * right
        case Kind.MAXIMUM:
            return max(left, right)
        case Kind.AND:
            return left & right
        case Kind.OR:
            return left | right
        case _:
            raise AssertionError(kind)


def _join(kind: Kind, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    if kind is Kind.PRODUCT:
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    return combine(kind, left[0], right[0]), combine(kind, left[1], right[1])


def compare_bounds(
    relation: Relation, left: tuple[int, int], right: tuple[int, int]
) -> tuple[int, int]:
    """Whether a comparison of intervals certainly holds, and whether it can hold."""
    (a, b), (c, d) = left, right
    match relation:
        case Relation.LE:
            return int(b <= c), int(a <= d)
        case Relation.LT:
            return int(b < c), int(a < d)
        case Relation.GE:
            return int(a >= d), int(b >= c)
        case Relation.GT:
            return int(a > d), int(b > c)
        case Relation.EQ:
            return int(a == b == c == d), int(a <= d and c <= b)
        case Relation.NE:
            return int(b < c or d < a), int(not a == b == c == d)
        case Relation.DIVIDES:
            raise AssertionError("predicates have no such comparison")
