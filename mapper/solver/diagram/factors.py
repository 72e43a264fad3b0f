"""The solutions of a space as a product of independent factors.

Variables that no constraint ties together, directly or through others, are chosen freely of one
another: counts multiply, all solutions are all combinations, and the number of a solution is
taken apart into the numbers of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.errors import LimitError, Problem
from mapper.solver.diagram.elimination import Elimination
from mapper.solver.diagram.layers import (
    Diagram,
    SolutionTable,
    as_array,
    distinct_ranks_below,
    ranks_below,
)
from mapper.solver.limits import Watch

Array = NDArray[Any]
_SMALL = 1 << 62


class Factor(Protocol):
    """The solutions of some variables, in an order of its own, from number 0 on."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def columns(self, watch: Watch) -> dict[Variable, Array]:
        """All of them: a column of values for each variable."""
        ...

    def at_ranks(self, ranks: Array) -> dict[Variable, Array]:
        """Those with these numbers; ``ranks`` are Python's integers where counts are large."""
        ...


class FreeFactor:
    """A variable that may have all its values."""

    def __init__(self, variable: Variable, domain: tuple[int, ...]) -> None:
        self._variable = variable
        self._domain = domain
        self.count = len(domain)

    def columns(self, watch: Watch) -> dict[Variable, Array]:
        """See :class:`Factor`."""
        return {self._variable: as_array(self._domain)}

    def at_ranks(self, ranks: Array) -> dict[Variable, Array]:
        """See :class:`Factor`."""
        return {self._variable: as_array(self._domain)[ranks]}


#: What makes a space empty.
NO_SOLUTION = FreeFactor(ParameterVariable(""), ())


class EliminatedFactor:
    """Variables of a grid; ``names`` and ``domains`` are those of all its axes."""

    def __init__(
        self,
        elimination: Elimination,
        names: Sequence[Variable],
        domains: Sequence[tuple[int, ...]],
    ) -> None:
        self._elimination = elimination
        self._names = names
        self._domains = domains
        self.count = elimination.count

    def columns(self, watch: Watch) -> dict[Variable, Array]:
        """See :class:`Factor`."""
        watch.tick()
        return self._values(self._elimination.positions())

    def at_ranks(self, ranks: Array) -> dict[Variable, Array]:
        """See :class:`Factor`."""
        return self._values(self._elimination.at_ranks(ranks))

    def _values(self, positions: Mapping[int, Array]) -> dict[Variable, Array]:
        return {
            self._names[place]: as_array(self._domains[place])[column]
            for place, column in positions.items()
        }


class DiagramFactor:
    """Variables whose solutions are the paths of a diagram."""

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram
        self.count = diagram.count

    def columns(self, watch: Watch) -> dict[Variable, Array]:
        """See :class:`Factor`."""
        return self._named(self.diagram.table(watch))

    def at_ranks(self, ranks: Array) -> dict[Variable, Array]:
        """See :class:`Factor`."""
        return self._named(self.diagram.at_ranks(ranks.tolist()))

    @staticmethod
    def _named(table: SolutionTable) -> dict[Variable, Array]:
        return dict(zip(table.variables, table.columns, strict=True))


class Factors:
    """All solutions of a space.

    ``variables`` are all of its variables in its order, ``fixed`` those that no factor has.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        variables: Sequence[Variable],
        fixed: Mapping[Variable, int],
    ) -> None:
        # The longest last: then all solutions are long runs in memory.
        self.factors = tuple(sorted(factors, key=_count))
        self.variables = tuple(variables)
        self.fixed = fixed
        self.count = prod(factor.count for factor in factors)

    def table(self, watch: Watch | None = None) -> SolutionTable:
        """Every solution; LimitError if there are more than the limits allow."""
        watch = watch or Watch()
        allowed, count = watch.limits.solutions, self.count
        if allowed is not None and count > allowed:
            raise LimitError(
                Problem("", "there are too many solutions to list", str(count), f"{allowed}",
                        "pin or forbid values, or sample")
            )  # fmt: skip
        watch.refuse_beyond(count * 8 * len(self.variables), "the table of solutions")
        before, behind = 1, count
        parts: dict[Variable, tuple[int, Array]] = {}
        if count:
            for factor in self.factors:
                behind //= factor.count
                for name, column in factor.columns(watch).items():
                    parts[name] = before, column
                before *= factor.count
        columns: list[Array] = []
        for variable in self.variables:
            watch.tick()
            columns.append(self._spread(variable, parts.get(variable), count))
        return SolutionTable(self.variables, tuple(columns), count)

    def _spread(self, variable: Variable, part: tuple[int, Array] | None, count: int) -> Array:
        """A column of a factor, repeated for all that is chosen before and behind it."""
        if part is None:
            return np.full(count, self.fixed.get(variable, 0))
        before, column = part
        if len(column) == count:
            return column
        found = np.empty(count, column.dtype)
        found.reshape(before, len(column), -1)[:] = column[:, None]
        return found

    def sample(self, number: int, seed: int) -> SolutionTable:
        """``number`` solutions drawn uniformly and independently, the same for one seed.

        The table is empty if there are no solutions.
        """
        return self.at_ranks(ranks_below(self.count, number, Random(seed)))

    def sample_distinct(self, number: int, seed: int) -> SolutionTable:
        """``number`` different solutions, every choice of that many equally likely, or all."""
        return self.at_ranks(distinct_ranks_below(self.count, number, Random(seed)))

    def at_ranks(self, ranks: Sequence[int]) -> SolutionTable:
        """The solutions with these numbers, from 0 below ``count``, in the order of
        :meth:`table`."""
        rows = len(ranks)
        chosen: dict[Variable, Array] = {}
        if rows:
            left: Array = np.array(ranks, np.int64 if self.count < _SMALL else object)
            for factor in reversed(self.factors):
                own = left % factor.count
                left = left // factor.count
                chosen |= factor.at_ranks(own if factor.count >= _SMALL else own.astype(np.int64))
        columns = (
            chosen[variable] if variable in chosen
            else np.full(rows, self.fixed.get(variable, 0))
            for variable in self.variables
        )  # fmt: skip
        return SolutionTable(self.variables, tuple(columns), rows)


def _count(factor: Factor) -> int:
    return factor.count
