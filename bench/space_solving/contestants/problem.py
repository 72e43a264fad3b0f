"""The problem as a contestant gets it, and what a contestant can do.

Constraints are Python expressions over the parameters. They come from documents, so only text
that :func:`mapper.tuning_space.language.parse_expression` accepted (numbers, parameters,
operators, ``min``, ``max``, ``abs``: no attribute and no other call), or that was printed from
a predicate, may stand in a :class:`Problem`: the builders of other projects compile it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import CodeType
from typing import Any, Protocol

Value = int | str | bool
BUILTINS: Mapping[str, Any] = {"min": min, "max": max, "abs": abs, "true": True, "false": False}


@dataclass(frozen=True)
class Problem:
    """Parameters with their values, constraints, and the document that nestmap reads.

    ``schema`` says what ``document`` is: ``nestmap/space/1`` or ``nestmap/nest/1``.
    """

    parameters: dict[str, tuple[Value, ...]]
    constraints: tuple[str, ...]
    schema: str
    document: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters in the document's order."""
        return tuple(self.parameters)

    @cached_property
    def constraint_names(self) -> tuple[tuple[str, ...], ...]:
        """The parameters that each constraint speaks of, in the document's order."""
        return tuple(names_in(text, self.parameters) for text in self.constraints)

    @cached_property
    def decided_by(self) -> dict[str, tuple[int, ...]]:
        """By parameter, the constraints that can be decided once it has a value, when
        parameters get values in the document's order."""
        position = {name: index for index, name in enumerate(self.names)}
        found: dict[str, list[int]] = {name: [] for name in self.names}
        for index, names in enumerate(self.constraint_names):
            last = max(names, key=position.__getitem__) if names else self.names[0]
            found[last].append(index)
        return {name: tuple(indices) for name, indices in found.items()}


def names_in(text: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters that an expression speaks of, in the order of ``parameters``."""
    used = {
        node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)
    }
    return tuple(name for name in parameters if name in used)


def predicate_function(text: str, names: Sequence[str]) -> Callable[..., bool]:
    """A Python function of these parameters: what a user would have written by hand."""
    code: CodeType = compile(f"lambda {', '.join(names)}: {text}", "<constraint>", "eval")
    return eval(code, {"__builtins__": {}, **BUILTINS})


class Start(StrEnum):
    """What is in memory when the clock starts."""

    JSON = "the text of a document"
    TEXTS = "values, and constraints as text"
    COMPILED = "values, and constraints as functions or predicates"


class NotMeasured(Exception):
    """The contestant does not take this problem; the text says why."""


class Contestant(Protocol):
    """One way to get the solutions. ``prepare`` is not measured, the others are; what it may do
    is what a :class:`Start` says."""

    def prepare(self, problem: Problem) -> None:
        """Load packages, compile what a user would have as source."""
        ...

    def construct(self) -> Any:
        """All solutions, in memory in the contestant's own form."""
        ...

    def count(self) -> int:
        """The number of solutions, from nothing."""
        ...

    def sample(self, number: int, seed: int) -> Any:
        """So many solutions drawn uniformly, from nothing; fewer only if there are fewer and
        the contestant draws without replacement."""
        ...

    def columns(self, solutions: Any) -> Sequence[Any]:
        """What ``construct`` or ``sample`` gave as one sequence of values a parameter, in the
        document's order. Not measured."""
        ...
