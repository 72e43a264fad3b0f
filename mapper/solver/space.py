"""The search space: variables with their domains, and the constraints over them.

:func:`check` decides whether an assignment is in the space. It evaluates predicates in plain
Python and shares nothing with the solver, whose answers it validates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from mapper.ast_model.nest import Nest
from mapper.ast_model.nodes import MapId, Parameter
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS, code_domain, contexts_of, derive
from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    value_text,
    variables,
)
from mapper.constraint_rules.rule import Constraint, Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.schedule import DIMENSIONS, VECTOR_CODES, ScheduleCode, code_name

Domain = tuple[int, ...]
# Without a device: what every desktop GPU allows in each dimension.
DEFAULT_LOCAL_LIMIT = 1024

NO_PINS: Mapping[Variable, int] = {}


@dataclass(frozen=True, slots=True)
class Space:
    """Variables with ascending domains, and constraints that speak of these variables only."""

    variables: tuple[tuple[Variable, Domain], ...]
    constraints: tuple[Constraint, ...]

    @property
    def domains(self) -> dict[Variable, Domain]:
        """The domains by variable, in order."""
        return dict(self.variables)


@dataclass(frozen=True, slots=True)
class Violation:
    """A constraint, or a domain, that an assignment breaks."""

    rule: str
    constraint: str
    maps: tuple[MapId, ...]
    buffer: str | None
    sentence: str
    remedy: str


def smooth_numbers(limit: int) -> Domain:
    """The numbers up to ``limit`` with no prime factor above 7: sensible local sizes."""
    found = {1}
    for prime in (2, 3, 5, 7):
        for start in tuple(found):
            value = start * prime
            while value <= limit:
                found.add(value)
                value *= prime
    return tuple(sorted(found))


def build_space(
    nests: Nest | Sequence[Nest],
    mode: Mode = Mode.STRICT,
    options: RuleOptions = DEFAULT_OPTIONS,
    *,
    parameters: Iterable[Parameter] = (),
    device: DeviceProfile | None = None,
    extra: Iterable[Constraint] = (),
) -> Space:
    """The space of a program: a code for each map, tuning parameters, local sizes.

    Local sizes belong to it in strict mode, and in paper mode where ``extra`` speaks of them:
    the paper tunes them later. ``extra`` are constraints beyond those that the nest gives.
    """
    constraints = derive(nests, mode, options, extra)
    mentioned = variables(*(constraint.predicate for constraint in constraints))
    found: list[tuple[Variable, Domain]] = []
    contexts = contexts_of(nests)
    for context in contexts:
        for item in context.maps:
            codes = code_domain(context, item, mode, options)
            found.append((CodeVariable(item.id), tuple(int(code) for code in codes)))
    for parameter in parameters:
        found.append((ParameterVariable(parameter.name), tuple(sorted(set(parameter.values)))))
    for context in contexts:
        for dimension in DIMENSIONS:
            size = LocalSizeVariable(context.nest.name, dimension)
            if mode is Mode.STRICT or size in mentioned:
                found.append((size, smooth_numbers(_local_limit(device, dimension))))
    _refuse_unknown(mentioned, dict(found))
    return Space(tuple(found), constraints)


def _local_limit(device: DeviceProfile | None, dimension: int) -> int:
    if device is None:
        return DEFAULT_LOCAL_LIMIT
    return min(device.max_work_group_size, device.max_work_item_sizes[dimension])


def _refuse_unknown(mentioned: frozenset[Variable], known: Mapping[Variable, Domain]) -> None:
    problems = [
        Problem(str(variable), "a constraint speaks of a variable without a domain")
        for variable in sorted(mentioned - known.keys(), key=str)
    ]
    problems += [
        Problem(str(variable), "no value is allowed")
        for variable, domain in known.items()
        if not domain
    ]
    if problems:
        raise InputError(problems)


def check(space: Space, assignment: Mapping[Variable, int]) -> tuple[Violation, ...]:
    """Everything that the assignment breaks, in the order of the space; empty if valid.

    InputError names variables that are missing or unknown.
    """
    domains = space.domains
    problems = [
        Problem(str(variable), "no value is given", "", _domain_text(variable, domain))
        for variable, domain in space.variables
        if variable not in assignment
    ]
    problems += [
        Problem(str(variable), _unknown_text(variable), str(assignment[variable]))
        for variable in assignment
        if variable not in domains
    ]
    if problems:
        raise InputError(problems)
    found = [
        _outside(variable, assignment[variable], domain)
        for variable, domain in space.variables
        if assignment[variable] not in domain
    ]
    found += [
        Violation(
            constraint.rule,
            constraint.id,
            constraint.subjects,
            constraint.buffer,
            constraint.sentence,
            constraint.remedy,
        )
        for constraint in space.constraints
        if not evaluate(constraint.predicate, assignment)
    ]
    return tuple(found)


def _domain_text(variable: Variable, domain: Domain) -> str:
    return ", ".join(value_text(variable, value) for value in domain)


def _unknown_text(variable: Variable) -> str:
    match variable:
        case CodeVariable(map_id):
            return f"there is no map {map_id}"
        case ParameterVariable(name):
            return f"there is no tuning parameter {name}"
        case LocalSizeVariable(kernel, dimension):
            return f"there is no local size of {kernel} in dimension {dimension} to choose"
        case _:
            assert_never(variable)


def _outside(variable: Variable, value: int, domain: Domain) -> Violation:
    allowed = _domain_text(variable, domain)
    match variable:
        case CodeVariable(map_id):
            rule, sentence = "code-domain", f"map {map_id} cannot be {code_name(value)}"
            if value == ScheduleCode.FUSED:
                rule = "perfect-nesting"
                sentence = (
                    f"map {map_id} is not perfectly nested in another map, so it cannot be fused"
                )
            elif value in VECTOR_CODES:
                rule = "vectorisation"
                sentence = (
                    f"map {map_id} cannot be vectorised: it is not innermost, or nothing is "
                    "known of the elements that neighbouring iterations touch"
                )
            maps: tuple[MapId, ...] = (map_id,)
        case ParameterVariable(name):
            rule, maps = "parameter-domain", ()
            sentence = f"tuning parameter {name} has no value {value}"
        case LocalSizeVariable(kernel, dimension):
            rule, maps = "device-limits", ()
            sentence = f"kernel {kernel} cannot have local size {value} in dimension {dimension}"
        case _:
            assert_never(variable)
    return Violation(rule, f"{rule}/{variable}", maps, None, sentence, f"choose one of {allowed}")


class Row(Mapping[Variable, int]):
    """One of many assignments of the same variables, which share their ``names`` and ``places``:
    a dict of its own would take a hash of each name."""

    __slots__ = ("names", "places", "row")

    def __init__(
        self, names: tuple[Variable, ...], places: Mapping[Variable, int], row: tuple[int, ...]
    ) -> None:
        self.names = names
        self.places = places
        self.row = row

    def __getitem__(self, name: Variable) -> int:
        return self.row[self.places[name]]

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
