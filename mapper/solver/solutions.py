"""The solutions of any space, to be counted, drawn and gone through.

Where codes meet parameters and sizes the space is taken apart (:mod:`joint`, and with rules of
suitability :mod:`factored.suited`); without codes it is a product of independent factors, and
codes alone are one diagram.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.solver.diagram.compile import (
    compile_arithmetic,
    compile_diagram,
    compile_factors,
)
from mapper.solver.diagram.events import NotBooleanError
from mapper.solver.diagram.factors import Factors
from mapper.solver.diagram.layers import Diagram, suffix_counts, walk
from mapper.solver.factored.narrowing import is_suited
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import Watch
from mapper.solver.space import Row, Space

Array = NDArray[Any]


class Solutions(Protocol):
    """What can be asked of the solutions of a space.

    A mapping is a choice of codes with which some parameters and sizes go; without codes, it
    is a choice of everything.
    """

    counted: int

    def count_joint(self) -> int:
        """The number of assignments of all variables, exact."""
        ...

    def count_mappings(self) -> int:
        """The number of mappings, exact; ``counted`` is a lower bound where it is cut short."""
        ...

    def draw_mapping(self, random: Random) -> dict[Variable, int] | None:
        """A mapping, each equally likely, with values uniform among those that go with it.

        None says nothing by itself: draw again.
        """
        ...

    def draw_joint(self, random: Random) -> dict[Variable, int] | None:
        """An assignment of all variables, each equally likely; None if there is none."""
        ...

    def mappings(self) -> Iterator[Mapping[Variable, int]]:
        """Every mapping once: codes only, or everything where there are no codes."""
        ...

    def completed(self, skip: int = 0) -> Iterator[dict[Variable, int]]:
        """Every mapping once but the first ``skip``, in the order of :meth:`mappings`, with
        parameters and sizes that go with it (always the same ones)."""
        ...


class WholeSpace:
    """A space as one diagram that decides codes before all else."""

    def __init__(self, diagram: Diagram, codes: frozenset[Variable]) -> None:
        self.diagram = diagram
        names = [layer.variable for layer in diagram.layers]
        self._codes = sum(name in codes for name in names)
        self.counted = 0

    def count_joint(self) -> int:
        """See :class:`Solutions`."""
        return self.diagram.count

    def count_mappings(self) -> int:
        """See :class:`Solutions`."""
        if self.diagram.count:
            self.counted = int(self._prefixes[0][0])
        return self.counted

    @cached_property
    def _prefixes(self) -> list[Array]:
        """For the layers of codes, how many choices of codes go on from each state."""
        return suffix_counts(self.diagram.layers[: self._codes])

    def draw_mapping(self, random: Random) -> dict[Variable, int] | None:
        """See :class:`Solutions`."""
        if not self.diagram.count:
            return None
        layers, start = self.diagram.layers, np.zeros(1, np.int64)
        rank = random.randrange(self.count_mappings())
        found = walk(layers[: self._codes], self._prefixes, start, [rank])
        state = self._end_of(found, 0)
        behind = int(self.diagram.suffixes[self._codes][state])
        later = self.diagram.completions(
            self._codes, np.array([state], np.int64), [random.randrange(behind)]
        )
        chosen = {name: int(column[0]) for name, column in (found | later).items()}
        return self._in_order(chosen)

    def _end_of(self, chosen: dict[Variable, Array], place: int) -> int:
        """The state in which one of some choices of codes ends."""
        state = 0
        for layer in self.diagram.layers[: self._codes]:
            value = int(chosen[layer.variable][place])
            first, last = int(layer.starts[state]), int(layer.starts[state + 1])
            taken = next(
                arc for arc in range(first, last) if layer.domain[layer.value[arc]] == value
            )
            state = int(layer.target[taken])
        return state

    def _in_order(self, chosen: dict[Variable, int]) -> dict[Variable, int]:
        known = self.diagram.fixed | chosen
        return {name: known[name] for name in self.diagram.variables if name in known}

    def draw_joint(self, random: Random) -> dict[Variable, int] | None:
        """See :class:`Solutions`."""
        total = self.diagram.count
        if not total:
            return None
        return self.diagram.at_ranks([random.randrange(total)]).assignment(0)

    def mappings(self) -> Iterator[Mapping[Variable, int]]:
        """See :class:`Solutions`."""
        fixed = self.diagram.fixed
        names: tuple[Variable, ...] = ()
        places: dict[Variable, int] = {}
        for number, found in self._choices(0):
            if not names:
                known = found.keys() | fixed.keys()
                names = tuple(name for name in self.diagram.variables if name in known)
                places = {name: place for place, name in enumerate(names)}
            columns = [
                found[name].tolist() if name in found else [fixed[name]] * number for name in names
            ]
            for row in zip(*columns, strict=True):
                yield Row(names, places, row)

    def completed(self, skip: int = 0) -> Iterator[dict[Variable, int]]:
        """See :class:`Solutions`."""
        for number, found in self._choices(skip):
            for place in range(number):
                codes = {name: int(column[place]) for name, column in found.items()}
                state = np.array([self._end_of(found, place)], np.int64)
                later = self.diagram.completions(self._codes, state, [0])
                values = {name: int(column[0]) for name, column in later.items()}
                yield self._in_order(codes | values)

    def _choices(self, begin: int) -> Iterator[tuple[int, dict[Variable, Array]]]:
        """All choices of codes from a rank on, some at a time, and how many these are."""
        if not self.diagram.count:
            return
        layers = self.diagram.layers[: self._codes]
        total = self.count_mappings()
        for start in range(begin, total, _BATCH):
            ranks = range(start, min(start + _BATCH, total))
            yield (
                len(ranks),
                walk(layers, self._prefixes, np.zeros(len(ranks), np.int64), list(ranks)),
            )


class FactoredSpace:
    """A space without codes as a product of factors; its mappings are its assignments."""

    def __init__(self, factors: Factors) -> None:
        self.factors = factors
        self.counted = 0

    def count_joint(self) -> int:
        """See :class:`Solutions`."""
        return self.factors.count

    def count_mappings(self) -> int:
        """See :class:`Solutions`."""
        self.counted = self.factors.count
        return self.counted

    def draw_joint(self, random: Random) -> dict[Variable, int] | None:
        """See :class:`Solutions`."""
        total = self.factors.count
        return self.factors.at_ranks([random.randrange(total)]).assignment(0) if total else None

    def draw_mapping(self, random: Random) -> dict[Variable, int] | None:
        """See :class:`Solutions`."""
        return self.draw_joint(random)

    def mappings(self) -> Iterator[dict[Variable, int]]:
        """See :class:`Solutions`."""
        return self.completed()

    def completed(self, skip: int = 0) -> Iterator[dict[Variable, int]]:
        """See :class:`Solutions`."""
        total = self.factors.count
        for begin in range(skip, total, _BATCH):
            ranks = range(begin, min(begin + _BATCH, total))
            yield from self.factors.at_ranks(ranks).assignments()


# So many mappings are made at once when all are gone through.
_BATCH = 1024


def solutions_of(space: Space, watch: Watch | None = None) -> Solutions:
    """The solutions of a space; LimitError and Cancelled as ``watch`` says."""
    codes = frozenset(
        variable for variable, _ in space.variables if isinstance(variable, CodeVariable)
    )
    if not codes:
        return FactoredSpace(compile_factors(space, watch or Watch()))
    if len(codes) < len(space.variables):
        try:
            if is_suited(space):
                return SuitedSpace(space, watch)
            # Loads CP-SAT, which takes longer than to count a space that does without.
            from mapper.solver.joint import JointSpace

            return JointSpace(space, watch)
        except NotBooleanError:
            return WholeSpace(compile_arithmetic(space, watch or Watch(), codes), codes)
    return WholeSpace(compile_diagram(space, watch or Watch()), codes)
