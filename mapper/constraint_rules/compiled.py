"""Predicates compiled to closures, to check tens of thousands of answers a second or so.

The meaning is that of ``evaluation.evaluate``, which tests hold this against. Parts that occur
more than once are computed once for each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import (
    And,
    Compare,
    Member,
    Not,
    Or,
    Predicate,
    Truth,
    Variable,
)

Row = tuple[int, ...]
Test = Callable[[Row], bool]


class _Compiler:
    def __init__(self, order: Sequence[Variable]) -> None:
        self.order = tuple(order)
        self.positions = {variable: position for position, variable in enumerate(order)}
        self.known: dict[Predicate, Test] = {}

    def test(self, predicate: Predicate) -> Test:
        found = self.known.get(predicate)
        if found is None:
            found = self.known[predicate] = self._compile(predicate)
        return found

    def _compile(self, predicate: Predicate) -> Test:
        match predicate:
            case Truth(value):
                return lambda row: value
            case Member(variable, values):
                position = self.positions[variable]
                return lambda row: row[position] in values
            case Not(part):
                inner = self.test(part)
                return lambda row: not inner(row)
            case And(parts):
                return _remembered(_every([self.test(part) for part in parts]))
            case Or(parts):
                members = [part for part in parts if isinstance(part, Member)]
                if len(members) == len(parts):
                    return _remembered(
                        _some_member(
                            [(self.positions[part.variable], part.values) for part in members]
                        )
                    )
                return _remembered(_some([self.test(part) for part in parts]))
            case Compare():
                return self._comparison(predicate)
            case _:
                assert_never(predicate)

    def _comparison(self, predicate: Compare) -> Test:
        order = self.order

        def compared(row: Row) -> bool:
            return evaluate(predicate, dict(zip(order, row, strict=True)))

        left, right = predicate.left, predicate.right
        if isinstance(left, Variable) and isinstance(right, Variable):
            first, second = self.positions[left], self.positions[right]
            match predicate.relation.value:
                case "==":
                    return lambda row: row[first] == row[second]
                case "!=":
                    return lambda row: row[first] != row[second]
                case _:
                    pass
        return compared


def _every(tests: list[Test]) -> Test:
    def every(row: Row) -> bool:
        for test in tests:  # noqa: SIM110 - a generator would cost half of the time
            if not test(row):
                return False
        return True

    return every


def _some(tests: list[Test]) -> Test:
    def some(row: Row) -> bool:
        for test in tests:  # noqa: SIM110 - as above
            if test(row):
                return True
        return False

    return some


def _some_member(members: list[tuple[int, frozenset[int]]]) -> Test:
    def some(row: Row) -> bool:
        for position, values in members:  # noqa: SIM110 - as above
            if row[position] in values:
                return True
        return False

    return some


def _remembered(test: Test) -> Test:
    """The last row's answer is kept; rows are compared by identity."""
    last_row: Row | None = None
    last_answer = False

    def remembered(row: Row) -> bool:
        nonlocal last_row, last_answer
        if row is not last_row:
            last_answer = test(row)
            last_row = row
        return last_answer

    return remembered


def compile_all(predicates: Sequence[Predicate], order: Sequence[Variable]) -> Test:
    """A test of whether all predicates hold for values in the order of the variables."""
    compiler = _Compiler(order)
    return _every([compiler.test(predicate) for predicate in predicates])
