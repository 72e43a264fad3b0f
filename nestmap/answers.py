"""Answers as JSON values, for the command line and for solver children alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    to_text,
    value_text,
)
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.rule import Constraint, Mode
from mapper.errors import LimitError, Problem, UnsatisfiableError
from mapper.pipeline import Assignment, Subject, answer_to_json, derive_space, rule_counts
from mapper.solver.space import Violation, check
from nestmap.requests import Request
from nestmap.restrictions import option_name

if TYPE_CHECKING:  # the solver takes half a second to load
    from mapper.solver.explanation import Conflict
    from mapper.solver.nearest import Nearest

# The six kinds of CC'22, Table 4, and the rules that make up each in paper mode.
TABLE_4: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("private memory", ("private-memory-scoping",)),
    ("shared memory", ("shared-memory-scoping",)),
    ("duplicate scheduling", ("duplicate-scheduling",)),
    ("local thread indexing dimensionality", ("thread-dimensionality",)),
    ("local thread indexing hierarchy", ("local-hierarchy",)),
    ("exhaustive thread indexing", ("exhaustive-indexing",)),
)


class EmptySpaceError(UnsatisfiableError):
    """No mapping is valid, and what cannot hold together is known: ``conflict``, as
    :func:`conflict_to_json` writes it."""

    def __init__(self, problem: Problem, conflict: dict[str, Any]) -> None:
        super().__init__(problem)
        self.conflict = conflict


def empty_space_error(request: Request, time_limit_s: float | None) -> UnsatisfiableError:
    """The error that says why a space, known to be empty under the restrictions, is so.

    Without a conflict where none was found in time.
    """
    # Loads the solver, which most commands do not need.
    from mapper.solver.explanation import explain_conflict

    problem = empty_space_problem(request)
    try:
        conflict = explain_conflict(request.space, request.restrictions, time_limit_s=time_limit_s)
    except LimitError:
        return UnsatisfiableError(problem)
    if conflict is None:
        raise AssertionError("a space that was found empty has a valid mapping")
    return EmptySpaceError(problem, conflict_to_json(conflict))


def empty_space_problem(request: Request) -> Problem:
    """What is said of a space that is empty under the restrictions."""
    narrows = request.restrictions.narrows
    return Problem(
        request.subject.label,
        f"no {request.subject.answer} satisfies the constraints"
        + (" and the restrictions" * narrows),
        "",
        "",
        "fewer restrictions" if narrows else "nestmap constraints lists them",
    )


def constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    """A constraint instance as a JSON value."""
    return {
        "id": constraint.id,
        "rule": constraint.rule,
        "subjects": list(constraint.subjects),
        "buffer": constraint.buffer,
        "predicate": to_text(constraint.predicate),
        "provenance": str(constraint.provenance),
        "sentence": constraint.sentence,
        "remedy": constraint.remedy,
    }


def violation_to_json(violation: Violation) -> dict[str, Any]:
    """A violation as a JSON value."""
    return {
        "rule": violation.rule,
        "maps": list(violation.maps),
        "buffer": violation.buffer,
        "sentence": violation.sentence,
        "remedy": violation.remedy,
        "constraint": violation.constraint,
    }


def conflict_to_json(conflict: Conflict) -> dict[str, Any]:
    """A conflict as a JSON value; a part has the fields of a violation and its ``kind``."""
    return {
        "minimal": conflict.minimal,
        "parts": [
            {
                "kind": part.kind.value,
                "rule": part.rule,
                "maps": list(part.maps),
                "buffer": part.buffer,
                "sentence": part.sentence,
                "remedy": part.remedy,
                "constraint": part.constraint,
            }
            for part in conflict.parts
        ],
    }


def nearest_to_json(subject: Subject, found: Nearest) -> dict[str, Any]:
    """The nearest mapping: ``assignment`` is what ``check`` and ``kernel`` read."""
    return {
        "assignment": answer_to_json(subject, found.assignment),
        "proven": found.proven,
        "changes": [
            {
                "what": variable_kind(change.variable),
                "name": option_name(change.variable),
                "from": _written(change.variable, change.before),
                "to": _written(change.variable, change.after),
                "sentence": _sentence(change.variable, change.before, change.after),
            }
            for change in found.changes
        ],
    }


def assumed_to_json(subject: Subject, assumed: Assignment) -> dict[str, Any]:
    """What was chosen for a mapping that leaves parameters or local sizes open."""
    value = answer_to_json(subject, assumed)
    value.pop("mapping", None)
    return value


def table_4(counts: dict[str, int]) -> dict[str, int]:
    """The numbers of constraint instances in the six kinds of CC'22, Table 4."""
    return {name: sum(counts.get(rule, 0) for rule in rules) for name, rules in TABLE_4}


def constraint_counts(request: Request) -> dict[str, Any]:
    """How many instances of each rule there are, preferences apart, in paper mode by Table 4."""
    counts = rule_counts(request.space, request.mode)
    found: dict[str, Any] = {"constraints": counts.constraints, "preferences": counts.preferences}
    if request.mode is Mode.PAPER:
        found["table4"] = table_4(counts.constraints)
    return found


def checked_facts(request: Request, assignment: Assignment) -> tuple[str, ...]:
    """What holds of a mapping, by the strict rules, in words; nothing if they do not all hold."""
    space = request.space
    if request.mode is Mode.PAPER:
        options = request.stated.options
        space = derive_space(request.subject, Mode.STRICT, request.device, options)
    if any(violation.rule not in PREFERENCES for violation in check(space, assignment)):
        return ()
    counts = rule_counts(space, Mode.STRICT).constraints
    listed = ", ".join(f"{rule} {count}" for rule, count in counts.items())
    return (
        f"strict mode, limits of {request.device.name}: {sum(counts.values())} constraints hold",
        f"by rule: {listed}",
    )


def variable_kind(variable: Variable) -> str:
    """What a variable is, in words."""
    match variable:
        case CodeVariable():
            return "map"
        case ParameterVariable():
            return "parameter"
        case LocalSizeVariable():
            return "local size"


def _written(variable: Variable, value: int) -> int | str:
    """A value as JSON has it: the number, or the label where the parameter has labels."""
    labelled = isinstance(variable, ParameterVariable) and variable.labels
    return value_text(variable, value) if labelled else value


def _sentence(variable: Variable, before: int, after: int) -> str:
    texts = (value_text(variable, value) for value in (before, after))
    return f"{variable_kind(variable)} {option_name(variable)}: {' → '.join(texts)}"
