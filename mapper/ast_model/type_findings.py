"""Problems and obligations of a program while its types are inferred."""

from __future__ import annotations

import math

from mapper.ast_model.bounds import MAX_TUPLE_LEAVES, MAX_TYPE_DEPTH, type_is_too_large
from mapper.ast_model.declarations import expression_problems
from mapper.ast_model.index_expr import Expr, Quotient, const, walk_atoms
from mapper.ast_model.nodes import Program, Relation
from mapper.ast_model.obligations import Obligation, decide
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import ArrayType, ScalarType, TupleType, Type, VectorType
from mapper.elements import Element
from mapper.errors import Problem


class Findings:
    """What is found of one program: ``problems``, and ``obligations`` on what is not fixed yet.

    Methods that check say whether all is right, or give back None for "no type".
    """

    def __init__(self, program: Program, memory: TypeMemory | None = None) -> None:
        self.program = program
        self._memory = memory
        self.problems: list[Problem] = []
        self.obligations: list[Obligation] = []
        self._sizes = dict(program.sizes)
        self._names = frozenset(self._sizes) | {p.name for p in program.parameters}
        # Expressions take every symbol to be at least 1; what may be 0 proves nothing.
        self._may_be_zero = {p.name for p in program.parameters if 0 in p.values}

    def fail(
        self, path: str, message: str, found: str = "", allowed: str = "", remedy: str = ""
    ) -> None:
        self.problems.append(Problem(path, message, found, allowed, remedy))

    def check_size(self, size: Expr, path: str, rule: str, what: str) -> bool:
        """Names are known, and the value is at least 1."""
        if not self._known(size, path, what):
            return False
        return self._oblige(path, rule, const(1), Relation.LE, size, f"{what} must be at least 1")

    def _array(self, type_: Type | None, path: str, what: str) -> ArrayType | None:
        if type_ is None or isinstance(type_, ArrayType):
            return type_
        self.fail(path, f"{what} works on arrays", type_text(type_), "an array")
        return None

    def _matrix(
        self, type_: Type | None, path: str, what: str
    ) -> tuple[ArrayType, ArrayType] | None:
        outer = self._array(type_, path, what)
        if outer is None:
            return None
        if not isinstance(outer.element, ArrayType):
            self.fail(path, f"{what} works on arrays of arrays", type_text(outer), "[[T]m]n",
                      "zip after it" if isinstance(outer.element, TupleType) else "")  # fmt: skip
            return None
        return outer, outer.element

    def _product(self, left: Expr, right: Expr, element: Type, path: str) -> Type | None:
        if len(left.terms) * len(right.terms) > 256:
            self.fail(path, "the length has too many terms", "", "256", "fewer different pads")
            return None
        return self._made(ArrayType(element, left * right), path)

    def _made(self, type_: ArrayType, path: str) -> Type | None:
        """The type itself, unless it has grown beyond what can be worked with."""
        if self._memory is not None:
            return type_  # a part of a program that was found to be within the bounds
        if list(expression_problems(type_.length, self._names, path, "a length")):
            self.fail(path, "the length has grown too large", "", "", "fewer nested divisions")
            return None
        if type_is_too_large(type_):
            allowed = f"{MAX_TYPE_DEPTH} levels, {MAX_TUPLE_LEAVES} components"
            self.fail(path, "the type has grown too large", "", allowed)
            return None
        return type_

    def _same(self, expected: Type, found: Type, path: str, what: str) -> bool:
        """Types agree; lengths that differ only as symbols become obligations."""
        match expected, found:
            case ScalarType(), ScalarType() if expected == found:
                return True
            case VectorType(), VectorType() if expected.dtype is found.dtype:
                return self._equal(expected.width, found.width, path, f"vector widths in {what}")
            case ArrayType(), ArrayType():
                return self._equal(
                    expected.length, found.length, path, f"lengths in {what}"
                ) and self._same(expected.element, found.element, path, what)
            case TupleType(), TupleType() if len(expected.items) == len(found.items):
                return all(
                    self._same(a, b, path, what)
                    for a, b in zip(expected.items, found.items, strict=True)
                )
            case _:
                self.fail(path, f"{what} has another type", type_text(found), type_text(expected))
                return False

    def _equal(self, left: Expr, right: Expr, path: str, what: str) -> bool:
        return self._oblige(path, "equal-length", left, Relation.EQ, right, f"{what} are equal")

    def _oblige(
        self, path: str, rule: str, left: Expr, relation: Relation, right: Expr, sentence: str
    ) -> bool:
        """Note what must hold; drop what always does; report what never can (then False)."""
        verdict = decide(left, relation, right, self._sizes, self._may_be_zero)
        if verdict is None:
            self.obligations.append(Obligation(path, rule, left, relation, right, sentence))
        elif not verdict:
            names = sorted((left.names() | right.names()) & self._sizes.keys())
            found = f"{left} and {right}" + "".join(f", {n} = {self._sizes[n]}" for n in names)
            self.fail(path, f"{rule}: {sentence}", found, f"{left} {relation.value} {right}")
        return verdict is not False

    def _known(self, expression: Expr, path: str, what: str) -> bool:
        found = list(expression_problems(expression, self._names, path, what))
        self.problems += found
        if found:
            return False
        # "/" is exact: what it divides must leave no remainder.
        return all(
            self._oblige(path, "requirement", atom.denominator, Relation.DIVIDES, atom.numerator,
                         f"{what} divides with nothing left")
            for atom in walk_atoms(expression)
            if isinstance(atom, Quotient) and atom.exact
        )  # fmt: skip

    def _check_constant(self, value: float, dtype: Element, path: str) -> None:
        if not math.isfinite(value):
            self.fail(path, "a constant must be finite", str(value), "a number", "-3.4e38 for -inf")
        elif not dtype.holds(value):
            low, high = dtype.range
            self.fail(path, f"the constant is no {dtype.text}", f"{value:g}",
                      f"whole numbers from {low} to {high}")  # fmt: skip


def type_text(type_: Type) -> str:
    """The type as it is told to people, cut if it is long."""
    text = str(type_)
    return text if len(text) <= 200 else text[:199] + "…"
