"""Derivations and sketches as JSON: what the command line, solver children and the API answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mapper.ast_model.bounded_json import kind_of
from mapper.ast_model.codec import program_to_json
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import to_text
from mapper.errors import InputError, LimitError, Problem
from mapper.schedules.loops import loops_text
from mapper.schedules.schedule import Schedule, Stage, derive
from mapper.schedules.schedule_text import (
    parse_schedule,
    schedule_from_json,
    schedule_to_json,
    schedule_to_text,
    use_to_text,
)
from mapper.schedules.sketches.draft import Sketch

DERIVATION_SCHEMA = "nestmap/derivation/1"
SKETCHES_SCHEMA = "nestmap/sketches/1"
#: A layer is rewritten from what it computes, unless another variant is named.
HIGH_LEVEL = "high-level"
#: All programs of one derivation together, as text: 500 steps of a small program, or a few of one
#: that is as large as programs may be.
MAX_CHARACTERS = 8 * 2**20


def read_schedule(value: object) -> Schedule:
    """A schedule as text or as ``nestmap/schedule/1``; InputError for anything else."""
    if isinstance(value, str):
        return parse_schedule(value)
    if isinstance(value, dict):
        return schedule_from_json(value)
    raise InputError(Problem("", "not a schedule", kind_of(value), "a text or an object"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The step that does not apply, by its number, and why."""

    step: int
    problem: Problem

    def to_json(self) -> dict[str, Any]:
        """As in ``nestmap/derivation/1``."""
        p = self.problem
        return {
            "step": self.step,
            "target": p.path,
            "message": p.message,
            "found": p.found,
            "allowed": p.allowed,
            "remedy": p.remedy,
        }


def stages_until_refusal(program: Program, schedule: Schedule) -> Iterator[Stage | Refusal]:
    """The steps of a schedule up to the first that does not apply, which comes as a refusal."""
    number = 0
    try:
        for stage in derive(program, schedule):
            number += 1
            yield stage
    except InputError as error:
        p = error.problems[0]
        _, _, target = p.path.partition(", ")
        yield Refusal(number + 1, Problem(target, p.message, p.found, p.allowed, p.remedy))


class Bounded:
    """Programs as text, all together within :data:`MAX_CHARACTERS`."""

    def __init__(self) -> None:
        self._characters = 0

    def text(self, program: Program) -> str:
        """The program's text; LimitError where all of them together are too long."""
        text = to_text(program)
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise LimitError(
                Problem("", "the programs of the steps are too long together",
                        f"more than {MAX_CHARACTERS} characters", f"{MAX_CHARACTERS} characters",
                        "fewer steps, or a smaller program")
            )  # fmt: skip
        return text


def stage_to_json(number: int, stage: Stage, texts: Bounded) -> dict[str, Any]:
    """A step: what was used, what it asks of parameters, and the program after it."""
    step = stage.step
    return {
        "step": number,
        "use": use_to_text(stage.use),
        "parameters": {p.name: list(p.values) for p in step.parameters},
        "constraints": list(step.constraints),
        "loops": loops_text(step.program),
        "text": texts.text(step.program),
    }


def sketch_to_json(sketch: Sketch) -> dict[str, Any]:
    """A sketch with its schedule, as JSON and as text."""
    return {
        "name": sketch.name,
        "reason": sketch.reason,
        "steps": len(sketch.schedule.uses),
        "parameters": {p.name: list(p.values) for p in sketch.program.parameters},
        "schedule": schedule_to_json(sketch.schedule),
        "text": schedule_to_text(sketch.schedule),
    }


def derivation_end(
    schedule: Schedule, before: Program, program: Program, refusal: Refusal | None
) -> dict[str, Any]:
    """What a derivation says beside its steps."""
    return {
        "schema": DERIVATION_SCHEMA,
        "schedule": schedule_to_json(schedule),
        "start": to_text(before),
        "start_loops": loops_text(before),
        "program": program_to_json(program),
        "refusal": None if refusal is None else refusal.to_json(),
    }


def problems_at(path: str, problems: Sequence[Problem]) -> list[Problem]:
    """Problems of a part of a request, with where the part stands in front."""
    return [
        Problem(f"{path}: {p.path}" if p.path else path, p.message, p.found, p.allowed, p.remedy)
        for p in problems
    ]
