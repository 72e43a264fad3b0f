"""nestmap itself: from the text of a document to solutions. The one place that calls its solver.

Where it starts is chosen, so that others are compared with one that has as much in memory as they
have: a text, of which reading and checking, and deriving the constraints of a nest, are measured
too (how long they took stands under ``stages``); a document that was read, with constraints that
are texts (of a nest, the nest); or the solver's own space, with predicates for constraints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bench.space_solving.contestants.problem import Problem, Start
from mapper.ast_model.nest_codec import NEST_SCHEMA, nest_from_json
from mapper.constraint_rules.rule import Mode
from mapper.solver.diagram.compile import compile_space
from mapper.solver.space import Space, build_space
from mapper.tuning_space.codec import SPACE_SCHEMA, space_from_json
from mapper.tuning_space.lowering import solver_space


def _space_of_nest(document: Any) -> Space:
    return build_space(document.nest, Mode.PAPER)


# How a text is read, and how the solver's space is made of what was read.
_READERS: dict[str, tuple[Callable[[str], Any], Callable[[Any], Space]]] = {
    NEST_SCHEMA: (nest_from_json, _space_of_nest),
    SPACE_SCHEMA: (space_from_json, solver_space),
}


class NestmapEngine:
    """Elimination and decision diagrams."""

    def __init__(self, start: Start = Start.JSON) -> None:
        self.stages: dict[str, float] = {}
        self._start = start

    def prepare(self, problem: Problem) -> None:
        """Do what is not to be measured. NumPy loads its random numbers only when they are first
        used."""
        import_module("numpy.random")
        self._problem = problem
        self._read, self._lower = _READERS[problem.schema]
        self._given: Any = problem.document
        if self._start is not Start.JSON:
            self._given = self._read(self._given)
        if self._start is Start.COMPILED:
            self._given = self._lower(self._given)

    def _solutions(self) -> Any:
        started = time.perf_counter()
        space = self._given
        if self._start is Start.JSON:
            space = self._read(space)
        if self._start is not Start.COMPILED:
            space = self._lower(space)
            self.stages["read"] = time.perf_counter() - started
        return compile_space(space)

    def construct(self) -> Any:
        """All solutions as columns."""
        return self._solutions().table()

    def count(self) -> int:
        """Without enumeration."""
        return int(self._solutions().count)

    def sample(self, number: int, seed: int) -> Any:
        """With replacement."""
        return self._solutions().sample(number, seed)

    def columns(self, solutions: Any) -> Sequence[Any]:
        """The solver's numbers as the parameters' values."""
        found: list[Any] = []
        for column, values in zip(
            solutions.columns, self._problem.parameters.values(), strict=True
        ):
            if isinstance(values[0], str):
                found.append([values[number] for number in column.tolist()])
            elif isinstance(values[0], bool):
                found.append([bool(number) for number in column.tolist()])
            else:
                found.append(column)
        return found
