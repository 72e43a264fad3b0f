"""A program with the schedule that rewrites it, as a document (``nestmap/scheduled/1``).

What a schedule gives can be made again from the two; it is larger than both, and says neither what
was written nor what was done to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of
from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.nodes import Program
from mapper.errors import InputError, Problem
from mapper.schedules.schedule import Schedule, derived
from mapper.schedules.schedule_text import schedule_from_json, schedule_to_json

SCHEDULED_SCHEMA = "nestmap/scheduled/1"
_FIELDS = ("schema", "program", "schedule")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A program as it was written, and what rewrites it."""

    program: Program
    schedule: Schedule

    def rewritten(self) -> Program:
        """The program after the schedule; NotApplicable says which step does not apply."""
        return derived(self.program, self.schedule)


def scheduled_to_json(scheduled: Scheduled) -> dict[str, Any]:
    """``nestmap/scheduled/1``; :func:`scheduled_from_json` reads it back."""
    return {
        "schema": SCHEDULED_SCHEMA,
        "program": program_to_json(scheduled.program),
        "schedule": schedule_to_json(scheduled.schedule),
    }


def scheduled_from_json(value: object) -> Scheduled:
    """Read the document; InputError names the fields that are wrong."""
    if not isinstance(value, dict):
        raise InputError(Problem("", "a scheduled program is an object", kind_of(value)))
    fields = cast("dict[str, object]", value)
    if fields.get("schema", SCHEDULED_SCHEMA) != SCHEDULED_SCHEMA:
        found = kind_of(fields["schema"])
        raise InputError(Problem("/schema", "another schema", found, SCHEDULED_SCHEMA))
    problems = [
        Problem(f"/{name[:60]}", "no such field", "", ", ".join(_FIELDS))
        for name in fields
        if name not in _FIELDS
    ]
    problems += [
        Problem(f"/{name}", "is missing", "", ", ".join(_FIELDS))
        for name in _FIELDS[1:]
        if name not in fields
    ]
    if problems:
        raise InputError(problems)
    with_path = {"program": program_from_json, "schedule": schedule_from_json}
    read: dict[str, Any] = {}
    for name, reader in with_path.items():
        try:
            read[name] = reader(fields[name])
        except InputError as error:
            raise type(error)(
                Problem(f"/{name}/{p.path.lstrip('/')}", p.message, p.found, p.allowed, p.remedy)
                for p in error.problems
            ) from None
    return Scheduled(read["program"], read["schedule"])
