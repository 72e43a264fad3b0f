"""Mappings that were found for longer vectors than a device has, in vectors that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mapper.constraint_rules.predicate import CodeVariable, ParameterVariable, Variable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.pipeline import Subject, assignment_from_json
from mapper.schedule import VECTOR_CODES
from mapper.solver.space import Space, check

Assignment = Mapping[Variable, int]

#: What sketches call the lengths of vectors, and what goes around lanes of a map.
_VECTORS = ("lanes", "copy")
_AROUND_LANES = ("own", "tile")


def readable(space: Space, choices: Iterable[Mapping[str, object]]) -> list[Assignment]:
    """Those of stored choices that are still in the space, as assignments."""
    found: list[Assignment] = []
    for value in choices:
        try:
            assignment = assignment_from_json(space, dict(value))
        except InputError:
            continue
        if len(assignment) == len(space.variables) and not check(space, assignment):
            found.append(assignment)
    return found


def fitting(
    subject: Subject, space: Space, profile: DeviceProfile, choices: Iterable[Mapping[str, object]]
) -> list[Assignment]:
    """Those of stored choices that are in the space and need no longer vectors than the device has.

    Where a sketch's are longer, it has as many vectors of the longest that there are: a work-item
    keeps its sums and makes less of what lanes go along. What has no such form is left out.
    """
    widest = max(profile.vector_widths)
    found: list[Assignment] = []
    for assignment in readable(space, choices):
        if longest_vector(assignment) <= widest:
            found.append(assignment)
        elif subject.scheduled is not None:
            shorter = _in_shorter_lanes(assignment, widest)
            if not check(space, shorter):
                found.append(shorter)
    return found


def longest_vector(assignment: Assignment) -> int:
    """The longest vector that is computed with, in elements."""
    codes = (value for v, value in assignment.items() if isinstance(v, CodeVariable))
    return max((code for code in codes if code in VECTOR_CODES), default=1)


def _in_shorter_lanes(assignment: Assignment, width: int) -> Assignment:
    """As many vectors of a shorter width, of a sketch: lanes of a map with as much less of it that
    is a work-item's and a tile's own, and shorter vectors that are only copied."""
    shorter = dict(assignment)
    for variable, value in assignment.items():
        if isinstance(variable, CodeVariable):
            if value in VECTOR_CODES and value > width:
                shorter[variable] = width
        elif isinstance(variable, ParameterVariable) and value > width:
            kind, _, loop = variable.name.partition("_")
            if kind in _VECTORS:
                shorter[variable] = width
            for around in _AROUND_LANES if kind == "lanes" else ():
                size = ParameterVariable(f"{around}_{loop}")
                if size in shorter:
                    shorter[size] //= value // width
    return shorter
