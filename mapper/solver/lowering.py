"""Predicates as CP-SAT constraints, every helper fully reified.

A half-reified helper Boolean gives duplicate solutions, and a free guard wrong ones; so each
literal here is equivalent to its predicate, and each integer equals its term. Equal parts are
lowered once. Variables with small domains are one Boolean per value; terms that are not
linear, over few values, become tables, which propagate best.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from typing import assert_never

from ortools.sat.python import cp_model

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.evaluation import (
    Interval,
    divide_bounds,
    evaluate,
    is_linear,
    modulo_bounds,
    term_bounds,
)
from mapper.constraint_rules.predicate import (
    FALSE,
    OPPOSITE,
    And,
    CodeVariable,
    Compare,
    FloorDiv,
    IntConst,
    IntTerm,
    LocalSizeVariable,
    Maximum,
    Member,
    Modulo,
    Not,
    Or,
    ParameterVariable,
    Predicate,
    Product,
    Select,
    Sum,
    Truth,
    Variable,
    variables,
)
from mapper.errors import LimitError, Problem
from mapper.solver.cp_sat import CpSat, Linear, Literal, linear_variable

SMALL_DOMAIN = 32
TABLE_ROWS = 4096
# CP-SAT computes in 64 bits and wants room for sums.
LARGEST = 2**60
# OR-Tools 9.15 loses rows of tables with larger numbers if it does not presolve.
LARGEST_CELL = 2**31 - 1


class Lowering:
    """Lowers predicates over variables with these domains into one model."""

    def __init__(self, domains: Mapping[Variable, tuple[int, ...]]) -> None:
        self.cp = CpSat()
        self.domains: dict[Variable, tuple[int, ...]] = {}
        self._values: dict[Variable, dict[int, int]] = {}
        self._integers: dict[Variable, int] = {}
        self._places: dict[Variable, int] = {}
        self._literals: dict[Predicate, Literal] = {}
        self._conjunctions: dict[frozenset[Literal], Literal] = {}
        self._terms: dict[IntTerm, Linear] = {}
        self._divisions: dict[tuple[IntTerm, IntTerm], tuple[Linear, Linear]] = {}
        self._ceilings: dict[IntTerm, int] = {}
        for variable, domain in domains.items():
            self._declare(variable, domain)

    def _declare(self, variable: Variable, domain: tuple[int, ...]) -> None:
        self.domains[variable] = domain
        if len(domain) > SMALL_DOMAIN:
            self._integers[variable] = self._new_integer(variable, domain)
            return
        values = {value: self.cp.new_boolean(f"{variable}={value}") for value in domain}
        self.cp.exactly_one(values.values())
        self._values[variable] = values

    def clone(self, domains: Mapping[Variable, tuple[int, ...]]) -> Lowering:
        """A copy that can grow on its own, with further variables declared."""
        copy = Lowering({})
        copy.cp = self.cp.clone()
        copy.domains = dict(self.domains)
        copy._values = dict(self._values)
        copy._integers = dict(self._integers)
        copy._places = dict(self._places)
        copy._literals = dict(self._literals)
        copy._conjunctions = dict(self._conjunctions)
        copy._terms = dict(self._terms)
        copy._divisions = dict(self._divisions)
        copy._ceilings = dict(self._ceilings)
        for variable, domain in domains.items():
            copy._declare(variable, domain)
        return copy

    def add(self, predicate: Predicate) -> None:
        """The predicate must hold."""
        if isinstance(predicate, Compare):
            self._note_ceiling(predicate)
        if isinstance(predicate, Compare) and not self._in_table(predicate):
            if not self._clauses_that_differ([], predicate):
                self._relate(
                    predicate.relation, self.term(predicate.left), self.term(predicate.right)
                )
            return
        self._add_clause([], predicate)

    def add_if(self, guard: Literal, predicate: Predicate) -> None:
        """The predicate must hold where the guard does; elsewhere nothing is said of it.

        Helpers inside are equivalent to what they stand for, so that only the guard is free.
        """
        self._add_clause([~guard], predicate)

    def _add_clause(self, others: list[Literal], predicate: Predicate) -> None:
        """The predicate or one of the other literals must hold.

        A conjunction under a disjunction is distributed, which needs no helper Boolean: the
        bans on equal codes of nested maps are most of a model.
        """
        match predicate:
            case And(parts):
                for part in parts:
                    self._add_clause(others, part)
            case Or(parts):
                split = next((part for part in parts if isinstance(part, And)), FALSE)
                split = next((part for part in parts if isinstance(part, Compare)), split)
                rest = [self.literal(part) for part in parts if part is not split]
                self._add_clause([*others, *rest], split)
            case Not(And(parts)):
                self.cp.some([*others, *(~self.literal(part) for part in parts)])
            case Compare() if self._clauses_that_differ(others, predicate):
                pass
            case _:
                self.cp.some([*others, self.literal(predicate)])

    def _clauses_that_differ(self, others: list[Literal], predicate: Compare) -> bool:
        """``x != y`` value by value, if both variables are; else nothing is added."""
        left, right = predicate.left, predicate.right
        if predicate.relation is not Relation.NE:
            return False
        if not (isinstance(left, Variable) and isinstance(right, Variable)):
            return False
        first, second = self._values.get(left), self._values.get(right)
        if first is None or second is None:
            return False
        for value, literal in first.items():
            if value in second:
                self.cp.some([*others, ~literal, ~second[value]])
        return True

    def literal(self, predicate: Predicate) -> Literal:
        """A literal that is true exactly if the predicate holds."""
        known = self._literals.get(predicate)
        if known is None:
            known = self._literals[predicate] = self._new_literal(predicate)
        return known

    def _new_literal(self, predicate: Predicate) -> Literal:
        match predicate:
            case Truth(value):
                return self.cp.true if value else ~self.cp.true
            case Not(part):
                return ~self.literal(part)
            case And(parts):
                return self._conjunction([self.literal(part) for part in parts])
            case Or(parts):
                return ~self._conjunction([~self.literal(part) for part in parts])
            case Member(variable, values):
                return self._member(variable, values)
            case Compare():
                return self._comparison(predicate)
            case _:
                assert_never(predicate)

    def _conjunction(self, literals: Iterable[Literal]) -> Literal:
        parts = frozenset(literals) - {self.cp.true}
        if ~self.cp.true in parts or any(~part in parts for part in parts):
            return ~self.cp.true
        if not parts:
            return self.cp.true
        if len(parts) == 1:
            return next(iter(parts))
        known = self._conjunctions.get(parts)
        if known is None:
            known = self._conjunctions[parts] = self.cp.new_boolean()
            ordered = sorted(parts)
            self.cp.every(ordered, when=known)
            self.cp.some([known, *(~part for part in ordered)])
        return known

    def _member(self, variable: Variable, values: frozenset[int]) -> Literal:
        domain = self.domains[variable]
        inside = [value for value in domain if value in values]
        if not inside:
            return ~self.cp.true
        if len(inside) == len(domain):
            return self.cp.true
        known = self._values.get(variable)
        if known is not None:
            return ~self._conjunction([~known[value] for value in inside])
        integer = linear_variable(self._integers[variable])
        literal = self.cp.new_boolean()
        refused = [value for value in domain if value not in values]
        self.cp.within(integer, cp_model.Domain.from_values(inside), when=literal)
        self.cp.within(integer, cp_model.Domain.from_values(refused), when=~literal)
        return literal

    def _comparison(self, predicate: Compare) -> Literal:
        relation, left, right = predicate.relation, predicate.left, predicate.right
        if relation in (Relation.EQ, Relation.NE):
            equal = self._equal_variables(left, right)
            if equal is not None:
                return equal if relation is Relation.EQ else ~equal
        if self._in_table(predicate):
            return self._table(predicate)
        literal = self.cp.new_boolean()
        first, second = self.term(left), self.term(right)
        self._relate(relation, first, second, literal)
        self._relate(OPPOSITE[relation], first, second, ~literal)
        return literal

    def _equal_variables(self, left: IntTerm, right: IntTerm) -> Literal | None:
        """Equality value by value, which propagates better than a difference of integers."""
        if not (isinstance(left, Variable) and isinstance(right, Variable)):
            return None
        first, second = self._values.get(left), self._values.get(right)
        if first is None or second is None:
            return None
        common = [value for value in first if value in second]
        both = [self._conjunction([first[value], second[value]]) for value in common]
        return ~self._conjunction([~part for part in both])

    def _relate(
        self, relation: Relation, left: Linear, right: Linear, when: Literal | None = None
    ) -> None:
        match relation:
            case Relation.EQ:
                allowed = cp_model.Domain(0, 0)
            case Relation.NE:
                allowed = cp_model.Domain(0, 0).complement()
            case Relation.LE:
                allowed = cp_model.Domain(-LARGEST * 2, 0)
            case Relation.LT:
                allowed = cp_model.Domain(-LARGEST * 2, -1)
            case Relation.GE:
                allowed = cp_model.Domain(0, LARGEST * 2)
            case Relation.GT:
                allowed = cp_model.Domain(1, LARGEST * 2)
            case Relation.DIVIDES:
                raise ValueError("divisibility is written as a remainder of zero")
            case _:
                assert_never(relation)
        self.cp.within(left + right.scaled(-1), allowed, when)

    def _in_table(self, predicate: Compare) -> bool:
        if is_linear(predicate.left) and is_linear(predicate.right):
            return False
        return prod(len(self.domains[name]) for name in variables(predicate)) <= TABLE_ROWS

    def _table(self, predicate: Compare) -> Literal:
        names = sorted(variables(predicate), key=str)
        rows = [
            (*row, int(evaluate(predicate, dict(zip(names, row, strict=True)))))
            for row in product(*(self.domains[name] for name in names))
        ]
        if len({row[-1] for row in rows}) == 1:
            return self.cp.true if rows[0][-1] else ~self.cp.true
        if len(names) == 1:
            return self._member(names[0], frozenset(row[0] for row in rows if row[-1]))
        literal = self.cp.new_boolean()
        columns = [self._column(name) for name in names]
        cells = [
            (*(cell[value] for (_, cell), value in zip(columns, row, strict=False)), row[-1])
            for row in rows
        ]
        self.cp.table([*(index for index, _ in columns), literal], cells)
        return literal

    def _column(self, variable: Variable) -> tuple[int, Mapping[int, int]]:
        """An integer that stands for a variable in tables, and what it is for each value: the
        value, or its place in the domain if some are too large."""
        domain = self.domains[variable]
        if max(map(abs, domain)) <= LARGEST_CELL:
            return self._integer(variable), {value: value for value in domain}
        cell = {value: place for place, value in enumerate(domain)}
        known = self._places.get(variable)
        if known is None:
            known = self._places[variable] = self.cp.new_integer(0, len(domain) - 1)
            literals = {value: self._member(variable, frozenset({value})) for value in domain}
            self.cp.exactly_one(literals.values())
            weighted = Linear(0, tuple((literals[v], place) for v, place in cell.items() if place))
            self.cp.equal(weighted, linear_variable(known))
        return known, cell

    def _new_integer(self, variable: Variable, values: Iterable[int]) -> int:
        values = tuple(values)
        largest = max(values, key=abs)
        if abs(largest) > LARGEST:
            raise LimitError(
                Problem(
                    str(variable),
                    "a value is too large for the solver",
                    str(largest),
                    f"[{-LARGEST}, {LARGEST}]",
                    "state it in a larger unit, or as a label",
                )
            )
        return self.cp.new_integer_of(values, str(variable))

    def _integer(self, variable: Variable) -> int:
        known = self._integers.get(variable)
        if known is None:
            values = self._values[variable]
            known = self._integers[variable] = self._new_integer(variable, values)
            weighted = Linear(0, tuple((index, value) for value, index in values.items() if value))
            self.cp.equal(weighted, linear_variable(known))
        return known

    def _note_ceiling(self, predicate: Compare) -> None:
        """Bound the products in ``term <= constant``, which holds whatever else does.

        The bytes of a buffer are a product of a dozen factors whose largest values multiply
        to more than 64 bits, though no product above the limit is ever allowed. All factors
        being at least 1, no part of such a product is above the limit either.
        """
        if predicate.relation is not Relation.LE or not isinstance(predicate.right, IntConst):
            return
        parts = predicate.left.terms if isinstance(predicate.left, Sum) else (predicate.left,)
        if any(term_bounds(part, {}, self.domains)[0] < 0 for part in parts):
            return
        limit = predicate.right.value
        if limit < 0:
            return
        for part in (*parts, predicate.left):
            self._ceilings[part] = min(limit, self._ceilings.get(part, limit))
            if not isinstance(part, Product):
                continue
            if any(term_bounds(factor, {}, self.domains)[0] < 1 for factor in part.factors):
                continue
            for end in range(1, len(part.factors)):
                prefix = Product(part.factors[:end])
                self._ceilings[prefix] = min(limit, self._ceilings.get(prefix, limit))

    def bounds(self, term: IntTerm) -> Interval:
        """Numbers that the term is never below or above; LimitError if they are too large."""
        low, high = term_bounds(term, {}, self.domains)
        ceiling = self._ceilings.get(term)
        if ceiling is not None and low <= ceiling:
            high = min(high, ceiling)
        if low < -LARGEST or high > LARGEST:
            raise LimitError(
                Problem(
                    "",
                    "an integer term of a constraint is too large for the solver",
                    f"[{low}, {high}]",
                    f"[{-LARGEST}, {LARGEST}]",
                    "state smaller domains for the tuning parameters",
                )
            )
        return low, high

    def term(self, term: IntTerm) -> Linear:
        """A linear expression that equals the term."""
        known = self._terms.get(term)
        if known is None:
            known = self._terms[term] = self._new_term(term)
        return known

    def _new_term(self, term: IntTerm) -> Linear:
        low, high = self.bounds(term)
        least, most = term_bounds(term, {}, self.domains)
        # Not by a ceiling: that is what the model still has to enforce.
        if least == most:
            return Linear(least)
        match term:
            case IntConst(value):
                return Linear(value)
            case CodeVariable() | ParameterVariable() | LocalSizeVariable():
                return linear_variable(self._integer(term))
            case Sum(terms):
                total = Linear(0)
                for part in terms:
                    total = total + self.term(part)
                return total
            case Product(factors):
                return self._product(factors)
            case FloorDiv(numerator, denominator):
                return self._division(numerator, denominator)[0]
            case Modulo(numerator, denominator):
                return self._division(numerator, denominator)[1]
            case Select(condition, then, otherwise):
                chosen = self.literal(condition)
                result = linear_variable(self.cp.new_integer(low, high))
                self.cp.equal(result, self.term(then), when=chosen)
                self.cp.equal(result, self.term(otherwise), when=~chosen)
                return result
            case Maximum(terms):
                largest = self.cp.new_integer(low, high)
                self.cp.largest(largest, [self.term(part) for part in terms])
                return linear_variable(largest)
            case _:
                assert_never(term)

    def _variable(self, linear: Linear, bounds: Interval) -> int:
        known = linear.variable
        if known is None:
            known = self.cp.new_integer(*bounds)
            self.cp.equal(linear_variable(known), linear)
        return known

    def _product(self, factors: tuple[IntTerm, ...]) -> Linear:
        result, bounds = Linear(1), (1, 1)
        for position, factor in enumerate(factors, start=1):
            other, other_bounds = self.term(factor), self.bounds(factor)
            before, bounds = bounds, self.bounds(Product(factors[:position]))
            result = self._multiply(result, before, other, other_bounds, bounds)
        return result

    def _multiply(
        self,
        left: Linear,
        left_bounds: Interval,
        right: Linear,
        right_bounds: Interval,
        bounds: Interval,
    ) -> Linear:
        if not left.coefficients:
            return right.scaled(left.constant)
        if not right.coefficients:
            return left.scaled(right.constant)
        target = self.cp.new_integer(*bounds)
        first, second = self._variable(left, left_bounds), self._variable(right, right_bounds)
        self.cp.product(target, first, second)
        return linear_variable(target)

    def _division(self, numerator: IntTerm, denominator: IntTerm) -> tuple[Linear, Linear]:
        """Quotient and remainder, total as in the predicate module."""
        known = self._divisions.get((numerator, denominator))
        if known is None:
            known = self._new_division(numerator, denominator)
            self._divisions[(numerator, denominator)] = known
        return known

    def _new_division(self, numerator: IntTerm, denominator: IntTerm) -> tuple[Linear, Linear]:
        top, bottom = self.bounds(numerator), self.bounds(denominator)
        dividend = self.term(numerator)
        if bottom[1] < 1:
            return Linear(0), dividend
        if bottom[0] >= 1:
            return self._proper_division(dividend, self.term(denominator), top, bottom)
        # Below 1 the quotient is 0 and the remainder the dividend.
        divisor = self.cp.new_integer(1, bottom[1])
        self.cp.largest(divisor, [self.term(denominator), Linear(1)])
        proper = self._proper_division(dividend, linear_variable(divisor), top, (1, bottom[1]))
        improper = self.literal(Compare(Relation.LT, denominator, IntConst(1)))
        quotient = linear_variable(self.cp.new_integer(*divide_bounds(top, bottom)))
        rest = linear_variable(self.cp.new_integer(*modulo_bounds(top, bottom)))
        self.cp.equal(quotient, Linear(0), when=improper)
        self.cp.equal(rest, dividend, when=improper)
        self.cp.equal(quotient, proper[0], when=~improper)
        self.cp.equal(rest, proper[1], when=~improper)
        return quotient, rest

    def _proper_division(
        self, dividend: Linear, divisor: Linear, top: Interval, bottom: Interval
    ) -> tuple[Linear, Linear]:
        """``dividend = divisor * quotient + rest`` with ``0 <= rest < divisor``."""
        bounds = divide_bounds(top, bottom)
        quotient = linear_variable(self.cp.new_integer(*bounds))
        rest = linear_variable(self.cp.new_integer(*modulo_bounds(top, bottom)))
        corners = [a * b for a in bounds for b in bottom]
        # It is the dividend less the rest, whatever the corners say.
        low, high = max(min(corners), top[0] - bottom[1] + 1), min(max(corners), top[1])
        multiple = self._multiply(divisor, bottom, quotient, bounds, (low, high))
        self.cp.equal(multiple + rest, dividend)
        self._relate(Relation.LT, rest, divisor)
        return quotient, rest

    def value_literals(self, variable: Variable) -> Mapping[int, Literal] | None:
        """The Booleans of a variable with a small domain."""
        return self._values.get(variable)

    def integer_of(self, variable: Variable) -> int | None:
        """The integer of a variable, if it has one."""
        return self._integers.get(variable)
