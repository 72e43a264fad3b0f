"""Mappings as users write them, and the completion of what they leave open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of, loads_bounded
from mapper.constraint_rules.evaluation import evaluate_partial
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import Assignment, assignment_from_json
from mapper.schedules.schedule import Schedule
from mapper.schedules.schedule_text import schedule_from_json
from mapper.solver.space import Space, Violation, check
from nestmap.restrictions import value_with_number

MAX_MAPPING_BYTES = 2**20
_FIELDS = ("mapping", "parameters", "local_sizes", "schema")
#: The schema of what ``nestmap tune --json`` writes.
_RESULT = "nestmap/tuning/1"
#: What stands beside a mapping where it is said how good it is, and whose it is.
_FIGURES = (
    "time_ms", "gflops", "memory_bytes", "extra_bytes", "predicted_ms", "candidate", "variant",
    "variant_reason", "schedule", "study", "number",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """What a mapping file states, and which of its fields do not belong to the space."""

    assignment: Assignment
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a mapping is valid in a space; ``assumed`` is what was chosen for it.

    ``preferences`` are what it breaks of rules that keep no wrong program out. ``guessed``: no
    choice makes it valid, but each breaks something else, and the violations are those of one.
    """

    violations: tuple[Violation, ...]
    preferences: tuple[Violation, ...]
    assignment: Assignment
    assumed: Assignment
    guessed: bool = False

    @property
    def valid(self) -> bool:
        """True if nothing but preferences is broken."""
        return not self.violations


def _verdict(
    broken: tuple[Violation, ...],
    assignment: Assignment,
    assumed: Assignment,
    guessed: bool = False,
) -> Verdict:
    violations = tuple(v for v in broken if v.rule not in PREFERENCES)
    preferences = tuple(v for v in broken if v.rule in PREFERENCES)
    return Verdict(violations, preferences, assignment, assumed, guessed)


def read_mapping(space: Space, text: str, mode: Mode) -> Given:
    """What a mapping file gives; InputError names everything that is wrong with it.

    Figures beside it are passed over; of a result of ``nestmap tune`` it is the fastest's, of a
    record what was chosen. In paper mode tuning parameters and local sizes are no part of the
    space: they are left out, and named in ``ignored``.
    """
    value = loads_bounded(text, max_bytes=MAX_MAPPING_BYTES)
    if not isinstance(value, dict):
        raise InputError(Problem("", "a mapping is an object", kind_of(value),
                                 '{"mapping": {"28": "W0"}}'))  # fmt: skip
    fields = cast("dict[str, Any]", value)
    fields = _choices(fields)
    if not isinstance(fields.get("mapping"), dict):
        if "mapping" in fields and any(name in fields for name in _FIELDS[1:]):
            raise InputError(
                Problem("/mapping", "is not an object", kind_of(fields["mapping"]), "an object")
            )
        fields = {"mapping": fields}
    ignored: tuple[str, ...] = ()
    if mode is Mode.PAPER:
        ignored = tuple(name for name in ("parameters", "local_sizes") if fields.pop(name, None))
    read = assignment_from_json(space, fields)
    sizes = fields.get("local_sizes", {})
    given = {
        variable: number
        for variable, number in read.items()
        if not isinstance(variable, LocalSizeVariable) or variable.kernel in sizes
    }
    return Given(given, ignored)


def variant_of_text(text: str) -> str | None:
    """The variant that a mapping file says its mapping is of; None where it says none, or is none
    that can be read: that is said where it is read."""
    found = _said(text).get("variant")
    return found if isinstance(found, str) and found else None


def schedule_of_text(text: str) -> Schedule | None:
    """The schedule that a mapping file says its program was rewritten by, None where it says none;
    InputError names what is wrong with it."""
    found = _said(text).get("schedule")
    return None if found is None else schedule_from_json(found)


def _said(text: str) -> dict[str, Any]:
    """What a mapping file says; nothing where it is none that can be read."""
    try:
        value = loads_bounded(text, max_bytes=MAX_MAPPING_BYTES)
        return _entry(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    except InputError:
        return {}


def _choices(fields: dict[str, Any]) -> dict[str, Any]:
    """What was chosen, of all that a file says."""
    fields = _entry(fields)
    if isinstance(fields.get("choices"), dict):
        return fields["choices"]
    if isinstance(fields.get("mapping"), dict):
        return {name: value for name, value in fields.items() if name not in _FIGURES}
    return fields


def _entry(fields: dict[str, Any]) -> dict[str, Any]:
    """The fastest of a result of ``nestmap tune``; anything else as it is. InputError where it has
    found nothing."""
    if fields.get("schema") != _RESULT:
        return fields
    front = fields.get("front")
    if isinstance(front, list) and front and isinstance(front[0], dict):
        return cast("dict[str, Any]", front[0])
    raise InputError(Problem("/front", "the result has no mapping", "nothing was timed"))


def judge(space: Space, given: Mapping[Variable, int], time_limit_s: float | None) -> Verdict:
    """Whether what is given is, or can be completed to, a valid assignment.

    Every map needs its code: InputError names those without. Local sizes and tuning
    parameters that are not given are chosen: first local sizes of 1, then the solver
    decides, so that no preference is broken if that can be. LimitError if it does not within
    the time limit.
    """
    missing = [variable for variable, _ in space.variables if variable not in given]
    if any(isinstance(variable, CodeVariable) for variable in missing):
        _refuse_missing_codes(space, missing)
    if not missing:
        return _verdict(check(space, given), dict(given), {})
    domains = space.domains
    fallback = {
        variable: 1 if 1 in domains[variable] else domains[variable][0] for variable in missing
    }
    guess = {**given, **fallback}
    certain = _certain_violations(space, given, guess)
    if any(violation.rule not in PREFERENCES for violation in certain):
        return _verdict(certain, guess, fallback)
    broken = check(space, guess)
    lost = {violation.constraint for violation in certain}
    if all(violation.constraint in lost for violation in broken):
        return _verdict(broken, guess, fallback)
    for wanted in _wanted(space, lost):
        completed = _complete(wanted, given, time_limit_s)
        if completed is not None:
            assumed = {variable: completed[variable] for variable in missing}
            return _verdict(check(space, completed), completed, assumed)
    return _verdict(broken, guess, fallback, guessed=True)


def _wanted(space: Space, lost: Collection[str]) -> Iterator[Space]:
    """The space with the preferences that can still be met, then without any."""
    left = tuple(c for c in space.constraints if c.id not in lost)
    yield Space(space.variables, left)
    needed = without_preferences(space)
    if len(needed.constraints) < len(left):
        yield needed


def without_preferences(space: Space) -> Space:
    """Everything that is valid: what keeps no wrong program out is left out."""
    needed = tuple(c for c in space.constraints if c.rule not in PREFERENCES)
    return Space(space.variables, needed)


def _refuse_missing_codes(space: Space, missing: list[Variable]) -> None:
    domains = space.domains
    raise InputError(
        Problem(
            f"/mapping/{variable.map_id}",
            "no schedule is given for this map",
            "",
            ", ".join(value_with_number(variable, value) for value in domains[variable]),
        )
        for variable in missing
        if isinstance(variable, CodeVariable)
    )


def _certain_violations(
    space: Space, given: Mapping[Variable, int], guess: Mapping[Variable, int]
) -> tuple[Violation, ...]:
    """What of the violations of a guess is broken whatever the rest will be."""
    domains = space.domains
    hopeless = tuple(
        constraint
        for constraint in space.constraints
        if evaluate_partial(constraint.predicate, given, domains) is False
    )
    return check(Space(space.variables, hopeless), guess)


def _complete(
    space: Space, given: Mapping[Variable, int], time_limit_s: float | None
) -> Assignment | None:
    # Loads the solver, which most checks do not need.
    from mapper.solver.enumeration import enumerate_assignments

    with enumerate_assignments(space, given, limit=1, time_limit_s=time_limit_s) as found:
        for assignment in found:
            return assignment
    if found.complete:
        return None
    raise LimitError(
        Problem(
            "",
            "no local sizes and tuning parameters that go with the mapping were found in time",
            f"{time_limit_s} s",
            "",
            "--time-limit, or give parameters and local_sizes",
        )
    )
