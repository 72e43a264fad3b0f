"""A schedule in the making: the program so far and the uses that led there."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.ast_model.nodes import Program
from mapper.errors import InputError
from mapper.schedules.schedule import Schedule, Use, Value, applied, use


@dataclass(frozen=True, slots=True)
class Draft:
    """A value: drafts that begin alike share what they began with, which is derived once."""

    program: Program
    uses: tuple[Use, ...] = ()

    def then(self, primitive: str, *positional: Value, **keyword: Value) -> Draft:
        """With one step more; NotApplicable where it does not apply."""
        item = use(primitive, *positional, **keyword)
        return Draft(applied(self.program, item).program, (*self.uses, item))

    def maybe(self, primitive: str, *positional: Value, **keyword: Value) -> Draft:
        """With one step more where it applies, else as it is."""
        try:
            return self.then(primitive, *positional, **keyword)
        except InputError:
            return self


@dataclass(frozen=True, slots=True)
class Sketch:
    """A schedule with open sizes, and why it is worth having; ``program`` is what it derives."""

    name: str
    reason: str
    schedule: Schedule
    program: Program
