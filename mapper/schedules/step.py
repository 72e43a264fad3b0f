"""What a primitive gives back, and how it says that it does not apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mapper.ast_model.nodes import Parameter, Program, Requirement
from mapper.ast_model.obligations import Obligation
from mapper.ast_model.type_check import check_program
from mapper.errors import InputError, Problem, TypeErrors
from mapper.schedules.simplify import simplified
from mapper.schedules.unique import with_unique_names


class NotApplicable(InputError):
    """A primitive does not apply where it was asked to: which, where, what it found and needs."""


def refusal(
    primitive: str, target: object, why: str, found: str = "", needed: str = "", remedy: str = ""
) -> NotApplicable:
    """The error that a primitive raises; ``target`` is the map, reduce, buffer or kernel."""
    return NotApplicable(Problem(f"{primitive}({target})", why, found[:200], needed, remedy))


@dataclass(frozen=True, slots=True)
class Step:
    """A program after a primitive, and what it asks of parameters that the one before did not.

    ``constraints`` are the types' obligations and the requirements that are new, as text.
    """

    program: Program
    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]


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
    after = with_unique_names(after)
    after = replace(
        after,
        parameters=(*after.parameters, *added),
        requirements=(*after.requirements, *requirements),
        kernels=tuple(replace(k, body=simplified(k.body)) for k in after.kernels),
    )
    after = with_unique_names(after)
    try:
        found = check_program(after).obligations
    except TypeErrors as error:
        first = error.problems[0]
        raise refusal(
            primitive, target, first.message, first.found, first.allowed, first.remedy
        ) from None
    old = {str(o) for o in check_program(before).obligations}
    known = {p.name for p in before.parameters}
    new = tuple(p for p in after.parameters if p.name not in known)
    return Step(after, new, _new(found, old))


def _new(found: tuple[Obligation, ...], old: set[str]) -> tuple[str, ...]:
    texts = dict.fromkeys(str(obligation) for obligation in found)
    return tuple(text for text in texts if text not in old)
