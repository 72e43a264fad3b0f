"""The part of CP-SAT's modelling interface that lowering needs, typed.

A variable is its index; a literal is the index of a Boolean, or ``~index`` for its negation; a
:class:`Linear` is a constant and coefficients by variable. OR-Tools' own stubs leave most of
this untyped, which stays in this file.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

Literal = int


@dataclass(frozen=True, slots=True)
class Linear:
    """``constant`` plus coefficients times variables."""

    constant: int
    coefficients: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Linear) -> Linear:
        total = dict(self.coefficients)
        for index, coefficient in other.coefficients:
            total[index] = total.get(index, 0) + coefficient
        kept = tuple((index, value) for index, value in total.items() if value)
        return Linear(self.constant + other.constant, kept)

    def scaled(self, factor: int) -> Linear:
        """This times an integer."""
        if factor == 0:
            return Linear(0)
        return Linear(
            self.constant * factor,
            tuple((index, value * factor) for index, value in self.coefficients),
        )

    @property
    def variable(self) -> int | None:
        """The variable, if this is just one."""
        if self.constant == 0 and len(self.coefficients) == 1:
            index, coefficient = self.coefficients[0]
            return index if coefficient == 1 else None
        return None


def linear_variable(index: int) -> Linear:
    """A variable as a linear expression."""
    return Linear(0, ((index, 1),))


class CpSat:
    """A CP-SAT model under construction."""

    def __init__(self) -> None:
        self.model = cp_model.CpModel()
        self._variables: list[cp_model.IntVar] = []
        self._negations: dict[int, cp_model.LiteralT] = {}
        self.true: Literal = self.new_integer(1, 1)

    def clone(self) -> CpSat:
        """A copy that can grow on its own; indices keep their meaning."""
        copy = CpSat()
        copy.model = self.model.clone()
        # Variables know their model, so each copy has its own.
        copy._variables = [
            copy.model.get_int_var_from_proto_index(variable.index) for variable in self._variables
        ]
        copy._negations = {}
        return copy

    def _enter(self, variable: cp_model.IntVar) -> int:
        self._variables.append(variable)
        return len(self._variables) - 1

    def variable(self, index: int) -> cp_model.IntVar:
        """OR-Tools' own variable."""
        return self._variables[index]

    def new_boolean(self, name: str = "") -> int:
        """A new Boolean."""
        return self._enter(self.model.new_bool_var(name))

    def new_integer(self, low: int, high: int) -> int:
        """A new integer between bounds."""
        return self._enter(self.model.new_int_var(low, high, ""))

    def new_integer_of(self, values: Iterable[int], name: str = "") -> int:
        """A new integer with these values."""
        domain = cp_model.Domain.from_values(list(values))
        return self._enter(self.model.new_int_var_from_domain(domain, name))

    def literal(self, index: Literal) -> cp_model.LiteralT:
        """OR-Tools' own literal."""
        if index >= 0:
            return self._variables[index]
        known = self._negations.get(index)
        if known is None:
            known = self._negations[index] = self._variables[~index].negated()
        return known

    def _literals(self, literals: Iterable[Literal]) -> list[cp_model.LiteralT]:
        return [self.literal(index) for index in literals]

    def _guard(self, constraint: cp_model.Constraint, when: Literal | None) -> None:
        if when is not None:
            constraint.only_enforce_if([self.literal(when)])

    def some(self, literals: Iterable[Literal], when: Literal | None = None) -> None:
        """At least one literal holds."""
        self._guard(self.model.add_bool_or(self._literals(literals)), when)

    def every(self, literals: Iterable[Literal], when: Literal | None = None) -> None:
        """All literals hold."""
        self._guard(self.model.add_bool_and(self._literals(literals)), when)

    def exactly_one(self, literals: Iterable[Literal]) -> None:
        """Exactly one literal holds."""
        self.model.add_exactly_one(self._literals(literals))

    def expression(self, linear: Linear) -> cp_model.LinearExpr:
        """OR-Tools' own linear expression."""
        weighted = cp_model.LinearExpr.weighted_sum(
            [self._variables[index] for index, _ in linear.coefficients],
            [coefficient for _, coefficient in linear.coefficients],
        )
        return weighted + linear.constant

    def bounds(self, linear: Linear) -> tuple[int, int]:
        """Numbers that the domains of its variables do not let the expression be below or above."""
        low = high = linear.constant
        for index, coefficient in linear.coefficients:
            domain = list(self._variables[index].proto.domain)
            ends = sorted((coefficient * domain[0], coefficient * domain[-1]))
            low, high = low + ends[0], high + ends[1]
        return low, high

    def within(self, linear: Linear, domain: cp_model.Domain, when: Literal | None = None) -> None:
        """The expression has a value in the domain."""
        constraint = self.model.add_linear_expression_in_domain(self.expression(linear), domain)
        self._guard(constraint, when)

    def equal(self, left: Linear, right: Linear, when: Literal | None = None) -> None:
        """Both have one value."""
        self.within(left + right.scaled(-1), cp_model.Domain(0, 0), when)

    def product(self, target: int, left: int, right: int) -> None:
        """``target = left * right``."""
        variables = self._variables
        self.model.add_multiplication_equality(
            variables[target], [variables[left], variables[right]]
        )

    def largest(self, target: int, terms: Iterable[Linear]) -> None:
        """``target = max(terms)``."""
        self.model.add_max_equality(
            self._variables[target], [self.expression(term) for term in terms]
        )

    def smallest(self, target: int, terms: Iterable[Linear]) -> None:
        """``target = min(terms)``."""
        self.model.add_min_equality(
            self._variables[target], [self.expression(term) for term in terms]
        )

    def at_least(self, larger: Linear, smaller: Linear, when: Literal | None = None) -> None:
        """``larger >= smaller``."""
        bounded = self.expression(larger) >= self.expression(smaller)
        self._guard(self.model.add(bounded), when)

    def element(self, target: int, place: Linear, values: Sequence[int]) -> None:
        """``target = values[place]``, and ``place`` is one of these places."""
        self.model.add_element(self.expression(place), list(values), self._variables[target])

    def table(self, columns: Sequence[int], rows: Sequence[Sequence[int]]) -> None:
        """The columns have the values of one of the rows."""
        self.model.add_allowed_assignments([self._variables[index] for index in columns], rows)

    def weighted(self, weights: Mapping[int, int]) -> Linear:
        """The sum of the weights of the Booleans that are true."""
        return Linear(0, tuple(weights.items()))

    def maximise(self, linear: Linear) -> None:
        """Look for the largest value of the expression."""
        self.model.maximize(self.expression(linear))

    def minimise(self, linear: Linear) -> None:
        """Look for the smallest value of the expression."""
        self.model.minimize(self.expression(linear))

    def drop_objective(self) -> None:
        """Look for any solution again, and forget the hints."""
        self.model.clear_objective()
        self.model.clear_hints()

    def hint(self, index: int, value: int) -> None:
        """Try this value first."""
        self.model.add_hint(self._variables[index], value)

    def assume(self, indices: Iterable[int]) -> None:
        """These Booleans are true; the solver then says which of them cannot be together."""
        self.model.add_assumptions([self._variables[index] for index in indices])

    def decide_in_order(self, indices: Iterable[int]) -> None:
        """Decide the Booleans in this order, each true first: for a fixed search."""
        ordered = [self._variables[index] for index in indices]
        if ordered:
            self.model.add_decision_strategy(
                ordered, cp_model.CHOOSE_FIRST, cp_model.SELECT_MAX_VALUE
            )

    def decide_smallest(self, index: int) -> None:
        """Decide this integer next, its smallest value first: for a fixed search."""
        self.model.add_decision_strategy(
            [self._variables[index]], cp_model.CHOOSE_FIRST, cp_model.SELECT_MIN_VALUE
        )
