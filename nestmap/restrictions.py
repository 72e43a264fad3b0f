"""Pins, forbidden values and preferences as users write them.

``28=W0`` names a map, ``theta=5`` a tuning parameter, ``kernel.0=8`` the local size of a kernel
in one dimension; several values stand between commas, the weight of a preference behind a
colon: ``28=W0:3,W1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    value_text,
)
from mapper.errors import InputError, Problem
from mapper.schedule import parse_code
from mapper.solver.restrictions import MAX_WEIGHT, Restrictions
from mapper.solver.space import Domain, Space

_MOST_SHOWN = 40
_FORMS = {
    "--pin": ("a pin", "NAME=VALUE, as in 28=W0, or NAME=VALUE,VALUE for any of these"),
    "--forbid": ("a forbidden value", "NAME=VALUE, as in 28=W0, or NAME=VALUE,VALUE"),
    "--prefer": ("a preference", "NAME=VALUE, as in 28=W0, or with a weight, 28=W0:3,W1:2"),
}


def read_restrictions(
    space: Space,
    pins: Iterable[str] = (),
    forbids: Iterable[str] = (),
    prefers: Iterable[str] = (),
) -> Restrictions:
    """The three options' arguments as restrictions of the space.

    InputError names each that is malformed, unknown, given twice or outside its domain.
    """
    reader = _Reader(space)
    for text in pins:
        reader.pin(text)
    for text in forbids:
        reader.forbid(text)
    for text in prefers:
        reader.prefer(text)
    if reader.problems:
        raise InputError(reader.problems)
    return Restrictions(
        {v: next(iter(values)) for v, values in reader.pinned.items() if len(values) == 1},
        {v: values for v, values in reader.pinned.items() if len(values) > 1},
        {v: frozenset(values) for v, values in reader.forbidden.items()},
        reader.preferred,
    )


def option_name(variable: Variable) -> str:
    """How the options name a variable."""
    match variable:
        case CodeVariable():
            return str(variable.map_id)
        case ParameterVariable():
            return variable.name
        case LocalSizeVariable():
            return f"{variable.kernel}.{variable.dimension}"


def value_with_number(variable: Variable, value: int) -> str:
    """A value as it may be written: of codes both forms, ``W0 (20)``."""
    if isinstance(variable, CodeVariable):
        return f"{parse_code(value).short_name} ({value})"
    return value_text(variable, value)


def some_of(names: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    shown = list(names)
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return ", ".join(shown[:_MOST_SHOWN]) + more


class _Reader:
    """Reads arguments one by one and gathers every problem."""

    def __init__(self, space: Space) -> None:
        self._domains: Mapping[Variable, Domain] = space.domains
        # Where two are named alike the first stands: maps before parameters before local sizes.
        self._known = {option_name(variable): variable for variable, _ in reversed(space.variables)}
        self.problems: list[Problem] = []
        self.pinned: dict[Variable, frozenset[int]] = {}
        self.forbidden: dict[Variable, set[int]] = {}
        self.preferred: dict[tuple[Variable, int], int] = {}

    def pin(self, text: str) -> None:
        """One value, or any of several."""
        variable, values = self._read("--pin", text)
        if variable is None:
            return
        chosen = frozenset(value for value, _ in values)
        if self.pinned.setdefault(variable, chosen) != chosen:
            self._refuse("--pin", variable, "is pinned twice", text)

    def forbid(self, text: str) -> None:
        """Values that are taken away, beside those of other arguments."""
        variable, values = self._read("--forbid", text)
        if variable is not None:
            self.forbidden.setdefault(variable, set()).update(value for value, _ in values)

    def prefer(self, text: str) -> None:
        """Values with weights, 1 if none is given."""
        variable, values = self._read("--prefer", text)
        if variable is None:
            return
        for value, weight in values:
            if self.preferred.setdefault((variable, value), weight) != weight:
                self._refuse("--prefer", variable, "has two weights for one value", text)

    def _refuse(
        self, option: str, name: Variable | str, message: str, found: str, allowed: str = ""
    ) -> None:
        shown = name if isinstance(name, str) else option_name(name)
        self.problems.append(Problem(f"{option} {shown}".strip(), message, found, allowed))

    def _read(self, option: str, text: str) -> tuple[Variable | None, list[tuple[int, int]]]:
        """The variable, and its values with weights; None if something is wrong."""
        # A map's id may have an equals sign in it, a value never.
        name, separator, right = (part.strip() for part in text.rpartition("="))
        items = [item.strip() for item in right.split(",")]
        if not (name and separator and all(items)):
            what, form = _FORMS[option]
            self._refuse(option, "", f"not {what}", repr(text), form)
            return None, []
        variable = self._known.get(name)
        if variable is None:
            message = f"there is nothing of this name to {option.removeprefix('--')}"
            self._refuse(option, name, message, "", some_of(self._known))
            return None, []
        before = len(self.problems)
        values = [self._value(option, variable, item) for item in items]
        if len(self.problems) > before:
            return None, []
        return variable, [value for value in values if value is not None]

    def _value(self, option: str, variable: Variable, item: str) -> tuple[int, int] | None:
        weight = 1
        if option == "--prefer" and ":" in item:
            item, _, weight_text = item.partition(":")
            number = _integer(weight_text)
            if number is None or not 1 <= number <= MAX_WEIGHT:
                allowed = f"1 to {MAX_WEIGHT}"
                self._refuse(option, variable, "no such weight", repr(weight_text), allowed)
                return None
            weight = number
        value = _number(variable, item)
        if value is None or value not in self._domains[variable]:
            allowed = some_of(value_with_number(variable, v) for v in self._domains[variable])
            self._refuse(option, variable, "no such value", repr(item), allowed)
            return None
        return value, weight


def _number(variable: Variable, text: str) -> int | None:
    """The number that a text stands for: of a code, of a label, or itself."""
    match variable:
        case CodeVariable():
            return _code(text)
        case ParameterVariable(_, labels) if labels:
            return labels.index(text) if text in labels else None
        case _:
            return _integer(text)


def _code(text: str) -> int | None:
    try:
        return int(parse_code(text))
    except (InputError, ValueError):
        return None


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
