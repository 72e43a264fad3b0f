"""What an explanation of an empty space consists of, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    Member,
    ParameterVariable,
    Predicate,
    Variable,
    negate,
    variables,
)
from mapper.constraint_rules.rule import Constraint
from mapper.schedule import VECTOR_CODES, ScheduleCode
from mapper.solver.restrictions import Restrictions, value_text
from mapper.solver.space import Domain

_LISTED_IN_FULL = 15
_LISTED_OF_MORE = 5


class PartKind(Enum):
    """What a part of a conflict is."""

    CONSTRAINT = "constraint"
    PIN = "pin"
    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    DOMAIN = "domain"


@dataclass(frozen=True, slots=True, eq=False)
class ConflictPart:
    """One thing that holds in an empty space; most fields are those of a violation.

    ``constraint`` is the id of a constraint; for a restriction or a domain it is made of its
    kind, its variable and, for a forbidden value, that. ``predicate`` is what holds,
    ``variables`` those that occur in it. Parts are compared by identity: predicates are large.
    """

    kind: PartKind
    rule: str
    constraint: str
    maps: tuple[MapId, ...]
    buffer: str | None
    sentence: str
    remedy: str
    predicate: Predicate
    variables: frozenset[Variable]


def part_of_constraint(constraint: Constraint) -> ConflictPart:
    """A constraint as it stands in the space."""
    return ConflictPart(
        PartKind.CONSTRAINT,
        constraint.rule,
        constraint.id,
        constraint.subjects,
        constraint.buffer,
        constraint.sentence,
        constraint.remedy,
        constraint.predicate,
        variables(constraint.predicate),
    )


def parts_of_restrictions(restrictions: Restrictions) -> Iterator[ConflictPart]:
    """Each pin, each set of allowed values, and each forbidden value on its own."""
    for variable, value in restrictions.pins.items():
        yield _restriction(
            PartKind.PIN,
            variable,
            str(variable),
            f"{subject_of(variable)} is pinned to {value_text(variable, value)}",
            "take the pin away, or pin another value",
            Member(variable, frozenset({value})),
        )
    for variable, values in restrictions.allowed.items():
        yield _restriction(
            PartKind.ALLOWED,
            variable,
            str(variable),
            f"{subject_of(variable)} is to be one of {_listed(variable, sorted(values))}",
            "allow more values",
            Member(variable, values),
        )
    for variable, values in restrictions.forbidden.items():
        for value in sorted(values):
            text = value_text(variable, value)
            yield _restriction(
                PartKind.FORBIDDEN,
                variable,
                f"{variable}={text}",
                f"{subject_of(variable)} is forbidden to be {text}",
                "do not forbid it",
                negate(Member(variable, frozenset({value}))),
            )


def _restriction(
    kind: PartKind, variable: Variable, name: str, sentence: str, remedy: str, predicate: Predicate
) -> ConflictPart:
    return ConflictPart(
        kind,
        kind.value,
        f"{kind.value}/{name}",
        _maps(variable),
        None,
        sentence,
        remedy,
        predicate,
        frozenset({variable}),
    )


def part_of_domain(variable: Variable, domain: Domain, wide: Iterable[int]) -> ConflictPart:
    """That a variable has a value of its domain; ``wide`` is what it could have without."""
    listed = _listed(variable, domain)
    match variable:
        case CodeVariable():
            missing = set(wide) - set(domain)
            reasons = ""
            if ScheduleCode.FUSED in missing:
                reasons += ", and not fused, since it is not perfectly nested in another map"
            if missing & VECTOR_CODES:
                reasons += ", and not vectorised, since it is not innermost"
            rule, remedy = "code-domain", "write the program so that the map can have other codes"
            sentence = f"map {variable.map_id} is one of {listed}{reasons}"
        case ParameterVariable():
            rule, remedy = "parameter-domain", "state more values for it"
            sentence = f"{subject_of(variable)} is one of {listed}"
        case LocalSizeVariable():
            rule, remedy = "device-limits", "choose a device that allows more"
            sentence = (
                f"{subject_of(variable)} is at most {domain[-1]}, without a prime factor above 7"
                if len(domain) > 1
                else f"{subject_of(variable)} is {listed}"
            )
        case _:
            assert_never(variable)
    return ConflictPart(
        PartKind.DOMAIN,
        rule,
        f"{rule}/{variable}",
        _maps(variable),
        None,
        sentence,
        remedy,
        Member(variable, frozenset(domain)),
        frozenset({variable}),
    )


def subject_of(variable: Variable) -> str:
    """A variable as the subject of a sentence."""
    match variable:
        case CodeVariable(map_id):
            return f"map {map_id}"
        case ParameterVariable(name):
            return f"tuning parameter {name}"
        case LocalSizeVariable(kernel, dimension):
            return f"the local size of kernel {kernel} in dimension {dimension}"
        case _:
            assert_never(variable)


def _maps(variable: Variable) -> tuple[MapId, ...]:
    return (variable.map_id,) if isinstance(variable, CodeVariable) else ()


def _listed(variable: Variable, values: Iterable[int]) -> str:
    texts = [value_text(variable, value) for value in values]
    if len(texts) <= _LISTED_IN_FULL:
        return ", ".join(texts)
    return f"{', '.join(texts[:_LISTED_OF_MORE])}, …, {texts[-1]} ({len(texts)} values)"
