"""Explanations as tables: the nearest valid mapping, and why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.constraint_rules.predicate import CodeVariable, Variable, value_text
from mapper.errors import UnsatisfiableError
from mapper.pipeline import Subject
from mapper.schedule import Level, ScheduleCode
from nestmap.answers import empty_space_error, variable_kind
from nestmap.cli.output import Progress, write_table, write_text
from nestmap.requests import Request
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


def explained(request: Request, time_limit_s: float | None) -> UnsatisfiableError:
    """:func:`nestmap.answers.empty_space_error`, with a word on the terminal meanwhile."""
    with Progress("explaining"):
        return empty_space_error(request, time_limit_s)


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
                f"{variable_kind(change.variable)} {option_name(change.variable)}",
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
