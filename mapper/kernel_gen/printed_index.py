"""Integer expressions of a printed kernel, read back from its text: what values they can take.

Nothing here knows how indices are made. An expression is read as C computes it, with divisions
that round towards zero, over work-item ids, loop variables and what is declared of them. Bounds
come from intervals of sums; where these are too wide, from conditions that hold at the place; and
where that is not enough, from every value that the variables can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.kernel_gen.printed_tree import Node, NotRead, is_unsigned, parsed

Interval = tuple[int, int]
Atom = tuple[Any, ...]

#: More combinations of values than this are not tried.
MOST_POINTS = 1 << 22
#: What an int holds, which is what indices are on devices that are no processor.
_INT = (-(2**31), 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Sum:
    """A constant and atoms with their factors; atoms are variables, quotients and the like."""

    terms: Mapping[Atom, int]
    constant: int

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """This and ``factor`` times another."""
        terms = dict(self.terms)
        for atom, count in other.terms.items():
            total = terms.get(atom, 0) + factor * count
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Sum(terms, self.constant + factor * other.constant)

    def key(self) -> tuple[Any, ...]:
        """Equal sums have equal keys."""
        return (frozenset(self.terms.items()), self.constant)


@dataclass(frozen=True, slots=True)
class Fact:
    """What a condition says: a sum that lies between two numbers (None: no bound)."""

    sum: Sum
    low: int | None
    high: int | None


@dataclass
class Scope:
    """The names of a block and what holds in it; names of the blocks around it can be seen."""

    outer: Scope | None = None
    #: What integers are, by name.
    sums: dict[str, Sum] = field(default_factory=dict[str, Sum])
    #: Conditions that have names.
    conditions: dict[str, Node] = field(default_factory=dict[str, Node])
    facts: list[Fact] = field(default_factory=list[Fact])
    #: Elements of arrays, and lanes of an element.
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    #: Accesses that were proven here, to be asked for once.
    proven: set[tuple[str, str, int, int]] = field(default_factory=set[tuple[str, str, int, int]])

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, inner before outer."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


class Bounds:
    """Bounds of expressions in a scope. ``ranges`` are those of atoms that run."""

    def __init__(self) -> None:
        self.ranges: dict[Atom, Interval] = {}
        #: What quotients, remainders and declared values are made of, by atom.
        self.made_of: dict[Atom, tuple[Any, ...]] = {}

    def running(self, scope: Scope, name: str, low: int, high: int) -> None:
        """Declare a variable that takes every value from ``low`` to ``high``."""
        atom: Atom = ("var", name, len(self.ranges))
        self.ranges[atom] = (low, high)
        scope.sums[name] = Sum({atom: 1}, 0)

    def declared(self, scope: Scope, name: str, text: str) -> None:
        """Declare a name for a value or a condition."""
        tree = parsed(text)
        if tree[0] in ("&", "<", ">="):
            scope.conditions[name] = tree
        else:
            scope.sums[name] = self.sum_of(tree, scope)

    def sum_of(self, tree: Node, scope: Scope) -> Sum:
        """The tree as a sum."""
        kind = tree[0]
        if kind == "int":
            return Sum({}, tree[1])
        if kind == "name":
            return self._named(tree[1], scope)
        if kind == "neg":
            return Sum({}, 0).plus(self.sum_of(tree[1], scope), -1)
        if kind == "cast":
            return self.sum_of(tree[1], scope)
        if kind == "?":
            asked = self.facts_of(tree[1], scope)
            held, otherwise = self.sum_of(tree[2], scope), self.sum_of(tree[3], scope)
            # What holds around the choice holds in it too.
            around = [*asked, *(fact for place in scope.chain() for fact in place.facts)]
            atom: Atom = ("?", held.key(), otherwise.key(), len(asked), _facts_key(around))
            self.made_of[atom] = (held, otherwise, tuple(asked), tuple(around))
            return Sum({atom: 1}, 0)
        if len(tree) != 3 or kind in ("&", "<", ">="):
            raise NotRead(str(tree))
        left, right = self.sum_of(tree[1], scope), self.sum_of(tree[2], scope)
        if kind == "+":
            return left.plus(right)
        if kind == "-":
            return left.plus(right, -1)
        if kind == "*":
            if left.terms and right.terms:
                raise NotRead("a product of variables")
            by, of = (left, right) if not left.terms else (right, left)
            return Sum({}, 0).plus(of, by.constant)
        if right.terms or right.constant <= 0:
            raise NotRead("a divisor that is not a positive number")
        self._require_number(tree[1], left, scope)
        if not left.terms:
            whole = _towards_zero(left.constant, right.constant)
            rest = left.constant - whole * right.constant
            return Sum({}, whole if kind == "/" else rest)
        return Sum({self._quotient(kind, left, right.constant): 1}, 0)

    def _quotient(self, kind: str, top: Sum, divisor: int) -> Atom:
        """The atom of a quotient or remainder; of a quotient's quotient there is one form."""
        if kind == "/" and not top.constant and len(top.terms) == 1:
            ((inner, factor),) = top.terms.items()
            if factor == 1 and inner[0] == "/":
                top, own = self.made_of[inner]
                divisor *= own
        atom: Atom = (kind, top.key(), divisor)
        self.made_of[atom] = (top, divisor)
        return atom

    def _named(self, name: str, scope: Scope) -> Sum:
        for place in scope.chain():
            if name in place.sums:
                return place.sums[name]
        raise NotRead(f"{name} is not declared")

    def _require_number(
        self, tree: Node, value: Sum, scope: Scope, *, unsigned: bool = False
    ) -> None:
        """NotRead unless C divides or compares the very value: sums may run over and back again,
        but not what is done with them then."""
        least, most = (0 if unsigned or is_unsigned(tree) else _INT[0]), _INT[1]
        low, high = self._plain(value, {})
        if not (least <= low and high <= most):
            low, high = self.bounds(value, scope)
        if not (least <= low and high <= most):
            raise NotRead("a number that may be negative as an unsigned one, or takes over 32 bits")

    # -- conditions ----------------------------------------------------------------------

    def facts_of(self, tree: Node, scope: Scope) -> list[Fact]:
        """What holds where a condition does."""
        if tree[0] == "&":
            return [*self.facts_of(tree[1], scope), *self.facts_of(tree[2], scope)]
        if tree[0] == "name":
            for place in scope.chain():
                if tree[1] in place.conditions:
                    return self.facts_of(place.conditions[tree[1]], place)
            raise NotRead(f"{tree[1]} is no condition")
        if tree[0] not in ("<", ">="):
            raise NotRead(f"{tree[0]} is no condition")
        left, right = self.sum_of(tree[1], scope), self.sum_of(tree[2], scope)
        unsigned = is_unsigned(tree[1]) or is_unsigned(tree[2])
        self._require_number(tree[1], left, scope, unsigned=unsigned)
        self._require_number(tree[2], right, scope, unsigned=unsigned)
        difference = left.plus(right, -1)
        if tree[0] == "<":
            return [Fact(difference, None, -1)]
        return [Fact(difference, 0, None)]

    # -- bounds --------------------------------------------------------------------------

    def bounds(self, total: Sum, scope: Scope) -> Interval:
        """The least and the largest value that a sum can be shown to keep within."""
        facts = [fact for place in scope.chain() for fact in place.facts]
        return self.within(total, facts)

    def within(self, total: Sum, facts: Sequence[Fact]) -> Interval:
        """As :meth:`bounds`, where these facts hold."""
        single = self._refined(facts)
        low, high = self._plain(total, single)
        for same in (total, self._in_digits(total, facts)):
            for fact in facts:
                low, high = _tighter((low, high), self._eliminated(same, fact, facts, single))
        return low, high

    def _in_digits(self, total: Sum, facts: Sequence[Fact]) -> Sum:
        """The sum with numbers taken apart into the digits that conditions speak of.

        With x/6 and (x/2)%3 among them, x is x%2 + 2*((x/2)%3) + 6*(x/6).
        """
        cuts: dict[Atom, set[int]] = {}
        for fact in facts:
            for atom in fact.sum.terms:
                self._add_cuts(atom, cuts)
        for number, found in cuts.items():
            count = total.terms.get(number)
            places = sorted(found)
            if count is None or any(b % a for a, b in pairwise(places)):
                continue
            digits, below = Sum({}, 0), 1
            for place in places:
                rest = self._over(number, below)
                digits = digits.plus(Sum({self._quotient("%", rest, place // below): 1}, 0), below)
                below = place
            digits = digits.plus(self._over(number, below), below)
            total = total.plus(Sum({number: 1}, 0), -count).plus(digits, count)
        return total

    def _over(self, number: Atom, divisor: int) -> Sum:
        whole = Sum({number: 1}, 0)
        return whole if divisor == 1 else Sum({self._quotient("/", whole, divisor): 1}, 0)

    def _add_cuts(self, atom: Atom, cuts: dict[Atom, set[int]]) -> None:
        """Where a quotient or remainder takes its number apart."""
        if atom[0] not in ("/", "%"):
            return
        top, divisor = self.made_of[atom]
        if top.constant or len(top.terms) != 1 or 1 not in top.terms.values():
            return
        (number,) = top.terms
        if number[0] == "/":
            self._add_cuts(number, cuts)
            inner, own = self.made_of[number]
            if inner.constant or len(inner.terms) != 1:
                return
            (number,) = inner.terms
            divisor *= own
        if divisor > 1:
            cuts.setdefault(number, set()).add(divisor)

    def _refined(self, facts: Sequence[Fact]) -> dict[Atom, Interval]:
        """Bounds of single atoms that conditions speak of."""
        found: dict[Atom, Interval] = {}
        for fact in facts:
            if len(fact.sum.terms) != 1:
                continue
            ((atom, factor),) = fact.sum.terms.items()
            if factor != 1:
                continue
            low, high = found.get(atom) or self._atom(atom, {})
            if fact.low is not None:
                low = max(low, fact.low - fact.sum.constant)
            if fact.high is not None:
                high = min(high, fact.high - fact.sum.constant)
            found[atom] = (low, high)
        return found

    def _plain(self, total: Sum, known: Mapping[Atom, Interval]) -> Interval:
        low = high = total.constant
        for atom, factor in total.terms.items():
            ends = known.get(atom) or self._atom(atom, known)
            first, last = (factor * ends[0], factor * ends[1])
            low += min(first, last)
            high += max(first, last)
        return low, high

    def _eliminated(
        self, total: Sum, fact: Fact, facts: Sequence[Fact], known: Mapping[Atom, Interval]
    ) -> Interval:
        """Bounds of a sum of which multiples of the fact's sum, and of others', are taken out."""
        best = self._plain(total, known)
        rest, low, high = total, 0, 0
        for one in (fact, *facts):
            ends = self._ends_of(one, facts, known)
            factor = _factor_of(rest, one.sum)
            if factor is None:
                continue
            rest = rest.plus(one.sum, -factor)
            low += min(factor * ends[0], factor * ends[1])
            high += max(factor * ends[0], factor * ends[1])
            left = self._plain(rest, known)
            best = _tighter(best, (left[0] + low, left[1] + high))
        return best

    def _ends_of(
        self, fact: Fact, facts: Sequence[Fact], known: Mapping[Atom, Interval]
    ) -> Interval:
        low, high = self._plain(fact.sum, known)
        for other in facts:
            # The two halves of one guard: the sums differ by a number.
            gap = fact.sum.plus(other.sum, -1)
            if gap.terms:
                continue
            if other.low is not None:
                low = max(low, other.low + gap.constant)
            if other.high is not None:
                high = min(high, other.high + gap.constant)
        return low, high

    def _atom(self, atom: Atom, known: Mapping[Atom, Interval]) -> Interval:
        ran = self.ranges.get(atom)
        if ran is not None:
            return ran
        made = self.made_of[atom]
        if atom[0] == "?":
            held = self.within(made[0], made[3])
            otherwise = self._plain(made[1], known)
            return min(held[0], otherwise[0]), max(held[1], otherwise[1])
        low, high = self._plain(made[0], known)
        divisor = made[1]
        if atom[0] == "/":
            return _towards_zero(low, divisor), _towards_zero(high, divisor)
        if low >= 0:
            return (low, high) if high < divisor else (0, divisor - 1)
        return (low, high) if -divisor < low and high < divisor else (1 - divisor, divisor - 1)

    # -- every value ---------------------------------------------------------------------

    def exactly(self, total: Sum, scope: Scope) -> Interval | None:
        """The least and the largest value, of every combination of values of the variables that
        conditions connect; None where there are too many. (1, 0) if no condition can hold."""
        facts = [fact for place in scope.chain() for fact in place.facts]
        parts: list[tuple[set[Atom], list[tuple[Atom, int]], list[Fact]]] = []
        for atom, factor in total.terms.items():
            _merge(parts, self._variables_of(Sum({atom: 1}, 0)), [(atom, factor)], [])
        for fact in facts:
            _merge(parts, self._variables_of(fact.sum), [], [fact])
        low = high = total.constant
        for variables, terms, own in parts:
            ends = self._enumerated(sorted(variables, key=str), terms, own)
            if ends is None:
                return None
            if ends[0] > ends[1]:
                return (1, 0)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _variables_of(self, total: Sum) -> set[Atom]:
        found: set[Atom] = set()
        for atom in total.terms:
            if atom in self.ranges:
                found.add(atom)
                continue
            made = self.made_of[atom]
            sums: list[Sum] = [part for part in made if isinstance(part, Sum)]
            if atom[0] == "?":
                facts: tuple[Fact, ...] = made[2]
                sums += [fact.sum for fact in facts]
            for one in sums:
                found |= self._variables_of(one)
        return found

    def _enumerated(
        self, variables: Sequence[Atom], terms: Sequence[tuple[Atom, int]], facts: Sequence[Fact]
    ) -> Interval | None:
        sizes = [self.ranges[v][1] - self.ranges[v][0] + 1 for v in variables]
        if prod(sizes) > MOST_POINTS:
            return None
        axes: dict[Atom, NDArray[np.int64]] = {}
        for position, variable in enumerate(variables):
            shape = [1] * len(variables)
            shape[position] = sizes[position]
            values = np.arange(self.ranges[variable][0], self.ranges[variable][1] + 1)
            axes[variable] = values.reshape(shape)
        total = self._computed(Sum(dict(terms), 0), axes)
        holds = self._all_hold(facts, axes)
        total, holds = np.broadcast_arrays(total, holds)
        kept = total[holds]
        return (int(kept.min()), int(kept.max())) if kept.size else (1, 0)

    def _all_hold(
        self, facts: Sequence[Fact], axes: Mapping[Atom, NDArray[np.int64]]
    ) -> NDArray[np.bool_]:
        holds: NDArray[np.bool_] = np.array(True)
        for fact in facts:
            value = self._computed(fact.sum, axes)
            if fact.low is not None:
                holds = holds & (value >= fact.low)
            if fact.high is not None:
                holds = holds & (value <= fact.high)
        return holds

    def _computed(self, total: Sum, axes: Mapping[Atom, NDArray[np.int64]]) -> NDArray[np.int64]:
        value: NDArray[np.int64] = np.array(total.constant, np.int64)
        for atom, factor in total.terms.items():
            value = value + factor * self._atom_values(atom, axes)
        return value

    def _atom_values(self, atom: Atom, axes: Mapping[Atom, NDArray[np.int64]]) -> NDArray[np.int64]:
        if atom in axes:
            return axes[atom]
        made = self.made_of[atom]
        if atom[0] == "?":
            held, otherwise = self._computed(made[0], axes), self._computed(made[1], axes)
            return np.where(self._all_hold(made[2], axes), held, otherwise)
        top, divisor = self._computed(made[0], axes), made[1]
        whole = np.sign(top) * (np.abs(top) // divisor)
        return whole if atom[0] == "/" else top - whole * divisor


def _facts_key(facts: Sequence[Fact]) -> tuple[Any, ...]:
    return tuple((fact.sum.key(), fact.low, fact.high) for fact in facts)


def _towards_zero(top: int, bottom: int) -> int:
    return top // bottom if top >= 0 else -(-top // bottom)


def _tighter(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _factor_of(total: Sum, part: Sum) -> int | None:
    """How often a sum can be taken out of another, by a term that both have."""
    for atom, count in part.terms.items():
        have = total.terms.get(atom)
        if have is not None and have % count == 0:
            return have // count
    return None


def _merge(
    parts: list[tuple[set[Atom], list[tuple[Atom, int]], list[Fact]]],
    variables: set[Atom],
    terms: list[tuple[Atom, int]],
    facts: list[Fact],
) -> None:
    """Add what depends on these variables to the parts, joining those that share one."""
    joined = (set(variables), list(terms), list(facts))
    apart: list[tuple[set[Atom], list[tuple[Atom, int]], list[Fact]]] = []
    for part in parts:
        if part[0] & joined[0]:
            joined[0].update(part[0])
            joined[1].extend(part[1])
            joined[2].extend(part[2])
        else:
            apart.append(part)
    parts[:] = [*apart, joined]
