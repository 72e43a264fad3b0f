"""What a primitive gives back, and how it says that it does not apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mapper.ast_model.bounds import MAX_NODE_DEPTH, MAX_NODES
from mapper.ast_model.nodes import Parameter, Program, Requirement
from mapper.ast_model.type_check import check_declarations, check_program
from mapper.ast_model.types import Type
from mapper.errors import InputError, LimitError, Problem, TypeErrors
from mapper.schedules.facts import facts_of, obligations_in, type_of, union
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
        old = obligations_in(self.before)
        return tuple(text for text in obligations_in(self.program) if text not in old)


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
        check_types(before, after)
    except TypeErrors as error:
        first = error.problems[0]
        raise refusal(
            primitive, target, first.message, first.found, first.allowed, first.remedy
        ) from None
    return Step(before, after)


def check_types(before: Program, after: Program) -> None:
    """TypeErrors or LimitError, as of a whole program, for what a step may have changed.

    Nodes that were right before are not looked at anew: parameters and requirements that are added,
    and values that a parameter loses, leave them right. How long the lengths of types have grown is
    checked with the whole program, once its derivation is done.
    """
    facts = [facts_of(kernel.body) for kernel in after.kernels]
    ids = union(f.computing for f in facts)
    if (
        _fixed(before) != _fixed(after)
        or sum(f.size for f in facts) > MAX_NODES
        or any(f.depth > MAX_NODE_DEPTH or f.is_wordy for f in facts)
        or len(ids) != sum(f.computing_maps for f in facts)
    ):
        check_program(after)
        return
    if _open(before) != _open(after):
        check_declarations(after)
    env: dict[str, Type] = {i.name: i.type for i in after.inputs}
    for kernel in after.kernels:
        env[kernel.name] = type_of(kernel.body, env, after)


def _fixed(program: Program) -> tuple[object, ...]:
    kernels = tuple(kernel.name for kernel in program.kernels)
    return program.sizes, program.functions, program.inputs, kernels, program.constants


def _open(program: Program) -> tuple[object, ...]:
    return program.parameters, program.requirements


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
    count = sum(facts_of(kernel.body).size for kernel in program.kernels)
    if count > MAX_UNTIDY:
        raise LimitError(
            Problem("", "the program becomes too large", f"{count} nodes",
                    f"{MAX_UNTIDY} nodes before they are simplified, {MAX_NODES} after")
        )  # fmt: skip
