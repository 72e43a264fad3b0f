"""What would break constraints over codes, as conjunctions of literals.

A constraint is broken when one of the conjunctions of its negation holds. A literal says that
a variable has one of some values. Where multiplying out would give too many conjunctions, part
of them becomes a flag: a truth of its own, which is set when one of its conjunctions holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import assert_never, cast

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import (
    And,
    CodeVariable,
    Compare,
    Member,
    Not,
    Or,
    Predicate,
    Truth,
    Variable,
    compare,
    variables,
)
from mapper.solver.diagram.choices import conditions_in, decided

#: Literals by the place of their variable: the values that make it true, as a bit mask.
Literals = tuple[tuple[int, int], ...]

# Products of alternatives up to this size are multiplied out.
_MULTIPLIED = 8
_TABULATED = 4096
# A comparison that depends on more choices than this is not taken apart.
_MOST_CASES = 8
# Constraints with so few parts are looked through for values that they forbid.
_SMALL = 40


class NotBooleanError(Exception):
    """A constraint needs arithmetic over more variables than can be tabulated."""


#: Literals and flags that all hold; the flags listed last do not hold in the end.
Conjunction = tuple[Literals, tuple[int, ...], tuple[int, ...]]
Alternatives = tuple[Conjunction, ...]

ALWAYS: Conjunction = ((), (), ())


@dataclass(slots=True)
class Events:
    """All conjunctions that break a constraint, and the flags that they speak of.

    ``allowed`` are the values that single constraints leave to each variable, as bit masks;
    the rest holds for these values.
    """

    kills: Alternatives
    flags: tuple[Alternatives, ...]
    allowed: tuple[int, ...]


def scopes_of(events: Events) -> list[int]:
    """The variables that each conjunction ties together, as bit masks; flags are within them."""
    of_flag: list[int] = []
    for alternatives in events.flags:
        of_flag.append(0)
        for conjunction in alternatives:
            of_flag[-1] |= _scope(conjunction, of_flag)
    return [_scope(conjunction, of_flag) for conjunction in events.kills]


def _scope(conjunction: Conjunction, of_flag: Sequence[int]) -> int:
    literals, on, off = conjunction
    scope = 0
    for place, _ in literals:
        scope |= 1 << place
    for flag in (*on, *off):
        scope |= of_flag[flag]
    return scope


def part_of(events: Events, inside: int, needed: int) -> Events:
    """The conjunctions that speak of variables in a bit mask only, some of them ``needed`` ones,
    and the flags within the mask."""
    of_flag: list[int] = []
    for alternatives in events.flags:
        scope = 0
        for conjunction in alternatives:
            scope |= _scope(conjunction, of_flag)
        of_flag.append(scope)
    scopes = [_scope(kill, of_flag) for kill in events.kills]
    kept = tuple(
        kill
        for kill, scope in zip(events.kills, scopes, strict=True)
        if scope & needed and not scope & ~inside
    )
    flags = tuple(
        alternatives if not scope & ~inside else ()
        for alternatives, scope in zip(events.flags, of_flag, strict=True)
    )
    return Events(kept, flags, events.allowed)


def reordered(events: Events, order: Sequence[int]) -> Events:
    """The same with variable ``order[i]`` in place ``i``."""
    places = {place: new for new, place in enumerate(order)}

    def moved(alternatives: Alternatives) -> Alternatives:
        return tuple(
            (tuple(sorted((places[place], mask) for place, mask in literals)), on, off)
            for literals, on, off in alternatives
        )

    return Events(
        moved(events.kills),
        tuple(moved(alternatives) for alternatives in events.flags),
        tuple(events.allowed[place] for place in order),
    )


class EventCompiler:
    """Negates predicates over variables with these domains, in this order, into conjunctions."""

    def __init__(
        self, domains: Mapping[Variable, Sequence[int]], order: Sequence[Variable]
    ) -> None:
        self._places = {variable: place for place, variable in enumerate(order)}
        self._domains = domains
        self._full = [(1 << len(domains[variable])) - 1 for variable in order]
        # By identity: rules share their parts, and hashing large predicates is what would take
        # the time. The predicates are kept so that no identity is used again.
        self._memo: dict[tuple[int, bool], Alternatives] = {}
        self._held: list[Predicate | Variable] = []
        self._place_by_id: dict[int, int] = {}
        self._foreign: dict[int, bool] = {}
        self._closed = len(domains) == len(order)
        self._equalities: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        self._memberships: dict[tuple[int, frozenset[int], bool], Alternatives] = {}
        self._code_places = {
            variable.map_id: place
            for place, variable in enumerate(order)
            if isinstance(variable, CodeVariable)
        }
        self._looked = 0
        self.atoms: list[Predicate] = []
        self._atom_places: dict[Predicate, int] = {}
        self._flags: dict[frozenset[Conjunction], int] = {}
        self._alternatives: list[Alternatives] = []

    def compile(self, predicates: Sequence[Predicate]) -> Events:
        """NotBooleanError if a predicate has arithmetic that is not tabulated."""
        self._forbid_single_values(predicates)
        kills: dict[Conjunction, None] = {}
        for predicate in predicates:
            kills |= dict.fromkeys(self._dnf(predicate, False))
        return Events(tuple(kills), tuple(self._alternatives), tuple(self._full))

    @property
    def size(self) -> int:
        """The number of parts that were looked at."""
        return len(self._held) + self._looked

    def _forbid_single_values(self, predicates: Sequence[Predicate]) -> None:
        """Take values out of domains that small constraints forbid on their own.

        Whatever speaks of such values then is decided, and chains become short.
        """
        small = [predicate for predicate in predicates if _size(predicate, _SMALL) <= _SMALL]
        changed = True
        while changed:
            changed = False
            for predicate in small:
                for literals, on, off in self._dnf(predicate, False):
                    if len(literals) == 1 and not on and not off:
                        ((place, mask),) = literals
                        changed = changed or bool(self._full[place] & mask)
                        self._full[place] &= ~mask
            if changed:
                self._memo.clear()
                self._memberships.clear()

    def _dnf(self, predicate: Predicate, holds: bool) -> Alternatives:
        kind = type(predicate)
        if kind is Member and self._closed:
            return self._member(cast("Member", predicate), holds)
        if kind is Not:
            return self._dnf(cast("Not", predicate).part, not holds)
        key = (id(predicate), holds)
        known = self._memo.get(key)
        if known is None:
            self._held.append(predicate)
            known = self._memo[key] = self._new_dnf(predicate, holds)
        return known

    def _is_foreign(self, predicate: Predicate) -> bool:
        """Whether it speaks of other variables only: then it is decided after all of ours."""
        if self._closed:
            return False
        key = id(predicate)
        known = self._foreign.get(key)
        if known is None:
            match predicate:
                case And(parts) | Or(parts):
                    known = all(self._is_foreign(part) for part in parts)
                case Not(part):
                    known = self._is_foreign(part)
                case Member(variable):
                    known = variable not in self._places
                case Truth():
                    known = False
                case Compare():
                    known = self._places.keys().isdisjoint(variables(predicate))
                case _:
                    assert_never(predicate)
            self._foreign[key] = known
        return known

    def _atom(self, predicate: Predicate, holds: bool) -> Alternatives:
        place = self._atom_places.get(predicate)
        if place is None:
            place = self._atom_places[predicate] = len(self._full)
            self._full.append(3)
            self.atoms.append(predicate)
        return ((((place, 2 if holds else 1),), (), ()),)

    def _new_dnf(self, predicate: Predicate, holds: bool) -> Alternatives:
        match predicate:
            case Truth(value):
                return (ALWAYS,) if value is holds else ()
            case Not(part):
                return self._dnf(part, not holds)
            case Member() if not self._is_foreign(predicate):
                return self._member(predicate, holds)
            case _ if self._is_foreign(predicate):
                return self._atom(predicate, holds)
            case And(parts):
                return self._all(parts, True) if holds else self._any(parts, False)
            case Or(parts):
                return self._any(parts, True) if holds else self._all(parts, False)
            case Compare():
                return self._compared(predicate, holds)
            case _:
                raise AssertionError(predicate)

    def _member(self, predicate: Member, holds: bool) -> Alternatives:
        """Most of what rules say is this."""
        self._looked += 1
        place = self._place(predicate.variable)
        key = (place, predicate.values, holds)
        found = self._memberships.get(key)
        if found is None:
            mask = 0
            for index, value in enumerate(self._domains[predicate.variable]):
                if (value in predicate.values) is holds:
                    mask |= 1 << index
            found = self._memberships[key] = self._literal(place, mask)
        return found

    def _place(self, variable: Variable) -> int:
        # The hash of a variable is a call of its own, that of an integer is not.
        if isinstance(variable, CodeVariable):
            return self._code_places[variable.map_id]
        place = self._place_by_id.get(id(variable))
        if place is None:
            self._held.append(variable)
            place = self._place_by_id[id(variable)] = self._places[variable]
        return place

    def _literal(self, place: int, mask: int) -> Alternatives:
        mask &= self._full[place]
        if not mask:
            return ()
        return (ALWAYS,) if mask == self._full[place] else ((((place, mask),), (), ()),)

    def _compared(self, predicate: Compare, holds: bool) -> Alternatives:
        left, right = predicate.left, predicate.right
        if isinstance(left, Variable) and isinstance(right, Variable) and left != right:
            names = [left, right]
        else:
            names = list(variables(predicate))
        names.sort(key=lambda name: self._places.get(name, -1))
        if len(names) == 1 and names[0] in self._places:
            (name,) = names
            domain = self._domains[name]
            mask = sum(
                1 << index
                for index, value in enumerate(domain)
                if evaluate(predicate, {name: value}) is holds
            )
            return self._literal(self._place(name), mask)
        conditions = list(
            dict.fromkeys(conditions_in(predicate.left) + conditions_in(predicate.right))
        )
        conditions = [part for part in conditions if not self._is_foreign(part)]
        if conditions:
            return self._by_cases(predicate, conditions, holds)
        if len(names) != 2 or any(name not in self._places for name in names):
            raise NotBooleanError(predicate)
        first, second = names
        plain = isinstance(left, Variable) and isinstance(right, Variable)
        if plain and predicate.relation in (Relation.EQ, Relation.NE):
            return self._equality(first, second, (predicate.relation is Relation.EQ) is holds)
        if len(self._domains[first]) * len(self._domains[second]) > _TABULATED:
            raise NotBooleanError(predicate)
        rows: dict[int, int] = {}
        for i, one in enumerate(self._domains[first]):
            mask = sum(
                1 << j
                for j, other in enumerate(self._domains[second])
                if evaluate(predicate, {first: one, second: other}) is holds
            )
            rows[mask] = rows.get(mask, 0) | 1 << i
        pairs = ((mine, theirs) for theirs, mine in rows.items())
        return self._pairs(first, second, pairs)

    def _by_cases(
        self, predicate: Compare, conditions: Sequence[Predicate], holds: bool
    ) -> Alternatives:
        """A comparison that chooses between terms by codes: a case for each choice."""
        if len(conditions) > _MOST_CASES:
            raise NotBooleanError(predicate)
        found: dict[Conjunction, None] = {}
        for truths in product((False, True), repeat=len(conditions)):
            chosen = dict(zip(conditions, truths, strict=True))
            case = compare(
                predicate.relation,
                decided(predicate.left, chosen),
                decided(predicate.right, chosen),
            )
            parts = [part if truth else Not(part) for part, truth in chosen.items()]
            for conjunction in self._all([*parts, case if holds else Not(case)], True):
                found[conjunction] = None
        return tuple(found)

    def _equality(self, first: Variable, second: Variable, equal: bool) -> Alternatives:
        ours, others = self._domains[first], self._domains[second]
        kept, full = self._full[self._place(first)], self._full[self._place(second)]
        # Maps have the same few domains, so that this is the same again and again.
        key = (tuple(ours), tuple(others), kept, full, equal)
        pairs = self._equalities.get(key)
        if pairs is None:
            theirs = {value: 1 << j for j, value in enumerate(others)}
            rows: dict[int, int] = {}
            for i, value in enumerate(ours):
                other = theirs.get(value, 0) & full
                if not equal:
                    other ^= full
                rows[other] = rows.get(other, 0) | (1 << i & kept)
            pairs = self._equalities[key] = [(mine, other) for other, mine in rows.items()]
        return self._pairs(first, second, pairs)

    def _pairs(
        self, first: Variable, second: Variable, pairs: Iterable[tuple[int, int]]
    ) -> Alternatives:
        a, b = self._place(first), self._place(second)
        found: list[Conjunction] = []
        for mine, theirs in pairs:
            mine &= self._full[a]
            theirs &= self._full[b]
            if mine and theirs:
                literals = [(a, mine)] if mine != self._full[a] else []
                if theirs != self._full[b]:
                    literals.append((b, theirs))
                found.append((tuple(literals), (), ()))
        return tuple(found)

    def _any(self, parts: Sequence[Predicate], holds: bool) -> Alternatives:
        found: dict[Conjunction, None] = {}
        for part in parts:
            for conjunction in self._dnf(part, holds):
                found[conjunction] = None
        if ALWAYS in found:
            return (ALWAYS,)
        return tuple(found)

    def _all(self, parts: Sequence[Predicate], holds: bool) -> Alternatives:
        single = ALWAYS
        several: list[tuple[Predicate, Alternatives]] = []
        size = 1
        for part in parts:
            alternatives = self._dnf(part, holds)
            if len(alternatives) > 1:
                several.append((part, alternatives))
                size *= len(alternatives)
                continue
            joined = None
            for alone in alternatives:
                joined = _join(single, alone)
            if joined is None:
                return ()
            single = joined
        if size > _MULTIPLIED and len(several) > 1:
            # Each may be the negation of one conjunction: together "none of these holds".
            denied = [self._dnf(part, not holds) for part, _ in several]
            if all(len(opposite) == 1 and not opposite[0][2] for opposite in denied):
                flag = self._flag(tuple(dict.fromkeys(opposite[0] for opposite in denied)))
                return ((single[0], single[1], _union(single[2], (flag,))),)
        found: list[Conjunction] = [single]
        for _, alternatives in sorted(several, key=lambda entry: len(entry[1])):
            if len(found) * len(alternatives) > _MULTIPLIED and not _closed(found, alternatives):
                flag = (self._flag(alternatives),)
                found = [(literals, _union(on, flag), off) for literals, on, off in found]
                continue
            product = (_join(one, other) for one in found for other in alternatives)
            found = list(dict.fromkeys(joined for joined in product if joined is not None))
        return tuple(found)

    def _flag(self, alternatives: Alternatives) -> int:
        key = frozenset(alternatives)
        known = self._flags.get(key)
        if known is None:
            known = self._flags[key] = len(self._alternatives)
            self._alternatives.append(alternatives)
        return known


def _join(left: Conjunction, right: Conjunction) -> Conjunction | None:
    """Both; None if no value is left for a variable."""
    ours, theirs = left[0], right[0]
    if not ours:
        literals = theirs
    elif not theirs:
        literals = ours
    elif ours[-1][0] < theirs[0][0]:
        literals = ours + theirs
    else:
        merged = dict(ours)
        for place, mask in theirs:
            both = merged.get(place, -1) & mask
            if not both:
                return None
            merged[place] = both
        literals = tuple(sorted(merged.items()))
    if not (left[1] or left[2] or right[1] or right[2]):
        return literals, (), ()
    return literals, _union(left[1], right[1]), _union(left[2], right[2])


def _union(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*left, *right})) if left and right else left or right


def _size(predicate: Predicate, enough: int) -> int:
    """The number of parts, counted until there are more than enough."""
    total = 1
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                total += _size(part, enough - total)
                if total > enough:
                    break
        case Not(part):
            total += _size(part, enough - 1)
        case _:
            pass
    return total


def _closed(found: Sequence[Conjunction], alternatives: Alternatives) -> bool:
    """Whether joining adds no literals: every alternative speaks of what is there already."""
    if len(found) != 1:
        return False
    ((own, _, _),) = found
    places = {place for place, _ in own}
    return all(places <= {place for place, _ in literals} for literals, _, _ in alternatives)
