"""nestmap itself: from the text of a document to solutions. The one place that calls its solver.

Reading and checking the document, and deriving the constraints of a nest, are measured too; how
long they took stands under ``stages``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mapper.ast_model.nest_codec import NEST_SCHEMA, nest_from_json
from mapper.constraint_rules.rule import Mode
from mapper.solver.diagram.compile import compile_space
from mapper.solver.space import Space, build_space
from mapper.tuning_space.codec import SPACE_SCHEMA, space_from_json
from mapper.tuning_space.lowering import solver_space
from nestmap.space_bench.contestants.problem import Problem


def _space_of_nest(document: str) -> Space:
    return build_space(nest_from_json(document).nest, Mode.PAPER)


def _space_of_tuning_space(document: str) -> Space:
    return solver_space(space_from_json(document))


_READERS: dict[str, Callable[[str], Space]] = {
    NEST_SCHEMA: _space_of_nest,
    SPACE_SCHEMA: _space_of_tuning_space,
}


class NestmapEngine:
    """Decision diagrams."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}

    def prepare(self, problem: Problem) -> None:
        """NumPy loads its random numbers only when they are first used."""
        import_module("numpy.random")
        self._problem = problem
        self._read = _READERS[problem.schema]

    def _diagram(self) -> Any:
        started = time.perf_counter()
        space = self._read(self._problem.document)
        self.stages["read"] = time.perf_counter() - started
        return compile_space(space)

    def construct(self) -> Any:
        """All solutions as columns."""
        return self._diagram().table()

    def count(self) -> int:
        """Without enumeration."""
        return int(self._diagram().count)

    def sample(self, number: int, seed: int) -> Any:
        """With replacement."""
        return self._diagram().sample(number, seed)

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
