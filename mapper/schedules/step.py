"""What a primitive gives back, and how it says that it does not apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mapper.ast_model.bounds import MAX_NODES
from mapper.ast_model.nodes import Node, Parameter, Program, Requirement, children
from mapper.ast_model.type_check import check_program
from mapper.errors import InputError, LimitError, Problem, TypeErrors
from mapper.schedules.simplify import simplified
from mapper.schedules.unique import with_unique_names

#: A rewrite leaves views that simplification takes out again; few programs have ten times as many.
MAX_UNTIDY = 10 * MAX_NODES


class NotApplicable(InputError):
    """A primitive does not apply where it was asked to: which, where, what it found and needs."""


def refusal(
    primitive: str, target: object, why: str, found: str = "", needed: str = "", remedy: str = ""
) -> NotApplicable:
    """The error that a primitive raises; ``target`` is the map, reduce, buffer or kernel."""
    return NotApplicable(Problem(f"{primitive}({target})", why, found[:200], needed, remedy))


@dataclass(frozen=True, slots=True)
class Step:
    """A program after a primitive, and what it asks of parameters that the one before did not."""

    before: Program
    program: Program

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that are new."""
        known = {p.name for p in self.before.parameters}
        return tuple(p for p in self.program.parameters if p.name not in known)

    @property
    def constraints(self) -> tuple[str, ...]:
        """The types' obligations and the requirements that are new, as text."""
        old = {str(o) for o in check_program(self.before).obligations}
        texts = dict.fromkeys(str(o) for o in check_program(self.program).obligations)
        return tuple(text for text in texts if text not in old)


def step(
    primitive: str,
    target: object,
    before: Program,
    after: Program,
    parameters: Iterable[Parameter] = (),
    requirements: Iterable[Requirement] = (),
) -> Step:
    """``after`` made tidy and type-checked, with these parameters and requirements added.

    NotApplicable if its types can never be right: a size that divides nothing, for example.
    """
    known = {p.name for p in after.parameters}
    added = tuple(p for p in parameters if p.name not in known)
    after = replace(
        after,
        parameters=(*after.parameters, *added),
        requirements=(*after.requirements, *requirements),
    )
    after = tidy(after)
    try:
        check_program(after)
    except TypeErrors as error:
        first = error.problems[0]
        raise refusal(
            primitive, target, first.message, first.found, first.allowed, first.remedy
        ) from None
    return Step(before, after)


def tidy(program: Program) -> Program:
    """The program with unique names and short views; its types are not checked.

    LimitError where it is far beyond what a program may be: parts that are shared so far would be
    copied for each place that they stand in.
    """
    refuse_huge(program)
    program = with_unique_names(program)
    kernels = tuple(replace(k, body=simplified(k.body)) for k in program.kernels)
    return with_unique_names(replace(program, kernels=kernels))


def refuse_huge(program: Program) -> None:
    """LimitError for more than :data:`MAX_UNTIDY` nodes, parts counted as often as they stand."""
    known: dict[int, int] = {}
    count = sum(_size(kernel.body, known) for kernel in program.kernels)
    if count > MAX_UNTIDY:
        raise LimitError(
            Problem("", "the program becomes too large", f"{count} nodes",
                    f"{MAX_UNTIDY} nodes before they are simplified, {MAX_NODES} after")
        )  # fmt: skip


def _size(node: Node, known: dict[int, int]) -> int:
    """How many nodes a tree has; what is shared is looked at once."""
    found = known.get(id(node))
    if found is None:
        found = known[id(node)] = 1 + sum(_size(child, known) for _, child in children(node))
    return found
