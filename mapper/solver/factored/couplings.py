"""What constraints between groups still see of each: rows that look alike are one.

The largest parts of the couplings that speak of one group alone are its *visible terms*: the
accumulators of a tile's rows, the bytes of its columns. Rows of a table that agree in these are
one signature. The couplings are then a decision diagram over groups instead of variables
(:mod:`diagram.sweep`), each level a choice of a signature, with the visible terms looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.evaluation import evaluate_partial
from mapper.constraint_rules.predicate import (
    And,
    IntTerm,
    Maximum,
    Member,
    Or,
    ParameterVariable,
    Predicate,
    Product,
    Sum,
    Variable,
    add,
    all_of,
    any_of,
    maximum,
    multiply,
    variables,
)
from mapper.constraint_rules.rewriting import Rewriter
from mapper.solver.diagram.expression import WIDE, Graph, Kind, Node
from mapper.solver.diagram.grouping import group_rows
from mapper.solver.diagram.row_values import values_of
from mapper.solver.factored.tables import Table
from mapper.solver.space import Domain

Array = NDArray[Any]
Part = TypeVar("Part", Predicate, IntTerm)


@dataclass(frozen=True, slots=True)
class Signatures:
    """The rows of a table by what couplings see of them.

    ``terms`` has a column for each visible term, one entry a signature; ``order`` are the
    table's rows signature by signature, ``starts`` where each begins, and an end.
    """

    table: Table
    terms: Mapping[Variable, Array]
    order: Array
    starts: Array

    @property
    def number(self) -> int:
        """The number of signatures."""
        return len(self.starts) - 1

    def ways(self, row_ways: Array) -> Array:
        """The solutions that each signature counts for, if rows count for these."""
        if not self.number:
            return np.zeros(0, np.int64)
        return np.add.reduceat(row_ways[self.order], self.starts[:-1])


class Couplings:
    """Predicates over several tables, said of visible terms."""

    def __init__(
        self,
        tables: Sequence[Table],
        predicates: Sequence[Predicate],
        defined: Mapping[Variable, IntTerm],
        domains: Mapping[Variable, Domain],
    ) -> None:
        self._place = {name: k for k, table in enumerate(tables) for name in table.columns}
        self._defined = defined
        self._domains = domains
        self._groups_of: dict[Predicate | IntTerm, int] = {}
        self._visible: dict[Predicate | IntTerm, ParameterVariable] = {}
        step = self._rewriter = Rewriter(self._seen)
        # A definition is a term like others; a membership of its variable stays as it is.
        self.definitions = {name: step.term(term) for name, term in defined.items()}
        said = [step.predicate(predicate) for predicate in predicates]
        self._terms = self._values(tables)
        values = {
            name: tuple(dict.fromkeys(column.tolist())) or (0,)
            for columns in self._terms
            for name, column in columns.items()
        }
        # What holds whatever is chosen need not be seen.
        self.predicates = [
            p
            for p in said
            if not variables(p).isdisjoint(defined) or evaluate_partial(p, {}, values) is not True
        ]
        seen = variables(*self.predicates, *self.definitions.values())
        self.signatures = [
            _signatures(table, {name: c for name, c in columns.items() if name in seen})
            for table, columns in zip(tables, self._terms, strict=True)
        ]

    def groups(self, part: Predicate | IntTerm) -> int:
        """The tables that a part depends on, as a bit mask."""
        known = self._groups_of.get(part)
        if known is None:
            known = 0
            for name in variables(part):
                if name in self._defined:
                    known |= self.groups(self._defined[name])
                else:
                    known |= 1 << self._place[name]
            self._groups_of[part] = known
        return known

    def _seen(self, part: Predicate | IntTerm) -> Predicate | IntTerm | None:
        """A part of one group alone becomes a variable; of an associative one, what is of each."""
        names = variables(part)
        if not names or not names.isdisjoint(self._defined):
            return None
        mask = self.groups(part)
        if not mask & (mask - 1):
            return self._shown(part)
        match part:
            case Sum(terms):
                return self._by_group(terms, add)
            case Product(factors):
                return self._by_group(factors, multiply)
            case Maximum(terms):
                return self._by_group(terms, maximum)
            case And(parts):
                return self._by_group(parts, all_of)
            case Or(parts):
                return self._by_group(parts, any_of)
            case _:
                return None

    def _by_group(
        self, parts: Sequence[Part], build: Callable[..., Predicate | IntTerm]
    ) -> Predicate | IntTerm | None:
        """Operands of one group joined; None where each is of another."""
        together: dict[int, list[Part]] = {}
        for inner in parts:
            together.setdefault(self.groups(inner), []).append(inner)
        if all(len(inner) == 1 for inner in together.values()):
            return None
        found: list[Predicate | IntTerm] = []
        for mask, inner in together.items():
            if mask & (mask - 1) or not mask:
                found += [self._rewriter.part(item) for item in inner]
            else:
                found.append(self._shown(build(*inner)))
        return build(*found)

    def _shown(self, part: Predicate | IntTerm) -> Predicate | IntTerm:
        variable = self._visible.get(part)
        if variable is None:
            variable = self._visible[part] = ParameterVariable(f"\0{len(self._visible)}")
        if isinstance(part, Predicate):
            return Member(variable, frozenset({1}))
        return variable

    def _values(self, tables: Sequence[Table]) -> list[dict[Variable, Array]]:
        """For each table the visible terms of its rows."""
        found: list[dict[Variable, Array]] = []
        for place, table in enumerate(tables):
            parts = [part for part in self._visible if self.groups(part) == 1 << place]
            columns = values_of(parts, self._domains, table.columns, table.rows)
            found.append(
                {
                    self._visible[part]: column.astype(np.int64)
                    if column.dtype == np.bool_
                    else column
                    for part, column in zip(parts, columns, strict=True)
                }
            )
        return found


def _signatures(table: Table, columns: Mapping[Variable, Array]) -> Signatures:
    if not table.rows:
        return Signatures(table, {}, np.zeros(0, np.int64), np.zeros(1, np.int64))
    first, group = group_rows(list(columns.values()), table.rows)
    order = np.argsort(group, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=len(first)))))
    terms = {name: column[first] for name, column in columns.items()}
    return Signatures(table, terms, order, starts)


class SignatureGraph(Graph):
    """A graph whose variables are looked up by the signature of their group.

    ``levels`` are the groups in the order in which they are decided.
    """

    def __init__(self, levels: Sequence[Signatures], defined: Mapping[Variable, IntTerm]) -> None:
        super().__init__({}, [ParameterVariable(f"\0{k}") for k in range(len(levels))])
        self._columns = {
            name: (level, column)
            for level, signatures in enumerate(levels)
            for name, column in signatures.terms.items()
        }
        self._defined = defined

    def _variable(self, variable: Variable) -> int:
        term = self._defined.get(variable)
        if term is not None:
            return self.enter(term)
        level, column = self._columns[variable]
        low, high = int(column.min()), int(column.max())
        if low == high:
            return self.constant(low)
        wide = max(abs(low), abs(high)) >= WIDE
        node = Node(Kind.LOOKUP, (), 1 << level, low, high, wide=wide, table=column)
        return self._add(node)

    def _member(self, child: int, values: frozenset[int]) -> int:
        node = self.nodes[child]
        inside = [value for value in values if node.low <= value <= node.high]
        if not inside:
            return self.constant(0)
        if node.low == node.high:
            return self.constant(1)
        return self._add(Node(Kind.MEMBER, (child,), node.scope, 0, 1, values=frozenset(inside)))
