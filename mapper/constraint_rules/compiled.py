"""Predicates compiled to operations on columns, to check thousands of answers at once.

The meaning is that of ``evaluation.evaluate``, which tests hold this against. Equal parts are
computed once for a batch. Arithmetic is left to ``evaluate``, row by row: it is exact there,
whatever the size of the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.nodes import Relation
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
    variables,
)

Row = tuple[int, ...]
Truths = NDArray[np.bool_]
# An operation computes its truths from the rows and the truths of earlier operations.
Operation = Callable[["_Batch"], Truths]


class _Batch:
    """Rows of values, their columns, and what was computed of them so far."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.columns = np.array(rows, dtype=np.int64).T
        self.truths: list[Truths] = []


class CompiledPredicates:
    """All predicates at once, over values in the order of ``order``."""

    def __init__(self, predicates: Sequence[Predicate], order: Sequence[Variable]) -> None:
        self._positions = {variable: position for position, variable in enumerate(order)}
        self._operations: list[Operation] = []
        self._slots: dict[Predicate, int] = {}
        self._wanted = sorted({self._slot(predicate) for predicate in predicates})

    def all_hold(self, rows: Sequence[Row]) -> bool:
        """Whether every predicate holds for every row."""
        if not rows:
            return True
        batch = _Batch(rows)
        for operation in self._operations:
            batch.truths.append(operation(batch))
        return all(bool(batch.truths[slot].all()) for slot in self._wanted)

    def _slot(self, predicate: Predicate) -> int:
        known = self._slots.get(predicate)
        if known is None:
            operation = self._operation(predicate)
            known = self._slots[predicate] = len(self._operations)
            self._operations.append(operation)
        return known

    def _operation(self, predicate: Predicate) -> Operation:
        match predicate:
            case Truth(value):
                return lambda batch: np.full(len(batch.rows), value, dtype=np.bool_)
            case Member(variable, values):
                return _member(self._positions[variable], values)
            case Not(part):
                inner = self._slot(part)
                return lambda batch: ~batch.truths[inner]
            case And(parts):
                return _joined(np.logical_and, [self._slot(part) for part in parts])
            case Or(parts):
                return _joined(np.logical_or, [self._slot(part) for part in parts])
            case Compare():
                return self._comparison(predicate)
            case _:
                assert_never(predicate)

    def _comparison(self, predicate: Compare) -> Operation:
        left, right = predicate.left, predicate.right
        if isinstance(left, Variable) and isinstance(right, Variable):
            first, second = self._positions[left], self._positions[right]
            if predicate.relation is Relation.EQ:
                return lambda batch: batch.columns[first] == batch.columns[second]
            if predicate.relation is Relation.NE:
                return lambda batch: batch.columns[first] != batch.columns[second]
        names = sorted(variables(predicate), key=self._positions.__getitem__)
        positions = [self._positions[name] for name in names]

        def compared(batch: _Batch) -> Truths:
            # Rows that were found one after the other often agree in these values.
            known: dict[Row, bool] = {}
            found: list[bool] = []
            for row in batch.rows:
                values = tuple(row[position] for position in positions)
                if values not in known:
                    known[values] = evaluate(predicate, dict(zip(names, values, strict=True)))
                found.append(known[values])
            return np.array(found, dtype=np.bool_)

        return compared


def _member(position: int, values: frozenset[int]) -> Operation:
    one, *others = sorted(values)

    def member(batch: _Batch) -> Truths:
        column = batch.columns[position]
        found: Truths = column == one
        for value in others:
            found |= column == value
        return found

    return member


def _joined(join: np.ufunc, slots: list[int]) -> Operation:
    first, *others = slots

    def joined(batch: _Batch) -> Truths:
        found = batch.truths[first].copy()
        for slot in others:
            join(found, batch.truths[slot], out=found)
        return found

    return joined
