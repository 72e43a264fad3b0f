"""A tuning space as its author states it: parameters, constraints and where they come from.

Frozen values; :mod:`codec` reads and writes them, :mod:`lowering` makes a solver's space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

from mapper.ast_model.bounded_json import kind_of, pointer
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.errors import InputError, Problem
from mapper.tuning_space.language import RESERVED, parse_expression
from mapper.tuning_space.syntax import Expression

Value = int | str | bool

MAX_PARAMETERS = 1000
MAX_VALUES = 65_536
MAX_CONSTRAINTS = 2000
# Of all constraints together, so that reading them takes a few seconds at worst.
MAX_CONSTRAINT_CHARACTERS = 2**17
MAX_LABEL = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_CONSTRAINT_ID = re.compile(r"[A-Za-z0-9_.-]{1,63}", re.ASCII)


class ParameterKind(Enum):
    """What the values of a parameter are, and so what may be said of it."""

    INTEGER = "integer"
    CHOICE = "choice"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class TuningParameter:
    """A name and the values it may take, in the author's order, each once.

    All are integers (64 bits), all are labels, or all are true and false. InputError for
    anything else, with pointers below ``/parameters``.
    """

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in RESERVED:
            raise InputError(
                Problem(self._path, "not a name for a parameter", repr(self.name)[:80],
                        "up to 63 letters, digits and _, no digit first, no word of Python")
            )  # fmt: skip
        if not self.values:
            raise InputError(Problem(self._path, "the parameter has no values", "an empty list",
                                     "at least one value"))  # fmt: skip
        if len(self.values) > MAX_VALUES:
            raise InputError(
                Problem(self._path, "the parameter has too many values", str(len(self.values)),
                        f"{MAX_VALUES} values")
            )  # fmt: skip
        wrong = _wrong_value(self.values)
        if wrong is not None:
            index, problem = wrong
            raise InputError(replace(problem, path=pointer(self._path, index)))

    @property
    def _path(self) -> str:
        return pointer("/parameters", self.name)

    @property
    def kind(self) -> ParameterKind:
        """What the values are."""
        first = self.values[0]
        if isinstance(first, bool):
            return ParameterKind.SWITCH
        return ParameterKind.INTEGER if isinstance(first, int) else ParameterKind.CHOICE

    @property
    def variable(self) -> ParameterVariable:
        """The solver's variable."""
        match self.kind:
            case ParameterKind.INTEGER:
                return ParameterVariable(self.name)
            case ParameterKind.SWITCH:
                return ParameterVariable(self.name, ("false", "true"))
            case ParameterKind.CHOICE:
                return ParameterVariable(self.name, tuple(str(value) for value in self.values))

    @property
    def domain(self) -> tuple[int, ...]:
        """The solver's values, ascending: integers as they are, 0 and 1 for false and true,
        and the positions of labels."""
        if self.kind is ParameterKind.CHOICE:
            return tuple(range(len(self.values)))
        return tuple(sorted(int(value) for value in self.values))

    def value_of(self, number: int) -> Value:
        """What a number of :attr:`domain` stands for."""
        match self.kind:
            case ParameterKind.INTEGER:
                return number
            case ParameterKind.SWITCH:
                return bool(number)
            case ParameterKind.CHOICE:
                return self.values[number]

    def number_of(self, value: object) -> int | None:
        """The solver's number for a value; None if it is none of this parameter's."""
        match self.kind:
            case ParameterKind.INTEGER:
                if isinstance(value, bool) or not isinstance(value, int):
                    return None
                return value if value in self.values else None
            case ParameterKind.SWITCH:
                return int(value) if isinstance(value, bool) and value in self.values else None
            case ParameterKind.CHOICE:
                if not isinstance(value, str) or value not in self.values:
                    return None
                return self.values.index(value)


def _wrong_value(values: Sequence[Value]) -> tuple[int, Problem] | None:
    """The first value that cannot stand where it does, by its number, and why; None if all can."""
    kind = type(values[0])
    if kind not in (int, str, bool) or any(type(value) is not kind for value in values):
        return _of_another_kind(values)
    if kind is not str and len(set(values)) == len(values):
        numbers = cast("Sequence[int]", values)
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return None
    seen: set[Value] = set()
    for index, value in enumerate(values):
        if value in seen:
            return index, Problem("", "a value stands twice", kind_of(value))
        seen.add(value)
        if isinstance(value, str):
            if not value.isprintable() or len(value) > MAX_LABEL:
                allowed = f"up to {MAX_LABEL} printable characters"
                return index, Problem("", "not a label", kind_of(value), allowed)
        elif not -(2**63) <= value < 2**63:
            return index, Problem("", "an integer is too large", str(value)[:24], "64 bits")
    return None


def _of_another_kind(values: Sequence[Value]) -> tuple[int, Problem]:
    first = type(values[0])
    index = 0
    if first in (int, str, bool):
        index = next(i for i, value in enumerate(values) if type(value) is not first)
    value = values[index]
    number = isinstance(value, float)
    message = "a value is not an integer" if number else "a value is of another kind"
    remedy = "an integer in a smaller unit, or a text as a label" if number else ""
    allowed = "all integers, all texts, or all true and false"
    return index, Problem("", message, kind_of(value), allowed, remedy)


@dataclass(frozen=True, slots=True)
class TuningConstraint:
    """An expression that must hold, and a sentence that says why.

    ``id`` may be empty: then the number of the constraint is its id. InputError if the
    expression is not in the language, or the id or the sentence is no plain text.
    """

    expression: str
    id: str = ""
    sentence: str = ""

    def __post_init__(self) -> None:
        if self.id and not _CONSTRAINT_ID.fullmatch(self.id):
            raise InputError(Problem("/id", "not an id for a constraint", repr(self.id)[:80],
                                     "up to 63 letters, digits, _, . and -"))  # fmt: skip
        if len(self.sentence) > MAX_LABEL * 5:
            raise InputError(Problem("/sentence", "the sentence is too long", "",
                                     f"{MAX_LABEL * 5} characters"))  # fmt: skip

    def parsed(self) -> Expression:
        """The expression, read; InputError says what is wrong with it."""
        return parse_expression(self.expression)


@dataclass(frozen=True, slots=True)
class TuningSpace:
    """Parameters and constraints of any kernel, with no program behind them.

    ``expected_count`` is the number of valid configurations that the source states, for those
    who want to check it; nothing here relies on it. InputError names what is wrong.
    """

    name: str
    parameters: tuple[TuningParameter, ...]
    constraints: tuple[TuningConstraint, ...] = ()
    source: str = ""
    licence: str = ""
    notes: str = ""
    expected_count: int | None = None

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for path, items, most in (("/parameters", self.parameters, MAX_PARAMETERS),
                                  ("/constraints", self.constraints, MAX_CONSTRAINTS)):  # fmt: skip
            if len(items) > most:
                problems.append(Problem(path, "there are too many", str(len(items)), str(most)))
        if not self.parameters:
            problems.append(Problem("/parameters", "there are none", "", "at least one parameter"))
        length = sum(len(constraint.expression) for constraint in self.constraints)
        if length > MAX_CONSTRAINT_CHARACTERS:
            problems.append(Problem("/constraints", "the constraints are too long together",
                                    f"{length} characters",
                                    f"{MAX_CONSTRAINT_CHARACTERS} characters"))  # fmt: skip
        names: set[str] = set()
        for parameter in self.parameters:
            if parameter.name in names:
                problems.append(Problem("/parameters", "a parameter stands twice", parameter.name))
            names.add(parameter.name)
        ids: set[str] = set()
        for index, name in enumerate(self.constraint_ids):
            if name in ids:
                path = pointer(pointer("/constraints", index), "id")
                problems.append(Problem(path, "the id is taken", name, "each id once"))
            ids.add(name)
        if self.expected_count is not None and self.expected_count < 0:
            problems.append(Problem("/expected_count", "a count is not negative",
                                    str(self.expected_count), "0 or more"))  # fmt: skip
        if problems:
            raise InputError(problems)

    @property
    def constraint_ids(self) -> tuple[str, ...]:
        """The ids of the constraints in order: their own, or their numbers from 1."""
        return tuple(c.id or str(number) for number, c in enumerate(self.constraints, start=1))

    @property
    def combinations(self) -> int:
        """The number of configurations before any constraint."""
        product = 1
        for parameter in self.parameters:
            product *= len(parameter.values)
        return product
