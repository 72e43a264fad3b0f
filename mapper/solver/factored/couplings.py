"""What constraints between groups still see of each: rows that look alike are one.

The largest parts of the couplings that speak of one group alone are its *visible terms*: the
accumulators of a tile's rows, the bytes of its columns. Rows of a table that agree in these are
one signature. The couplings are then a decision diagram over groups instead of variables
(:mod:`diagram.sweep`), each level a choice of a signature, with the visible terms looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from mapper.solver.diagram.expression import WIDE, Graph, Kind, Node
from mapper.solver.diagram.grouping import group_rows
from mapper.solver.diagram.row_values import values_of
from mapper.solver.factored.rewriting import Rewriter
from mapper.solver.factored.tables import Table
from mapper.solver.space import Domain

Array = NDArray[Any]
_ASSOCIATIVE = {Sum: add, Product: multiply, Maximum: maximum, And: all_of, Or: any_of}


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
    def ways(self) -> Array:
        """The number of rows of each signature."""
        return np.diff(self.starts)


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
        step = self._rewriter = Rewriter(self._seen, domains)
        # A definition is a term like others; a membership of its variable stays as it is.
        self.definitions = {name: step.term(term) for name, term in defined.items()}
        self.predicates = [step.predicate(predicate) for predicate in predicates]
        self.signatures = [self._signatures(k, table) for k, table in enumerate(tables)]

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
        build = _ASSOCIATIVE.get(type(part))
        if build is None:
            return None
        return self._by_group(part, build)

    def _by_group(self, part: Any, build: Any) -> Predicate | IntTerm | None:
        parts: tuple[Any, ...] = (
            part.terms if isinstance(part, Sum | Maximum)
            else part.factors if isinstance(part, Product) else part.parts
        )  # fmt: skip
        together: dict[int, list[Any]] = {}
        for inner in parts:
            together.setdefault(self.groups(inner), []).append(inner)
        if all(len(inner) == 1 for inner in together.values()):
            return None
        found: list[Any] = []
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

    def _signatures(self, place: int, table: Table) -> Signatures:
        parts = [part for part in self._visible if self.groups(part) == 1 << place]
        if not table.rows:
            nothing = np.zeros(0, np.int64)
            return Signatures(table, {}, nothing, np.zeros(1, np.int64))
        columns = [
            column.astype(np.int64) if column.dtype == np.bool_ else column
            for column in values_of(parts, self._domains, table.columns, table.rows)
        ]
        first, group = group_rows(columns, table.rows)
        order = np.argsort(group, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=len(first)))))
        terms: dict[Variable, Array] = {
            self._visible[part]: column[first] for part, column in zip(parts, columns, strict=True)
        }
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
