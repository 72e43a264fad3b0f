"""Candidates as numbers for a model: what was chosen, and what the constraints speak of.

Sizes matter by their ratios, so they are taken as logarithms. The terms of the constraints
(threads of a work-group, elements of a tile with its halo, remainders) are what the author of a
space found worth limiting, and so what its time is likely to depend on. Codes become what they
do: a level, a dimension and a vector width each. Further columns may be given by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import (
    CodeVariable,
    FloorDiv,
    IntTerm,
    Modulo,
    Predicate,
    Product,
    Sum,
    Variable,
    subterms,
    variables,
)
from mapper.schedule import ScheduleCode
from mapper.search.candidates import Choices
from mapper.solver.diagram.row_values import values_of
from mapper.solver.space import Domain, Space

#: Of a variable with at most so many values each has a column too: what is said of it need not
#: go with its size.
MAX_VALUES = 8
#: At most so many columns come from terms: what few constraints say, not every product of many.
MAX_TERMS = 24

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the columns: of ``sizes`` and terms, what the caller said (``known``), and of single
    ``values``."""

    sizes: bool = True
    known: bool = True
    values: bool = False


class Features:
    """Columns of a space's candidates, by :meth:`of`."""

    def __init__(
        self,
        entries: Sequence[tuple[Variable, Domain]],
        space: Space | None = None,
    ) -> None:
        self._entries = tuple(entries)
        self._terms = () if space is None else _terms(space, self._entries)
        self._scaling: tuple[NDArray[np.intp], Floats, Floats] | None = None
        # Of the columns: of sizes and terms, the caller's, of single values, in this order.
        self._counts = 0, 0, 0

    def places(self, part: Part) -> NDArray[np.intp]:
        """Which of the columns are of a part."""
        wanted = np.repeat([part.sizes, part.known, part.values], self._counts)
        return np.flatnonzero(wanted)

    def of(self, rows: Choices, further: Floats | None = None) -> Floats:
        """Columns of candidates, n x features, each about 0 with deviation 1.

        ``further`` are columns of the caller's (n x k, the same k each time). The first call
        sets the scale of each column, and drops those that are constant in it.
        """
        raw = self._raw(rows)
        own = raw.shape[1]
        if further is not None:
            raw = np.hstack([raw, further])
        sizes = raw.shape[1]
        raw = np.hstack([raw, self._of_values(rows)])
        if self._scaling is None:
            deviation = raw.std(axis=0)
            kept = np.flatnonzero(deviation > 1e-9)
            self._scaling = kept, raw.mean(axis=0)[kept], deviation[kept]
            first, last = np.searchsorted(kept, (own, sizes)).tolist()
            self._counts = first, last - first, len(kept) - last
        kept, mean, deviation = self._scaling
        return (raw[:, kept] - mean) / deviation

    def _of_values(self, rows: Choices) -> Floats:
        columns = [
            (rows[:, place] == value).astype(np.float64)
            for place, (variable, domain) in enumerate(self._entries)
            if 2 < len(domain) <= MAX_VALUES
            and not isinstance(variable, CodeVariable)
            and not _labelled(variable)
            for value in domain
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))

    def _raw(self, rows: Choices) -> Floats:
        columns: list[Floats] = []
        for place, (variable, domain) in enumerate(self._entries):
            if len(domain) > 1:
                columns += _of_variable(variable, domain, rows[:, place])
        if self._terms:
            names = {name for term in self._terms for name in variables(term)}
            known = {
                name: rows[:, place]
                for place, (name, _) in enumerate(self._entries)
                if name in names
            }
            for column in values_of(self._terms, dict(self._entries), known, len(rows)):
                columns.append(_sized(np.asarray(column, np.float64)))
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))


def _sized(column: Floats) -> Floats:
    return np.sign(column) * np.log2(1 + np.abs(column))


def _labelled(variable: Variable) -> bool:
    """Whether its values are names, which have a column each anyway."""
    return bool(getattr(variable, "labels", ()))


def _of_variable(variable: Variable, domain: Domain, column: NDArray[np.int64]) -> list[Floats]:
    if not isinstance(variable, CodeVariable):
        if _labelled(variable) and len(domain) > 2:
            return [(column == value).astype(np.float64) for value in domain]
        return [_sized(column.astype(np.float64))]
    codes = [ScheduleCode(int(value)) for value in domain]
    found: list[Floats] = []
    for level in dict.fromkeys(code.level for code in codes):
        of_level = [int(code) for code in codes if code.level is level]
        found.append(np.isin(column, of_level).astype(np.float64))
    dimensions = {int(code): float(code.dimension or 0) for code in codes}
    if len(set(dimensions.values())) > 1:
        found.append(np.array([dimensions[int(value)] for value in column]))
    return found


def _terms(space: Space, entries: Sequence[tuple[Variable, Domain]]) -> tuple[IntTerm, ...]:
    """Terms of several sizes, and remainders and quotients, in the order of the constraints."""
    domains = dict(entries)

    def telling(term: Predicate | IntTerm) -> bool:
        names = variables(term)
        if not names or any(isinstance(name, CodeVariable) for name in names):
            return False
        open_names = [name for name in names if name in domains and len(domains[name]) > 1]
        if not names <= domains.keys() or not open_names:
            return False
        if isinstance(term, FloorDiv | Modulo):
            return True
        return isinstance(term, Product | Sum) and len(open_names) > 1

    found: dict[IntTerm, None] = {}
    for constraint in space.constraints:
        for term in _parts(constraint.predicate):
            if len(found) == MAX_TERMS:
                break
            if telling(term):
                found[term] = None  # pyright: ignore[reportArgumentType]
    return tuple(found)


def _parts(term: Predicate | IntTerm) -> Iterator[Predicate | IntTerm]:
    yield term
    for inner in subterms(term):
        yield from _parts(inner)
