"""Expressions that are true, false or not defined, joined as Python evaluates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mapper.constraint_rules.predicate import (
    TRUE,
    Predicate,
    Truth,
    all_of,
    any_of,
    implies,
    negate,
)
from mapper.tuning_space.rational import check_parts


@dataclass(slots=True)
class Condition:
    """What an expression says where it is defined, where it is, and of how many parts that is.

    Not changed once it is made; freezing it would cost half of the time of lowering.
    """

    value: Predicate
    defined: Predicate
    parts: int


def negated(condition: Condition) -> Condition:
    """The opposite, where it is defined."""
    return Condition(negate(condition.value), condition.defined, condition.parts + 1)


def joined(conditions: Sequence[Condition], all_must: bool) -> Condition:
    """``and`` or ``or`` of conditions evaluated in turn."""
    if len(conditions) == 1:
        return conditions[0]
    join = all_of if all_must else any_of
    parts = sum(condition.parts for condition in conditions) + 1
    value = join(*(condition.value for condition in conditions))
    defined, more = defined_in_turn(conditions, all_must)
    check_parts(parts + more)
    return Condition(value, defined, parts + more)


def defined_in_turn(conditions: Sequence[Condition], reached_if: bool) -> tuple[Predicate, int]:
    """Every condition is defined, or not reached: one before it is not ``reached_if``.

    With it, of how many parts it consists.
    """
    clauses: list[Predicate] = []
    parts = before = 0
    for index, condition in enumerate(conditions):
        if condition.defined != TRUE:
            parts += before + condition.parts
            check_parts(parts)
            values = (earlier.value for earlier in conditions[:index])
            ended = (negate(value) if reached_if else value for value in values)
            clauses.append(any_of(*ended, condition.defined))
        before += condition.parts
    return all_of(*clauses), parts


def branches_defined(chosen: Condition, then: Predicate, otherwise: Predicate) -> Predicate:
    """Where ``… if chosen else …`` is defined, given where its branches are."""
    return all_of(
        chosen.defined,
        implies(chosen.value, then),
        implies(negate(chosen.value), otherwise),
    )


def choose(chosen: Condition, then: Condition, otherwise: Condition) -> Condition:
    """``then if chosen else otherwise``."""
    parts = 4 * chosen.parts + then.parts + otherwise.parts
    check_parts(parts)
    value = any_of(all_of(chosen.value, then.value), all_of(negate(chosen.value), otherwise.value))
    return Condition(value, branches_defined(chosen, then.defined, otherwise.defined), parts)


def same_truth(left: Condition, right: Condition) -> Condition:
    """Both hold or neither does."""
    defined = all_of(left.defined, right.defined)
    parts = 2 * (left.parts + right.parts) + 3
    check_parts(parts)
    for one, other in ((left, right), (right, left)):
        if isinstance(one.value, Truth):
            value = other.value if one.value.value else negate(other.value)
            return Condition(value, defined, parts)
    both = all_of(left.value, right.value)
    neither = all_of(negate(left.value), negate(right.value))
    return Condition(any_of(both, neither), defined, parts)


def any_of_all(conditions: Sequence[Condition], defined: Predicate) -> Condition:
    """Some condition holds; all are evaluated, where ``defined`` holds."""
    parts = sum(condition.parts for condition in conditions) + 1
    check_parts(parts)
    value = any_of(*(condition.value for condition in conditions))
    return Condition(value, all_of(defined, *(c.defined for c in conditions)), parts)
