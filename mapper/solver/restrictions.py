"""What a user fixes, forbids or prefers in a space.

Pins, sets of allowed values and forbidden values only ever take values away: together they
give another, narrower space (:func:`narrowed`) with the same constraints, which is solved,
counted and sampled like any other. Preferences take nothing away; they order what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mapper.constraint_rules.predicate import Variable, value_text
from mapper.errors import InputError, Problem
from mapper.solver.space import Domain, Space

# The sum of all weights has to stay far below what a solver computes in.
MAX_WEIGHT = 1_000_000
_MOST_VALUES_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Restrictions:
    """``pins`` fix a variable to one value, ``allowed`` to one of several, ``forbidden`` takes
    single values away; ``preferred`` gives a weight of at least 1 to a variable having a value.

    Nothing is checked here, since no space is known: see :func:`check_restrictions`.
    """

    pins: Mapping[Variable, int] = field(default_factory=dict[Variable, int])
    allowed: Mapping[Variable, frozenset[int]] = field(
        default_factory=dict[Variable, frozenset[int]]
    )
    forbidden: Mapping[Variable, frozenset[int]] = field(
        default_factory=dict[Variable, frozenset[int]]
    )
    preferred: Mapping[tuple[Variable, int], int] = field(
        default_factory=dict[tuple[Variable, int], int]
    )

    @property
    def narrows(self) -> bool:
        """True if some value is taken away: preferences alone leave a space as it is."""
        return bool(self.pins or self.allowed or self.forbidden)

    def keeps(self, variable: Variable, value: int) -> bool:
        """Whether the variable may still have the value."""
        return (
            self.pins.get(variable, value) == value
            and value in self.allowed.get(variable, (value,))
            and value not in self.forbidden.get(variable, ())
        )

    def score(self, assignment: Mapping[Variable, int]) -> int:
        """The sum of the weights of the preferences that an assignment meets."""
        return sum(
            weight
            for (variable, value), weight in self.preferred.items()
            if assignment[variable] == value
        )


UNRESTRICTED = Restrictions()


def check_restrictions(space: Space, restrictions: Restrictions) -> None:
    """Raise InputError if the restrictions do not fit the space.

    It names each unknown variable, each value outside its domain with what is allowed, each
    weight outside 1 to ``MAX_WEIGHT``, and each variable that would be left without a value.
    """
    domains = space.domains
    problems: list[Problem] = []
    for variable, value, what in _named(restrictions):
        domain = domains.get(variable)
        if domain is None:
            problems.append(
                Problem(str(variable), f"there is no such variable, so it cannot be {what}")
            )
        elif value not in domain:
            problems.append(
                Problem(
                    str(variable),
                    f"does not have the value that is {what}",
                    value_text(variable, value),
                    values_text(variable, domain),
                )
            )
    for (variable, value), weight in restrictions.preferred.items():
        if not 1 <= weight <= MAX_WEIGHT:
            where = f"{variable}={value_text(variable, value)}"
            problems.append(
                Problem(where, "the weight is out of range", str(weight), f"1 to {MAX_WEIGHT}")
            )
    if not problems:
        problems += [
            Problem(
                str(variable),
                "no value is left: what is pinned or allowed is forbidden too",
                values_text(variable, domain),
                "",
                "fewer pins, or forbid less",
            )
            for variable, domain in space.variables
            if not any(restrictions.keeps(variable, value) for value in domain)
        ]
    if problems:
        raise InputError(problems)


def narrowed(space: Space, restrictions: Restrictions) -> Space:
    """The space without the values that are restricted away; no domain of it is empty.

    InputError as :func:`check_restrictions` raises it.
    """
    check_restrictions(space, restrictions)
    if not restrictions.narrows:
        return space
    return Space(
        tuple(
            (variable, tuple(value for value in domain if restrictions.keeps(variable, value)))
            for variable, domain in space.variables
        ),
        space.constraints,
    )


def values_text(variable: Variable, values: Domain) -> str:
    """Values in words; of many only the first ones, and how many more there are."""
    shown = ", ".join(value_text(variable, value) for value in values[:_MOST_VALUES_SHOWN])
    more = len(values) - _MOST_VALUES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _named(restrictions: Restrictions) -> Iterator[tuple[Variable, int, str]]:
    """Each variable and value that is spoken of, and what is to become of it."""
    for variable, value in restrictions.pins.items():
        yield variable, value, "pinned"
    for variable, values in restrictions.allowed.items():
        for value in sorted(values):
            yield variable, value, "allowed"
    for variable, values in restrictions.forbidden.items():
        for value in sorted(values):
            yield variable, value, "forbidden"
    for variable, value in restrictions.preferred:
        yield variable, value, "preferred"
