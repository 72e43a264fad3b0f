"""Schedule codes for readers: the short name, words, and the class of its level."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.schedule import Level, ScheduleCode, code_name

_WORDS = {
    Level.SEQUENTIAL: "sequential",
    Level.FUSED: "fused with the map around it",
    Level.VECTOR: "vectorised",
    Level.LOCAL: "local threads",
    Level.WORK_GROUP: "work-groups",
    Level.GLOBAL: "global threads",
}
#: Names of levels in classes of the style sheet.
_CLASSES = {
    Level.SEQUENTIAL: "sequential",
    Level.FUSED: "fused",
    Level.VECTOR: "vector",
    Level.LOCAL: "local",
    Level.WORK_GROUP: "group",
    Level.GLOBAL: "global",
}
_KNOWN = frozenset(int(code) for code in ScheduleCode)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A code as it is shown: ``W0``, ``work-groups, dimension 0``, ``group``."""

    code: int
    name: str
    words: str
    level: str


def schedule(code: int) -> Schedule:
    """What is shown of a code, also of one that is none."""
    if code not in _KNOWN:
        return Schedule(code, code_name(code), "no schedule code", "none")
    known = ScheduleCode(code)
    words = _WORDS[known.level]
    if known.dimension is not None:
        words += f", dimension {known.dimension}"
    if known.vector_width is not None:
        words += f", {known.vector_width} lanes"
    return Schedule(code, known.short_name, words, _CLASSES[known.level])


def legend() -> tuple[Schedule, ...]:
    """One code of each level, in the order of the paper's table."""
    return tuple(
        schedule(int(code))
        for code in (
            ScheduleCode.WORK_GROUP_0,
            ScheduleCode.LOCAL_0,
            ScheduleCode.GLOBAL_0,
            ScheduleCode.VECTOR_4,
            ScheduleCode.SEQUENTIAL,
            ScheduleCode.FUSED,
        )
    )
