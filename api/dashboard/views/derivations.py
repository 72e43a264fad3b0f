"""Steps of a derivation as the page of schedules shows them: before beside after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program or of its loops; ``is_new``: new or moved."""

    text: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Side:
    """A program before or after a step."""

    loops: tuple[Line, ...]
    program: str


@dataclass(frozen=True, slots=True)
class StepView:
    """A step: its use, what it asks of parameters, and the program on both sides."""

    number: int
    use: str
    parameters: tuple[tuple[str, str], ...]
    constraints: tuple[str, ...]
    before: Side
    after: Side


def steps_of(
    start: str, start_loops: str, items: Iterable[Mapping[str, Any]]
) -> tuple[StepView, ...]:
    """The steps of a derivation, each beside the one before."""
    found: list[StepView] = []
    text, loops = start, start_loops
    for item in items:
        old, new = loops.splitlines(), str(item["loops"]).splitlines()
        found.append(
            StepView(
                item["step"],
                item["use"],
                tuple((name, _values(values)) for name, values in item["parameters"].items()),
                tuple(item["constraints"]),
                Side(_marked(old, new), text),
                Side(_marked(new, old), item["text"]),
            )
        )
        text, loops = item["text"], item["loops"]
    return tuple(found)


def _marked(lines: list[str], others: list[str]) -> tuple[Line, ...]:
    """The lines, those marked that are new or moved beside the other side; indentation is not."""
    stripped = [[line.strip() for line in side] for side in (lines, others)]
    kept = {
        start + k
        for start, _, size in SequenceMatcher(None, *stripped, autojunk=False).get_matching_blocks()
        for k in range(size)
    }
    return tuple(Line(line, place not in kept) for place, line in enumerate(lines))


def _values(values: list[int]) -> str:
    if len(values) <= 8:
        return ", ".join(map(str, values))
    return f"{values[0]}, {values[1]}, {values[2]} to {values[-1]} ({len(values)} values)"
