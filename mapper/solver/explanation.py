"""Why a space is empty: constraints, restrictions and domains that cannot hold together.

The answer is minimal: without any one of its parts the others can hold together. First
CP-SAT names constraints that are enough for the contradiction (each is guarded by a Boolean
that is assumed to be true), then parts are left out, several at a time and in the end one by
one, for as long as the rest still contradicts itself. While that goes on all domains stand;
of these only those are named, in the end, without which there would be a solution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from mapper.constraint_rules.evaluation import evaluate, evaluate_partial
from mapper.constraint_rules.predicate import TRUE, CodeVariable, Variable
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.rewriting import bind
from mapper.constraint_rules.rule import SCORE
from mapper.errors import LimitError, Problem
from mapper.solver.bounded_solve import solve_within
from mapper.solver.conflict_parts import (
    ConflictPart,
    PartKind,
    part_of_constraint,
    part_of_domain,
    parts_of_restrictions,
)
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.lowering import Lowering
from mapper.solver.model import solver_with
from mapper.solver.restrictions import UNRESTRICTED, Restrictions, check_restrictions
from mapper.solver.space import Domain, Space

# Without its domain a tuning parameter or local size is any whole number from 1 to this.
WIDEST_NUMBER = 4096
# Rules that keep no wrong program out are the first to be left out of a conflict.
_PREFERENCES = PREFERENCES | {SCORE}
# Of constraints that restrictions refute by themselves so many are compared.
_REFUTED_COMPARED = 16
# One test takes at most this share of the time that is left.
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Conflict:
    """Parts that cannot hold together: constraints, then restrictions, then domains.

    ``minimal``: without any one of the parts the others can hold together. Without its domain
    a map may have every code that occurs in the space, and a number is any from 1 to
    ``WIDEST_NUMBER``. False if that was not shown for every part: the time was over, or numbers
    grew too large for the solver.
    """

    parts: tuple[ConflictPart, ...]
    minimal: bool


def explain_conflict(
    space: Space,
    restrictions: Restrictions = UNRESTRICTED,
    *,
    time_limit_s: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Conflict | None:
    """Why nothing in the space agrees with the restrictions; None if something does.

    Raises InputError for restrictions that do not fit the space (one variable left without a
    value is its own explanation), LimitError if it was not decided in time whether the space
    is empty, Cancelled if the caller asked to stop.
    """
    check_restrictions(space, restrictions)
    return _Search(space, restrictions, Watch(SolveLimits(time_s=time_limit_s), cancelled)).run()


class _Undecided(Exception):
    """The time, or the solver's range of integers, did not suffice for one test."""


class _Search:
    """What every test of some parts needs."""

    def __init__(self, space: Space, restrictions: Restrictions, watch: Watch) -> None:
        self._watch = watch
        self._wide = _wide_domains(space)
        self._domain_parts = {
            variable: part_of_domain(variable, domain, self._wide[variable])
            for variable, domain in space.variables
        }
        self._domains = space.domains
        self._stated = (
            *map(part_of_constraint, space.constraints),
            *parts_of_restrictions(restrictions),
        )

    def run(self) -> Conflict | None:
        every_domain = tuple(self._domain_parts.values())
        first = self._first_conflict(every_domain)
        if first is None:
            return None
        stated, minimal = self._shrunk(sorted(first, key=_first_to_leave_out), every_domain)
        occurring = frozenset[Variable]().union(*(part.variables for part in stated))
        limiting = [
            part
            for variable, part in self._domain_parts.items()
            if variable in occurring and self._wide[variable] != self._domains[variable]
        ]
        domains, domains_minimal = self._shrunk(limiting, stated)
        return Conflict(
            (*(part for part in self._stated if part in stated), *domains),
            minimal and domains_minimal,
        )

    def _first_conflict(
        self, every_domain: tuple[ConflictPart, ...]
    ) -> tuple[ConflictPart, ...] | None:
        """Some parts that contradict the domains; None if all can hold together.

        The simplest are looked for first: one constraint that the domains and restrictions
        refute by themselves, then constraints without the preferences.
        """
        refuted = self._refuted(every_domain)
        if refuted is not None:
            return refuted
        try:
            if not self._contradictory((*self._stated, *every_domain), None):
                return None
        except _Undecided as undecided:
            raise LimitError(
                Problem("", "whether any mapping is valid was not decided", str(undecided), "",
                        "--time-limit, or smaller domains")
            ) from None  # fmt: skip
        needed = tuple(part for part in self._stated if part.rule not in _PREFERENCES)
        if len(needed) < len(self._stated):
            try:
                if self._contradictory((*needed, *every_domain), self._share_s()):
                    return needed
            except _Undecided:
                pass
        return self._stated

    def _refuted(self, every_domain: tuple[ConflictPart, ...]) -> tuple[ConflictPart, ...] | None:
        """A constraint that some restrictions refute by themselves, as few as are seen to do.

        No solver is asked: bounds on the values of its terms are enough.
        """
        restrictions = tuple(p for p in self._stated if p.kind is not PartKind.CONSTRAINT)
        domains, single = self._open_domains((*self._stated, *every_domain))
        refuted = [part for part in self._stated if _is_refuted(part, domains, single)]
        refuted.sort(key=_first_to_leave_out, reverse=True)
        found: list[tuple[ConflictPart, ...]] = []
        for constraint in refuted[:_REFUTED_COMPARED]:
            limits = tuple(part for part in restrictions if part.variables <= constraint.variables)
            for part in limits:
                fewer = tuple(other for other in limits if other is not part)
                domains, single = self._open_domains((constraint, *fewer, *every_domain))
                if _is_refuted(constraint, domains, single):
                    limits = fewer
            found.append((constraint, *limits))
        return min(
            found, key=lambda parts: (parts[0].rule in _PREFERENCES, len(parts)), default=None
        )

    def _shrunk(
        self, candidates: Iterable[ConflictPart], fixed: tuple[ConflictPart, ...]
    ) -> tuple[tuple[ConflictPart, ...], bool]:
        """The candidates that are needed beside what is fixed, and whether all were tested.

        The first candidates are left out first, more of them at a time while that goes well.
        """
        left = self._enough(tuple(candidates), fixed)
        needed: list[ConflictPart] = []
        untested = False
        size = max(1, len(left) // 2)
        while left:
            rest = (*needed, *left[size:])
            try:
                found = self._sufficient(rest, fixed)
            except _Undecided:
                found, untested = None, untested or size == 1
            if found is not None:
                needed = [part for part in needed if part in found]
                left = tuple(part for part in left[size:] if part in found)
                size *= 2
            elif size > 1:
                size //= 2
            else:
                needed.append(left[0])
                left = left[1:]
        return tuple(needed), not untested

    def _enough(
        self, parts: tuple[ConflictPart, ...], fixed: tuple[ConflictPart, ...]
    ) -> tuple[ConflictPart, ...]:
        """Of contradictory parts as few as the solver names by itself, asked repeatedly."""
        while True:
            try:
                found = self._sufficient(parts, fixed)
            except _Undecided:
                return parts
            if found is None:
                raise AssertionError("what the solver called contradictory has a solution")
            if len(found) == len(parts):
                return parts
            parts = found

    def _sufficient(
        self, parts: Collection[ConflictPart], fixed: Collection[ConflictPart]
    ) -> tuple[ConflictPart, ...] | None:
        """Those parts that contradict what is fixed; None if all can hold together."""
        together = (*parts, *fixed)
        try:
            core = self._core(together)
        except _Undecided:
            # The unguarded model bounds products by the constraint that they stand in, and is
            # simplified before it is solved; but it names no parts.
            return tuple(parts) if self._contradictory(together, self._share_s()) else None
        return None if core is None else tuple(part for part in parts if part in core)

    def _share_s(self) -> float | None:
        left_s = self._watch.left_s
        return None if left_s is None else left_s * _SHARE

    def _open_domains(
        self, parts: Iterable[ConflictPart]
    ) -> tuple[dict[Variable, Domain], dict[Variable, int]]:
        """The domains that the parts leave to the variables of their constraints.

        The second are the values of variables that have one value only.
        """
        limits: dict[Variable, list[ConflictPart]] = {}
        for part in parts:
            if part.kind is not PartKind.CONSTRAINT:
                (variable,) = part.variables
                limits.setdefault(variable, []).append(part)
        occurring = frozenset[Variable]().union(
            *(part.variables for part in parts if part.kind is PartKind.CONSTRAINT)
        )
        domains = {
            variable: self._limited(variable, limits.get(variable, ()))
            for variable in self._domains
            if variable in occurring
        }
        single = {variable: values[0] for variable, values in domains.items() if len(values) == 1}
        return {v: values for v, values in domains.items() if v not in single}, single

    def _limited(self, variable: Variable, limits: Iterable[ConflictPart]) -> Domain:
        """What restrictions and perhaps its domain leave of a variable: never nothing."""
        domain = self._wide[variable]
        restrictions: list[ConflictPart] = []
        for part in limits:
            if part.kind is PartKind.DOMAIN:
                domain = self._domains[variable]
            else:
                restrictions.append(part)
        return tuple(
            value
            for value in domain
            if all(evaluate(part.predicate, {variable: value}) for part in restrictions)
        )

    def _contradictory(self, parts: Collection[ConflictPart], at_most_s: float | None) -> bool:
        """Whether the parts have no common solution; nothing is guarded."""
        domains, single = self._open_domains(parts)
        try:
            lowering = Lowering(domains)
            for part in parts:
                if part.kind is PartKind.CONSTRAINT:
                    self._watch.tick()
                    lowering.add(bind(part.predicate, single))
        except LimitError as error:
            raise _Undecided(error.problems[0].message) from None
        status = solve_within(self._watch, solver_with(), lowering.cp.model, at_most_s=at_most_s)
        return _is_infeasible(status)

    def _core(self, parts: Collection[ConflictPart]) -> frozenset[ConflictPart] | None:
        """Constraints that are enough for a contradiction, with what limits their variables."""
        domains, single = self._open_domains(parts)
        for part in parts:
            if _is_refuted(part, domains, single):
                return _with_limits({part}, parts)
        guards: dict[int, ConflictPart] = {}
        try:
            lowering = Lowering(domains)
            for part in parts:
                if part.kind is not PartKind.CONSTRAINT:
                    continue
                self._watch.tick()
                predicate = bind(part.predicate, single)
                if predicate != TRUE:
                    guard = lowering.cp.new_boolean()
                    guards[guard] = part
                    lowering.add_if(guard, predicate)
        except LimitError as error:
            raise _Undecided(error.problems[0].message) from None
        lowering.cp.assume(guards)
        solver = solver_with()
        # Presolve would rename the Booleans that the answer is made of.
        solver.parameters.cp_model_presolve = False
        status = solve_within(self._watch, solver, lowering.cp.model, at_most_s=self._share_s())
        if not _is_infeasible(status):
            return None
        named = {guards[index] for index in solver.sufficient_assumptions_for_infeasibility()}
        return _with_limits(named, parts)


def _is_refuted(
    part: ConflictPart, domains: Mapping[Variable, Domain], single: Mapping[Variable, int]
) -> bool:
    """Whether bounds on the values of its terms are enough to see that a constraint fails."""
    return (
        part.kind is PartKind.CONSTRAINT
        and evaluate_partial(part.predicate, single, domains) is False
    )


def _with_limits(
    constraints: Collection[ConflictPart], parts: Iterable[ConflictPart]
) -> frozenset[ConflictPart]:
    """The constraints, and those other parts that limit their variables."""
    limited = frozenset[Variable]().union(*(part.variables for part in constraints))
    limits = (part for part in parts if part.kind is not PartKind.CONSTRAINT)
    return frozenset((*constraints, *(part for part in limits if part.variables <= limited)))


def _is_infeasible(status: cp_model.CpSolverStatus) -> bool:
    if status == cp_model.INFEASIBLE:
        return True
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return False
    raise _Undecided("the time limit was reached")


def _wide_domains(space: Space) -> dict[Variable, Domain]:
    """What each variable could be if nothing limited it."""
    codes: set[int] = set()
    for variable, domain in space.variables:
        if isinstance(variable, CodeVariable):
            codes |= set(domain)
    every_code = tuple(sorted(codes))
    numbers = range(1, WIDEST_NUMBER + 1)
    return {
        variable: every_code
        if isinstance(variable, CodeVariable)
        else tuple(sorted({*domain, *numbers}))
        for variable, domain in space.variables
    }


def _first_to_leave_out(part: ConflictPart) -> tuple[bool, bool, int]:
    """What says least about the cause: preferences, then constraints over many variables."""
    return (
        part.rule not in _PREFERENCES,
        part.kind is not PartKind.CONSTRAINT,
        -len(part.variables),
    )
