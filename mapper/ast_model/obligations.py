"""Conditions on sizes and tuning parameters that make a program's types right."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mapper.ast_model.index_expr import Expr, is_nonnegative, modulo
from mapper.ast_model.nodes import Relation
from mapper.errors import InputError


@dataclass(frozen=True, slots=True)
class Obligation:
    """What must hold of sizes and tuning parameters so that the types are right.

    ``rule`` is "split", "as-vector", "slide-strict", "slide", "pad", "reorder",
    "equal-length" or "requirement" (stated by the program, or a length of at least 1).
    """

    path: str
    rule: str
    left: Expr
    relation: Relation
    right: Expr
    sentence: str

    def holds(self, values: Mapping[str, int]) -> bool:
        """True if it holds under ``values``; InputError names a symbol without a value."""
        return relation_holds(
            self.left.evaluate(values), self.relation, self.right.evaluate(values)
        )

    def __str__(self) -> str:
        return f"{self.left} {self.relation.value} {self.right}"


def relation_holds(left: int, relation: Relation, right: int) -> bool:
    """The meaning of relations on integers; 0 divides nothing."""
    match relation:
        case Relation.EQ:
            return left == right
        case Relation.NE:
            return left != right
        case Relation.LE:
            return left <= right
        case Relation.LT:
            return left < right
        case Relation.GE:
            return left >= right
        case Relation.GT:
            return left > right
        case Relation.DIVIDES:
            return left != 0 and right % left == 0


@lru_cache(maxsize=65536)
def always_holds(left: Expr, relation: Relation, right: Expr) -> bool:
    """True if it holds whatever the symbols are, each at least 1."""
    difference = right - left
    match relation:
        case Relation.EQ:
            return difference == 0
        case Relation.NE:
            return is_nonnegative(difference - 1) or is_nonnegative(-difference - 1)
        case Relation.LE:
            return is_nonnegative(difference)
        case Relation.LT:
            return is_nonnegative(difference - 1)
        case Relation.GE:
            return is_nonnegative(-difference)
        case Relation.GT:
            return is_nonnegative(-difference - 1)
        case Relation.DIVIDES:
            return modulo(right, left) == 0


def decide(
    left: Expr,
    relation: Relation,
    right: Expr,
    sizes: Mapping[str, int],
    may_be_zero: Collection[str],
) -> bool | None:
    """True if it always holds, False if it never can, None if it must be kept.

    What holds only because of the values of ``sizes`` is kept: it says what other sizes
    the program works for. Symbols in ``may_be_zero`` are taken to prove nothing.
    """
    names = left.names() | right.names()
    if names <= sizes.keys():
        try:
            holds = relation_holds(left.evaluate(sizes), relation, right.evaluate(sizes))
        except InputError:  # a division by zero
            holds = False
        if not names or not holds:
            return holds
    difference = (right - left).constant
    if difference is not None and relation is not Relation.DIVIDES:
        return relation_holds(0, relation, difference)
    if names & set(may_be_zero):
        return None
    return True if always_holds(left, relation, right) else None
