"""A tuning space as the solver's space: each expression a constraint, each parameter a variable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mapper.ast_model.bounded_json import pointer
from mapper.constraint_rules.predicate import Predicate
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.errors import InputError, LimitError, Problem
from mapper.solver.space import Space
from mapper.tuning_space.document import (
    ParameterKind,
    TuningConstraint,
    TuningParameter,
    TuningSpace,
)
from mapper.tuning_space.expressions import Kind, Lowering, Named

RULE = "space"
_KINDS = {
    ParameterKind.INTEGER: Kind.NUMBER,
    ParameterKind.SWITCH: Kind.CONDITION,
    ParameterKind.CHOICE: Kind.TEXT,
}


def named_parameter(parameter: TuningParameter) -> Named:
    """A tuning space's parameter as its constraints name it."""
    labels: dict[str, int] = {}
    if parameter.kind is ParameterKind.CHOICE:
        labels = {str(value): number for number, value in enumerate(parameter.values)}
    return Named(parameter.variable, parameter.domain, _KINDS[parameter.kind], labels)


def solver_space(space: TuningSpace) -> Space:
    """Variables and constraints of a tuning space, in its order.

    InputError names every constraint with a syntax error, a type error or an unknown name;
    LimitError one that would become too large.
    """
    named = {parameter.name: named_parameter(parameter) for parameter in space.parameters}
    provenance = Provenance(space.source or f"the tuning space {space.name}", "")
    problems: list[Problem] = []
    constraints: list[Constraint] = []
    for index, (name, stated) in enumerate(
        zip(space.constraint_ids, space.constraints, strict=True)
    ):
        lowering = Lowering(named, stated.expression)
        try:
            predicate = lowering.predicate(stated.parsed())
        except (InputError, LimitError) as error:
            path = pointer("/constraints", index)
            found = [replace(problem, path=path) for problem in error.problems]
            if isinstance(error, LimitError):
                raise LimitError(found) from None
            problems += found
            continue
        constraints.append(_constraint(name, stated, predicate, lowering.mentioned, provenance))
    if problems:
        raise InputError(problems)
    entries = tuple((known.variable, known.domain) for known in named.values())
    return Space(entries, tuple(constraints))


def _constraint(
    name: str,
    stated: TuningConstraint,
    predicate: Predicate,
    mentioned: Iterable[str],
    provenance: Provenance,
) -> Constraint:
    remedy = "choose other values of " + ", ".join(mentioned) if mentioned else ""
    sentence = stated.sentence or stated.expression
    return Constraint(f"{RULE}/{name}", RULE, (), predicate, provenance, None, sentence, remedy)
