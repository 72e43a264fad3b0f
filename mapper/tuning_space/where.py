"""Constraints that a user states beside a layer, a program or any other space.

They are written in the language of tuning spaces (:mod:`mapper.tuning_space.language`) over the
names that a space's own constraints print: tuning parameters, ``code(row)`` for what becomes of a
map, which is one of the codes' names (``W0``), and ``local_size(kernel, 0)``. They are then
constraints of the space like those of the rules: checked, counted, drawn and explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mapper.ast_model.bounded_json import pointer
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    value_text,
)
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.errors import InputError, LimitError, Problem
from mapper.schedule import ScheduleCode
from mapper.solver.space import Domain, Space
from mapper.tuning_space.expressions import Kind, Lowering, Named
from mapper.tuning_space.language import Vocabulary, parse_expression

RULE = "where"
#: How many may be stated; each has the bounds of the language on its length and depth.
MAX_WHERE = 32
_SWITCH = ("false", "true")
_REFERENCES = frozenset({"code", "local_size"})
_CODES = frozenset(code.short_name for code in ScheduleCode)
_PROVENANCE = Provenance("stated by the user", "")


def with_where(space: Space, texts: Sequence[str], field: str = "--where") -> Space:
    """The space with the constraints that these texts state, behind its own.

    ``field`` is where problems are: an option, or a JSON pointer to the list. InputError names
    every text that is not in the language, has no name of the space in it, or one that there is
    not; LimitError one that would become too large.
    """
    if not texts:
        return space
    if len(texts) > MAX_WHERE:
        raise InputError(
            Problem(field, "too many constraints", str(len(texts)), str(MAX_WHERE),
                    "join some of them with and")
        )  # fmt: skip
    named = names_of(space)
    problems: list[Problem] = []
    found: list[Constraint] = []
    for number, text in enumerate(texts, start=1):
        try:
            found.append(_constraint(number, text, named))
        except (InputError, LimitError) as error:
            path = pointer(field, number - 1) if field.startswith("/") else field
            placed = [replace(problem, path=path) for problem in error.problems]
            if isinstance(error, LimitError):
                raise LimitError(placed) from None
            problems += placed
    if problems:
        raise InputError(problems)
    return Space(space.variables, (*space.constraints, *found))


def names_of(space: Space) -> dict[str, Named]:
    """What may be named in a space: parameters first, then maps' codes, then local sizes."""
    order = (ParameterVariable, CodeVariable, LocalSizeVariable)
    entries = sorted(space.variables, key=lambda entry: order.index(type(entry[0])))
    return {str(variable): _named(variable, domain) for variable, domain in entries}


def _named(variable: Variable, domain: Domain) -> Named:
    labelled = isinstance(variable, CodeVariable) or (
        isinstance(variable, ParameterVariable) and bool(variable.labels)
    )
    if not labelled:
        return Named(variable, domain, Kind.NUMBER)
    if isinstance(variable, ParameterVariable) and variable.labels == _SWITCH:
        return Named(variable, domain, Kind.CONDITION)
    labels = {value_text(variable, value): value for value in domain}
    return Named(variable, domain, Kind.TEXT, labels)


def _constraint(number: int, text: str, named: Mapping[str, Named]) -> Constraint:
    lowering = Lowering(named, text)
    # A parameter that is called as a code is goes first: the code has quotes then.
    vocabulary = Vocabulary(_REFERENCES, _CODES - named.keys())
    predicate = lowering.predicate(parse_expression(text, vocabulary))
    mentioned = tuple(lowering.mentioned)
    if not mentioned:
        raise InputError(
            Problem("", "the constraint names nothing that is chosen", repr(text[:80]),
                    ", ".join(list(named)[:20]))
        )  # fmt: skip
    variables = (named[name].variable for name in mentioned)
    return Constraint(
        id=f"{RULE}/{number}",
        rule=RULE,
        subjects=tuple(v.map_id for v in variables if isinstance(v, CodeVariable)),
        predicate=predicate,
        provenance=_PROVENANCE,
        buffer=None,
        sentence=text.strip(),
        remedy=f"choose other values of {', '.join(mentioned)}, or leave the constraint out",
    )
