"""Explanations as tables: the nearest valid mapping, and why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mapper.errors import UnsatisfiableError
from mapper.schedule import Level, ScheduleCode, code_name
from nestmap.answers import empty_space_error
from nestmap.cli.output import Progress, write_table, write_text
from nestmap.requests import Request

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


def write_conflict(conflict: Mapping[str, Any]) -> None:
    """The parts of a conflict (:func:`nestmap.answers.conflict_to_json`) as a table."""
    write_text(
        "these cannot hold together; without any one of them the others can"
        if conflict["minimal"]
        else "these cannot hold together; they may not be minimal: within the limits on time and "
        "size not each could be left out in turn"
    )
    write_reasons(conflict["parts"])


def write_reasons(parts: Iterable[Mapping[str, Any]]) -> None:
    """Violations, or the parts of a conflict, as a table."""
    write_table(
        ("rule", "maps", "buffer", "why", "remedy"),
        (
            (part["rule"], maps_text(part["maps"]), part["buffer"] or "", part["sentence"],
             part["remedy"])
            for part in parts
        ),
    )  # fmt: skip


def write_nearest(answer: str, found: Mapping[str, Any]) -> None:
    """What has to change (:func:`nestmap.answers.nearest_to_json`), as a table; ``answer`` is
    what is looked for in a word."""
    changes = found["changes"]
    count = len(changes)
    certainty = (
        "fewer would not do"
        if found["proven"]
        else "that fewer would not do is not proven within the time limit"
    )
    write_text(f"nearest valid {answer}: {count} change{'s' * (count != 1)}, {certainty}")
    write_table(
        ("change", "from", "to"),
        (
            (
                f"{change['what']} {change['name']}",
                value_in_words(change["what"], change["from"]),
                value_in_words(change["what"], change["to"]),
            )
            for change in changes
        ),
    )


def maps_text(maps: Sequence[int | str]) -> str:
    """Map ids for a cell of a table: rules of a whole kernel speak of all its maps."""
    shown = ", ".join(map(str, maps[:MAX_MAPS_SHOWN]))
    more = len(maps) - MAX_MAPS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def value_in_words(what: str, value: int | str) -> str:
    """``W0: work-groups, dimension 0``; parameters and local sizes as they are."""
    if what != "map" or not isinstance(value, int):
        return str(value)
    if value not in set(ScheduleCode):
        return code_name(value)
    code = ScheduleCode(value)
    if code.vector_width is not None:
        words = f"vectorised, {code.vector_width} lanes"
    else:
        words = _LEVELS[code.level]
        if code.dimension is not None:
            words += f", dimension {code.dimension}"
    return f"{code.short_name}: {words}"
