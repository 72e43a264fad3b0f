"""Explanations as tables and as JSON: the nearest valid mapping, and why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    value_text,
)
from mapper.errors import LimitError, Problem, UnsatisfiableError
from mapper.pipeline import Subject, answer_to_json
from mapper.schedule import Level, ScheduleCode
from nestmap.cli.output import Progress, write_table, write_text
from nestmap.cli.request import Request
from nestmap.restrictions import option_name

if TYPE_CHECKING:  # the solver takes half a second to load
    from mapper.solver.explanation import Conflict
    from mapper.solver.nearest import Nearest

MAX_MAPS_SHOWN = 6
_LEVELS = {
    Level.SEQUENTIAL: "sequential",
    Level.FUSED: "fused with the map around it",
    Level.LOCAL: "local threads",
    Level.WORK_GROUP: "work-groups",
    Level.GLOBAL: "global threads",
}


class EmptySpaceError(UnsatisfiableError):
    """No mapping is valid, and what cannot hold together is known."""

    def __init__(self, problem: Problem, conflict: Conflict) -> None:
        super().__init__(problem)
        self.conflict = conflict


def empty_space_error(request: Request, time_limit_s: float | None) -> UnsatisfiableError:
    """The error that says why a space, known to be empty under the restrictions, is so.

    Without a conflict where none was found in time.
    """
    from mapper.solver.explanation import explain_conflict

    restrictions = request.restrictions
    problem = Problem(
        request.subject.label,
        f"no {request.subject.answer} satisfies the constraints"
        + (" and the restrictions" * restrictions.narrows),
        "",
        "",
        "fewer restrictions" if restrictions.narrows else "nestmap constraints lists them",
    )
    try:
        with Progress("explaining"):
            conflict = explain_conflict(request.space, restrictions, time_limit_s=time_limit_s)
    except LimitError:
        return UnsatisfiableError(problem)
    if conflict is None:
        raise AssertionError("a space that was found empty has a valid mapping")
    return EmptySpaceError(problem, conflict)


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


def write_conflict(conflict: Conflict) -> None:
    """The parts of a conflict as a table."""
    write_text(
        "these cannot hold together; without any one of them the others can"
        if conflict.minimal
        else "these cannot hold together; they may not be minimal: within the limits on time and "
        "size not each could be left out in turn"
    )
    write_table(
        ("rule", "maps", "buffer", "why", "remedy"),
        (
            (part.rule, maps_text(part.maps), part.buffer or "", part.sentence, part.remedy)
            for part in conflict.parts
        ),
    )


def nearest_to_json(subject: Subject, found: Nearest) -> dict[str, Any]:
    """The nearest mapping: ``assignment`` is what ``check`` and ``kernel`` read."""
    return {
        "assignment": answer_to_json(subject, found.assignment),
        "proven": found.proven,
        "changes": [
            {
                "what": _what(change.variable),
                "name": option_name(change.variable),
                "from": _written(change.variable, change.before),
                "to": _written(change.variable, change.after),
                "sentence": _sentence(change.variable, change.before, change.after),
            }
            for change in found.changes
        ],
    }


def write_nearest(subject: Subject, found: Nearest) -> None:
    """What has to change, as a table."""
    count = len(found.changes)
    certainty = (
        "fewer would not do"
        if found.proven
        else "that fewer would not do is not proven within the time limit"
    )
    write_text(f"nearest valid {subject.answer}: {count} change{'s' * (count != 1)}, {certainty}")
    write_table(
        ("change", "from", "to"),
        (
            (
                f"{_what(change.variable)} {option_name(change.variable)}",
                value_in_words(change.variable, change.before),
                value_in_words(change.variable, change.after),
            )
            for change in found.changes
        ),
    )


def maps_text(maps: tuple[int | str, ...]) -> str:
    """Map ids for a cell of a table: rules of a whole kernel speak of all its maps."""
    shown = ", ".join(map(str, maps[:MAX_MAPS_SHOWN]))
    more = len(maps) - MAX_MAPS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def value_in_words(variable: Variable, value: int) -> str:
    """``W0: work-groups, dimension 0``; parameters and local sizes as they are."""
    if not isinstance(variable, CodeVariable) or value not in set(ScheduleCode):
        return value_text(variable, value)
    code = ScheduleCode(value)
    if code.vector_width is not None:
        words = f"vectorised, {code.vector_width} lanes"
    else:
        words = _LEVELS[code.level]
        if code.dimension is not None:
            words += f", dimension {code.dimension}"
    return f"{code.short_name}: {words}"


def _what(variable: Variable) -> str:
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
    return f"{_what(variable)} {option_name(variable)}: {' → '.join(texts)}"
