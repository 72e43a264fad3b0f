"""Expressions of the language as predicates over a solver's variables, in integers only.

The meaning of an expression is Python's over exact fractions. Where Python would raise
ZeroDivisionError the configuration is invalid, and as there, what ``and``, ``or`` and
``if … else`` do not reach is not evaluated: ``x != 0 and a % x == 0`` is false at ``x = 0``.

So an expression becomes what it says where it is defined, and where that is. What a guard
before it rules out is not asked again, and a parameter with one value is that value.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    TRUE,
    ParameterVariable,
    Predicate,
    Truth,
    Variable,
    all_of,
    any_of,
    compare,
    member,
    negate,
)
from mapper.tuning_space import conditions, rational
from mapper.tuning_space.conditions import (
    Condition,
    any_of_all,
    branches_defined,
    defined_in_turn,
    joined,
    negated,
    same_truth,
)
from mapper.tuning_space.guards import Known
from mapper.tuning_space.language import fail_at
from mapper.tuning_space.levels import check_levels, too_deep
from mapper.tuning_space.rational import Fraction, Whole, check_parts, constant, whole
from mapper.tuning_space.syntax import (
    Arithmetic,
    Call,
    Comparison,
    Conditional,
    Conjunction,
    Disjunction,
    Expression,
    Flag,
    Inversion,
    Listing,
    Name,
    Negation,
    Number,
    Power,
    Text,
)

_Numeric = tuple[Fraction, Predicate]

MAX_EXPONENT = 64
_RELATIONS = {relation.value: relation for relation in Relation if relation.value != "|"}


class Kind(StrEnum):
    """What an expression gives."""

    NUMBER = "a number"
    CONDITION = "a condition"
    TEXT = "a text"


_KIND_OF: dict[type, Kind] = {
    **dict.fromkeys((Number, Negation, Arithmetic, Power, Call), Kind.NUMBER),
    **dict.fromkeys((Flag, Comparison, Conjunction, Disjunction, Inversion), Kind.CONDITION),
    Text: Kind.TEXT,
}


@dataclass(frozen=True, slots=True)
class Named:
    """What a name of an expression stands for: a variable with its ascending values.

    ``labels`` are the numbers of a text's labels. A condition is 0 or 1.
    """

    variable: Variable
    domain: tuple[int, ...]
    kind: Kind
    labels: Mapping[str, int] = field(default_factory=dict[str, int])


class Lowering:
    """Lowers one expression; ``mentioned`` are its names in the order of the text."""

    def __init__(self, named: Mapping[str, Named], source: str) -> None:
        self.mentioned: dict[str, None] = {}
        self._named = named
        self._source = source

    def predicate(self, expression: Expression) -> Predicate:
        """True where the expression is defined and true."""
        try:
            found = self._true(expression, Known())
        except RecursionError:
            raise too_deep() from None
        check_levels(found)
        return found

    def _fail(
        self, at: int, message: str, found: str = "", allowed: str = "", remedy: str = ""
    ) -> NoReturn:
        fail_at(self._source, at, message, found, allowed, remedy)

    def _unknown(self, node: Name) -> NoReturn:
        word = node.name.partition("(")[0]
        referring = word != node.name
        alike = [name for name in self._named if not referring or name.startswith(f"{word}(")]
        # A map's name without what it is asked for is the nearest miss of all.
        close = [name for name in self._named if name.endswith(f"({node.name})")]
        close += difflib.get_close_matches(node.name, alike, 1)
        more = f" and {len(alike) - 20} more" if len(alike) > 20 else ""
        what = "nothing of this name" if referring else "no such parameter"
        self._fail(node.at, f"there is {what}", repr(node.name[:80]),
                   ", ".join(alike[:20]) + more, close[0] if close else "")  # fmt: skip

    def _kind(self, node: Expression) -> Kind:
        if isinstance(node, Name):
            known = self._named.get(node.name)
            if known is None:
                self._unknown(node)
            self.mentioned[node.name] = None
            return known.kind
        if isinstance(node, Conditional):
            kind, other = self._kind(node.then), self._kind(node.otherwise)
            if kind is not other:
                self._fail(node.at, "the branches are of two kinds", f"{kind} and {other}",
                           "two numbers, or two conditions")  # fmt: skip
            return kind
        return _KIND_OF[type(node)]

    def _require(self, node: Expression, wanted: Kind) -> None:
        if self._kind(node) is not wanted:
            self._refuse(node, wanted)

    def _refuse(self, node: Expression, wanted: Kind) -> NoReturn:
        kind = self._kind(node)
        remedies = {
            (Kind.NUMBER, Kind.CONDITION): "a comparison, as in … != 0",
            (Kind.CONDITION, Kind.NUMBER): "(1 if … else 0)",
        }
        self._fail(node.at, f"{wanted} is wanted here", kind, wanted,
                   remedies.get((kind, wanted), ""))  # fmt: skip

    def _true(self, node: Expression, known: Known) -> Predicate:
        """Where the expression is defined and true: shorter than saying both apart."""
        match node:
            case Conjunction(parts):
                found: list[Predicate] = []
                for part in parts:
                    if found:
                        known = known.and_also(found[-1])
                    found.append(self._true(part, known))
                return all_of(*found)
            case Disjunction((*first, last)):
                before = self._in_turn(first, known, reached_if=False)
                for condition in before:
                    known = known.and_also(negate(condition.value))
                ended = self._true(last, known)
                values = (condition.value for condition in before)
                return all_of(defined_in_turn(before, False)[0], any_of(*values, ended))
            case _:
                condition = self._condition(node, known)
                return _both(condition.defined, condition.value)

    def _condition(self, node: Expression, known: Known) -> Condition:
        match node:
            case Flag(value):
                return Condition(Truth(value), TRUE, 1)
            case Comparison():
                return joined(self._compared_in_turn(node, known), True)
            case Conjunction(parts):
                return joined(self._in_turn(parts, known, reached_if=True), True)
            case Disjunction(parts):
                return joined(self._in_turn(parts, known, reached_if=False), False)
            case Inversion(operand):
                return negated(self._condition(operand, known))
            case Conditional(condition, then, otherwise):
                self._require(node, Kind.CONDITION)
                chosen = self._condition(condition, known)
                first = self._condition(then, known.and_also(chosen.value))
                second = self._condition(otherwise, known.and_also(negate(chosen.value)))
                return conditions.choose(chosen, first, second)
            case Name(name) if self._kind(node) is Kind.CONDITION:
                return Condition(self._switched_on(name), TRUE, 1)
            case _:
                self._refuse(node, Kind.CONDITION)

    def _in_turn(
        self, parts: Sequence[Expression], known: Known, *, reached_if: bool
    ) -> list[Condition]:
        """Conditions of which each is evaluated if all before it are ``reached_if``."""
        found: list[Condition] = []
        for part in parts:
            if found:
                before = found[-1].value
                known = known.and_also(before if reached_if else negate(before))
            found.append(self._condition(part, known))
        return found

    def _switched_on(self, name: str) -> Predicate:
        known = self._named[name]
        if len(known.domain) == 1:
            return Truth(known.domain == (1,))
        return member(known.variable, (1,))

    def _compared_in_turn(self, node: Comparison, known: Known) -> list[Condition]:
        """One condition a pair of neighbours; the first is not reached if the pair before fails."""
        found: list[Condition] = []
        left = node.first
        for operator, right in node.rest:
            if found:
                known = known.and_also(found[-1].value)
            found.append(self._compared(operator, left, right, node.at, known))
            if not isinstance(right, Listing):
                left = right
        return found

    def _compared(
        self, operator: str, left: Expression, right: Expression | Listing, at: int, known: Known
    ) -> Condition:
        if isinstance(right, Listing):
            condition = self._listed(left, right, at, known)
            return condition if operator == "in" else negated(condition)
        kind = self._same_kind(left, right, at)
        relation = _RELATIONS[operator]
        if kind is Kind.NUMBER:
            return _related(relation, self._number(left, known), self._number(right, known))
        if relation not in (Relation.EQ, Relation.NE):
            self._fail(at, f"{kind} has no order", repr(operator), "==, !=, in, not in")
        if kind is Kind.TEXT:
            equal = self._same_text(left, right)
        else:
            equal = same_truth(self._condition(left, known), self._condition(right, known))
        return equal if relation is Relation.EQ else negated(equal)

    def _same_kind(self, left: Expression, right: Expression, at: int) -> Kind:
        kind, other = self._kind(left), self._kind(right)
        if kind is not other:
            self._fail(at, "things of two kinds are compared", f"{kind} and {other}",
                       "two numbers, two texts or two conditions")  # fmt: skip
        return kind

    def _listed(self, left: Expression, listing: Listing, at: int, known: Known) -> Condition:
        """Whether a value is among those of a list, all of which are evaluated."""
        for item in listing.items:
            self._same_kind(left, item, at)
        match self._kind(left):
            case Kind.NUMBER:
                return self._listed_number(self._number(left, known), listing, known)
            case Kind.TEXT:
                found = [self._same_text(left, item) for item in listing.items]
                return any_of_all(found, TRUE)
            case Kind.CONDITION:
                value = self._condition(left, known)
                check_parts(value.parts * len(listing.items))
                items = [self._condition(item, known) for item in listing.items]
                return any_of_all([same_truth(value, item) for item in items], value.defined)

    def _listed_number(self, value: _Numeric, listing: Listing, known: Known) -> Condition:
        term = value[0].top.term if value[0].bottom is rational.ONE else None
        numbers = [item.value for item in listing.items if isinstance(item, Number)]
        if isinstance(term, Variable) and len(numbers) == len(listing.items):
            return Condition(member(term, numbers), value[1], 1)
        check_parts(value[0].parts * len(listing.items))
        items = [self._number(item, known) for item in listing.items]
        return any_of_all([_related(Relation.EQ, value, item) for item in items], value[1])

    def _same_text(self, left: Expression, right: Expression) -> Condition:
        match left, right:
            case Text(first), Text(second):
                return Condition(Truth(first == second), TRUE, 1)
            case (Name() as name, Text() as text) | (Text() as text, Name() as name):
                return Condition(self._labelled(name, text), TRUE, 1)
            case Name(), Name():
                first, second = self._labels(left), self._labels(right)
                check_parts(2 * min(len(first), len(second)) + 1)
                same = (all_of(first[label], second[label]) for label in first if label in second)
                return Condition(any_of(*same), TRUE, 2 * min(len(first), len(second)) + 1)
            case _:
                at = left.at if not isinstance(left, Name | Text) else right.at
                self._fail(at, "texts cannot be chosen between", "", "comparisons with and, or")

    def _labelled(self, name: Name, text: Text) -> Predicate:
        self._kind(name)
        known, label = self._named[name.name], text.value
        number = known.labels.get(label)
        if number is None:
            close = [repr(near) for near in difflib.get_close_matches(label, known.labels, 1)]
            self._fail(text.at, f"{name.name} has no such value", repr(label[:80]),
                       ", ".join(map(repr, list(known.labels)[:20])), "".join(close))  # fmt: skip
        return TRUE if len(known.domain) == 1 else member(known.variable, (number,))

    def _labels(self, name: Name) -> dict[str, Predicate]:
        """The texts that a name may be, each with when it is."""
        self._kind(name)
        known = self._named[name.name]
        if len(known.domain) == 1:
            return dict.fromkeys(known.labels, TRUE)
        return {label: member(known.variable, (n,)) for label, n in known.labels.items()}

    def _number(self, node: Expression, known: Known) -> _Numeric:
        if isinstance(node, Name) and self._kind(node) is Kind.NUMBER:
            return whole(self._integer(node.name, known)), TRUE
        match node:
            case Number(value):
                return whole(constant(value)), TRUE
            case Negation(operand):
                inner, defined = self._number(operand, known)
                return rational.minus(inner), defined
            case Arithmetic(_, rest):
                added = rest[0][0] in ("+", "-")
                return self._sum(node, known) if added else self._product(node, known)
            case Power(base, exponent, at):
                inner, defined = self._number(base, known)
                times, also = self._number(exponent, known)
                return self._power(inner, times, at), all_of(defined, also)
            case Call(function, arguments):
                found = [self._number(argument, known) for argument in arguments]
                values = [value for value, _ in found]
                defined = all_of(*(defined for _, defined in found))
                if function == "abs":
                    return rational.absolute(values[0]), defined
                join = rational.smallest if function == "min" else rational.largest
                return join(values), defined
            case Conditional(condition, then, otherwise):
                self._require(node, Kind.NUMBER)
                return self._chosen_number(condition, then, otherwise, known)
            case _:
                self._refuse(node, Kind.NUMBER)

    def _power(self, base: Fraction, exponent: Fraction, at: int) -> Fraction:
        times = exponent.top
        if exponent.bottom is rational.ONE and times.low >= 0 and times.high <= MAX_EXPONENT:
            if times.low == times.high:
                return rational.power(base, times.low)
            if isinstance(times.term, ParameterVariable):
                domain = self._named[times.term.name].domain
                values = [value for value in domain if times.low <= value <= times.high]
                return rational.power_of_parameter(base, times.term, values)
        number = exponent.constant
        found = "" if number is None or number[1] != 1 else str(number[0])[:24]
        allowed = f"an integer from 0 to {MAX_EXPONENT}, or a parameter with such values"
        self._fail(at, "not an exponent", found, allowed)

    def _integer(self, name: str, known: Known) -> Whole:
        variable, domain = self._named[name].variable, self._named[name].domain
        low, high = domain[0], domain[-1]
        if name in known.bounds:
            least, most = known.bounds[name]
            # Where the guards exclude each other nothing is evaluated, so any bounds will do.
            if max(least, low) <= min(most, high):
                low, high = max(least, low), min(most, high)
        touches = low < high and (low == 0 or high == 0)
        if touches and compare(Relation.NE, variable, 0) in known.facts:
            low, high = low + (low == 0), high - (high == 0)
        return constant(low) if low == high else Whole(variable, low, high)

    def _sum(self, node: Arithmetic, known: Known) -> _Numeric:
        value, defined = self._number(node.first, known)
        terms, conditions = [value], [defined]
        for operator, operand in node.rest:
            value, defined = self._number(operand, known)
            terms.append(value if operator == "+" else rational.minus(value))
            conditions.append(defined)
        return rational.total(terms), _all(conditions)

    def _product(self, node: Arithmetic, known: Known) -> _Numeric:
        value, defined = self._number(node.first, known)
        factors, conditions = [value], [defined]
        for operator, operand in node.rest:
            value, defined = self._number(operand, known)
            conditions.append(defined)
            if operator == "*":
                factors.append(value)
                continue
            value, defined = _divisor(value, known)
            conditions.append(defined)
            if operator == "/":
                factors.append(rational.inverse(value))
            elif operator == "//":
                factors = [rational.floor_divided(rational.product(factors), value)]
            else:
                factors = [rational.modulo(rational.product(factors), value)]
        return rational.product(factors), _all(conditions)

    def _chosen_number(
        self, condition: Expression, then: Expression, otherwise: Expression, known: Known
    ) -> _Numeric:
        chosen = self._condition(condition, known)
        first = self._number(then, known.and_also(chosen.value))
        second = self._number(otherwise, known.and_also(negate(chosen.value)))
        value = rational.choose(chosen.value, chosen.parts, first[0], second[0])
        return value, branches_defined(chosen, first[1], second[1])


def _related(relation: Relation, left: _Numeric, right: _Numeric) -> Condition:
    value = rational.related(relation, left[0], right[0])
    return Condition(value, _both(left[1], right[1]), left[0].parts + right[0].parts + 1)


def _divisor(value: Fraction, known: Known) -> _Numeric:
    """The divisor with what is known of its sign, and that it is not 0 unless that is known."""
    top = value.top
    if top.low > 0 or top.high < 0:
        return value, TRUE
    if top.low < 0 and compare(Relation.GT, top.term, 0) in known.facts:
        return Fraction(Whole(top.term, 1, max(1, top.high), top.parts), value.bottom), TRUE
    not_zero = compare(Relation.NE, top.term, 0)
    above = compare(Relation.GT, top.term, 0)
    return value, TRUE if not_zero in known.facts or above in known.facts else not_zero


def _both(first: Predicate, second: Predicate) -> Predicate:
    """:func:`all_of` two, of which the one or the other nearly always is TRUE."""
    if first is TRUE:
        return second
    return first if second is TRUE else all_of(first, second)


def _all(conditions: list[Predicate]) -> Predicate:
    """:func:`all_of` several that are nearly always TRUE."""
    for condition in conditions:
        if condition is not TRUE:
            return all_of(*conditions)
    return TRUE
