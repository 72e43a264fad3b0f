"""The analytic prediction as an objective of CP-SAT that is never above it.

A term of the time is a product of numbers that the solver chooses, so its logarithm is a sum: of a
table by the values of each tuning parameter, of what codes add, of the share of the busiest
compute unit and of idle lanes, tables by work-groups and by work-items of a group. Logarithms are
whole numbers of steps, rounded down. The exponential is convex: no term is below any of its
tangents, which are linear. See docs/decisions/0018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log

from ortools.sat.python import cp_model

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import Program
from mapper.constraint_rules.predicate import (
    IntTerm,
    ParameterVariable,
    Predicate,
    add,
    floor_divide,
    member,
    multiply,
    term_of,
)
from mapper.constraint_rules.rewriting import bind, bind_term
from mapper.cost.analytic import (
    MOST_RESIDENT,
    REGISTER_BYTES,
    DeviceConstants,
    register_bytes,
)
from mapper.cost.time_terms import KernelTime, TimeTerm, program_time
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.schedule import DIMENSIONS
from mapper.solver.cp_sat import CpSat, Linear, linear_variable
from mapper.solver.model import Model

#: Steps of a logarithm of base e.
_STEPS = 1 << 13
#: The reference time in units of the objective.
_UNITS = 1 << 20
#: Tangents touch from so many units on, each time this much further, up to so many reference times.
_FIRST_TANGENT = 1 << 5
_TANGENTS_APART = 1.15
_MOST_REFERENCES = 64
_LONGEST = 1 << 40
#: The logarithm of nothing: no term is so small that this would matter.
_NOTHING = -80.0
#: Work-groups beyond so many are as good as so many. A product of two of these is a number yet.
_MOST_GROUPS = 1 << 22
#: From so many work-groups for each compute unit on a ragged last wave does not matter.
_SHARED_WAVES = 16
_LEAST_SHARED = 256
#: Values of a polynomial over several parameters that have a table of logarithms.
_MOST_VALUES = 1 << 14


@dataclass(frozen=True, slots=True)
class RelaxedTime:
    """The objective of a model; ``linear`` is a number of units of ``unit_ms``."""

    linear: Linear
    unit_ms: float

    def bound_ms(self, units: float) -> float:
        """What no prediction is below if the objective is not below so many units."""
        return max(0.0, units) * self.unit_ms


def add_relaxed_time(
    model: Model,
    program: Program,
    device: DeviceProfile,
    constants: DeviceConstants,
    reference_ms: float,
) -> RelaxedTime:
    """Put the relaxed prediction of a program into the model of its space, and minimise it.

    ``reference_ms`` is a time that some candidate is predicted to take: from a 2^15th of it on
    terms are told apart, and up to 64 times it the bound is within about 1 % of the prediction's
    parts. LimitError where numbers are too large for the solver.
    """
    builder = _Builder(model, device, constants, reference_ms * 1e6 / _UNITS)
    total = Linear(0)
    for time in program_time(program, model.space.domains, constants):
        total = total + builder.kernel(time)
    model.lowering.cp.minimise(total)
    return RelaxedTime(total, reference_ms / _UNITS)


def _steps(logarithm: float) -> int:
    return floor(logarithm * _STEPS)


class _Builder:
    """Puts one kernel after the other into a model."""

    def __init__(
        self, model: Model, device: DeviceProfile, constants: DeviceConstants, unit_ns: float
    ) -> None:
        self._lowering = model.lowering
        self._cp: CpSat = model.lowering.cp
        self._pins = model.pins
        self._domains = model.space.domains
        self._device = device
        self._constants = constants
        self._unit_ns = unit_ns
        self._logarithms: dict[tuple[Expr, bool], Linear] = {}

    def kernel(self, time: KernelTime) -> Linear:
        """The units of a kernel."""
        group = self._integer(multiply(*time.sizes))
        groups = self._groups(time)
        share = self._share(groups)
        idle = self._by_work_items(group, self._idle_lanes())
        private = self._private(time)
        waves = self._waves(time, groups, group, private)
        total = Linear(floor(self._constants.launches / self._unit_ns))
        total = total + waves.scaled(floor(self._constants.waves / self._unit_ns))
        spilt = self._spilt(private) if any(t.spills for t in time.terms) else Linear(0)
        for term in time.terms:
            logarithm = self._logarithm(term) + share
            if term.idle:
                logarithm = logarithm + idle
            if term.spills:
                logarithm = logarithm + spilt
            total = total + self._exponential(logarithm)
        return total

    def _integer(self, term: IntTerm) -> Linear:
        return self._lowering.term(bind_term(term, self._pins))

    def _variable(self, low: int, high: int) -> tuple[int, Linear]:
        index = self._cp.new_integer(low, high)
        return index, linear_variable(index)

    # What is shared out

    def _groups(self, time: KernelTime) -> Linear:
        """Work-groups, as far as they matter."""
        total = Linear(1)
        for d in DIMENSIONS:
            size, trip = time.sizes[d], time.global_trips[d]
            wanted = floor_divide(add(trip, size, -1), size)
            total = self._capped(total, self._capped(Linear(1), self._integer(wanted)))
            total = self._capped(total, self._capped(Linear(1), self._integer(time.work_groups[d])))
        return total

    def _capped(self, left: Linear, right: Linear) -> Linear:
        """The product of numbers from 1 on, or the cap if it is larger."""
        return self._smaller(self._product(left, right), _MOST_GROUPS)

    def _smaller(self, linear: Linear, most: int) -> Linear:
        """The smaller of an expression and a number."""
        low, high = self._cp.bounds(linear)
        if high <= most:
            return linear
        index, smaller = self._variable(min(low, most), most)
        self._cp.smallest(index, [linear, Linear(most)])
        return smaller

    def _product(self, left: Linear, right: Linear) -> Linear:
        """The product of numbers from 0 on."""
        if not left.coefficients:
            return right.scaled(left.constant)
        if not right.coefficients:
            return left.scaled(right.constant)
        (low, high), (other_low, other_high) = self._cp.bounds(left), self._cp.bounds(right)
        index, product = self._variable(low * other_low, high * other_high)
        self._cp.product(index, self._own(left), self._own(right))
        return product

    def _own(self, linear: Linear) -> int:
        """A variable that equals an expression."""
        if linear.variable is not None:
            return linear.variable
        index, own = self._variable(*self._cp.bounds(linear))
        self._cp.equal(own, linear)
        return index

    def _looked_up(self, place: Linear, values: list[int], first: int = 0) -> Linear:
        """The value at a place, of those at which it may be; ``values`` are from ``first`` on."""
        low, high = self._cp.bounds(place)
        values = values[low - first : high + 1 - first]
        if len(set(values)) == 1:
            return Linear(values[0])
        index, found = self._variable(min(values), max(values))
        self._cp.element(index, place + Linear(-low), values)
        return found

    def _share(self, groups: Linear) -> Linear:
        """The logarithm of the part of all work-groups that the busiest compute unit has."""
        units = self._device.compute_units
        most = max(_LEAST_SHARED, _SHARED_WAVES * units)
        values = [0, *(_steps(log(-(-n // units) / n)) for n in range(1, most))]
        return self._looked_up(self._smaller(groups, most), [*values, _steps(-log(units))])

    def _by_work_items(self, group: Linear, values: list[int]) -> Linear:
        return self._looked_up(group, values)

    def _idle_lanes(self) -> list[int]:
        """By work-items of a group, the logarithm of how much longer it takes than one work-item
        after the other would in a lane each."""
        lanes = self._constants.lanes
        most = self._device.max_work_group_size
        return [
            0,
            *(_steps(log(-(-n // lanes) * lanes / n / min(n, lanes))) for n in range(1, most + 1)),
        ]

    def _waves(self, time: KernelTime, groups: Linear, group: Linear, private: Linear) -> Linear:
        """Waves of work-groups."""
        if not self._constants.waves:
            return Linear(0)
        most = self._device.max_work_group_size
        by_items = [0, *(max(1, 2 * most // items) for items in range(1, most + 1))]
        held = self._by_work_items(group, by_items)
        _, resident = self._variable(1, MOST_RESIDENT)
        self._cp.at_least(held, resident)
        self._hold(self._device.local_bytes, self._integer(time.local_bytes), resident)
        registers = self._product(group, private)
        self._hold(register_bytes(self._device), registers, resident)
        units = self._device.compute_units
        _, waves = self._variable(1, -(-self._cp.bounds(groups)[1] // units))
        at_once = self._product(waves, resident).scaled(units)
        self._cp.at_least(at_once, groups)
        return waves

    def _hold(self, available: int, needed: Linear, resident: Linear) -> None:
        """No more work-groups are resident than have what they need, but always one."""
        for number in range(1, MOST_RESIDENT):
            enough = self._cp.new_boolean()
            few = cp_model.Domain(1, number)
            self._cp.within(resident, few, when=~enough)
            self._cp.at_least(Linear(available // (number + 1)), needed, when=enough)

    def _private(self, time: KernelTime) -> Linear:
        """Private bytes of a work-item; no valid candidate has more than the device allows."""
        sums = [self._integer(part) for part in time.private_bytes]
        index, most = self._variable(0, self._device.private_bytes)
        self._cp.largest(index, [*sums, Linear(0)])
        return most

    def _spilt(self, private_bytes: Linear) -> Linear:
        """The logarithm of the part of private arrays that is too large for registers."""
        values = [
            _steps(_NOTHING if n <= REGISTER_BYTES else log((n - REGISTER_BYTES) / n))
            for n in range(self._device.private_bytes + 1)
        ]
        return self._looked_up(private_bytes, values)

    # Logarithms

    def _logarithm(self, term: TimeTerm) -> Linear:
        """Of a term in units, before it is shared out."""
        total = Linear(_steps(term.log_ns - log(self._unit_ns)))
        for addend in term.addends:
            total = total + self._addend(*addend)
        own: dict[ParameterVariable, list[tuple[Expr, int]]] = {}
        for expression, power in term.factors:
            names = sorted(expression.names())
            if len(names) == 1:
                own.setdefault(ParameterVariable(names[0]), []).append((expression, power))
            else:
                total = total + self._polynomial(expression, power > 0).scaled(power)
        for name, factors in own.items():
            total = total + self._by_value(name, factors)
        return total

    def _addend(self, predicate: Predicate, logarithm: float) -> Linear:
        literal = self._lowering.literal(bind(predicate, self._pins))
        return self._weighted(literal, _steps(logarithm))

    def _by_value(self, name: ParameterVariable, factors: list[tuple[Expr, int]]) -> Linear:
        """What one parameter adds, by its value."""
        pinned = self._pins.get(name)
        domain: tuple[int, ...] = self._domains[name] if pinned is None else (pinned,)
        total = Linear(0)
        for value in domain:
            steps = _steps(_logarithm_at(factors, {name.name: value}))
            if pinned is not None:
                return Linear(steps)
            literal = self._lowering.literal(member(name, (value,)))
            total = total + self._weighted(literal, steps)
        return total

    def _weighted(self, literal: int, steps: int) -> Linear:
        if literal >= 0:
            return Linear(0, ((literal, steps),))
        return Linear(steps, ((~literal, -steps),))

    def _polynomial(self, expression: Expr, down: bool) -> Linear:
        """The logarithm of a polynomial over several parameters, rounded down or up."""
        known = self._logarithms.get((expression, down))
        if known is None:
            known = self._logarithms[expression, down] = self._new_polynomial(expression, down)
        return known

    def _new_polynomial(self, expression: Expr, down: bool) -> Linear:
        term = bind_term(term_of(expression, {}), self._pins)
        low, high = self._lowering.bounds(term)
        low = max(1, low)

        def steps(value: int) -> int:
            return _steps(log(value)) + (not down)

        if high - low >= _MOST_VALUES:
            return Linear(steps(low if down else high))
        place = self._lowering.term(term)
        # As far as bounds of parts tell, it may be negative: no valid candidate has it so.
        first, last = self._cp.bounds(place)
        values = [steps(max(value, low)) for value in range(first, last + 1)]
        return self._looked_up(place, values, first)

    def _exponential(self, logarithm: Linear) -> Linear:
        """At least e to the power of a logarithm, as far as its tangents say."""
        # One variable in each tangent, not the dozens that the logarithm is a sum of: with these
        # the presolve of OR-Tools 9.15 lost candidates, and solving took longer.
        logarithm = linear_variable(self._own(logarithm))
        _, units = self._variable(0, _LONGEST)
        touch = _FIRST_TANGENT
        while touch < _MOST_REFERENCES * _UNITS:
            # units >= touch * (1 + logarithm - log(touch)), times the steps, rounded down.
            rest = floor(touch * _STEPS * (1 - log(touch))) - _STEPS
            self._cp.at_least(units.scaled(_STEPS), logarithm.scaled(touch) + Linear(rest))
            touch = int(touch * _TANGENTS_APART) + 1
        return units


def _logarithm_at(factors: list[tuple[Expr, int]], values: Mapping[str, int]) -> float:
    total = 0.0
    for expression, power in factors:
        try:
            value = expression.evaluate(values)
        except InputError:
            return _NOTHING
        # No trip count is 0: whatever allows this value of the parameter has none of it.
        if value < 1:
            return _NOTHING
        total += power * log(value)
    return total
