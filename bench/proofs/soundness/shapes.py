"""Shapes of the arrays that a random program works on."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.ast_model.index_expr import Expr, const


@dataclass(frozen=True, slots=True)
class Length:
    """A dimension: its expression, its value (None if a tuning parameter decides), a bound."""

    expr: Expr
    value: int | None
    most: int

    @staticmethod
    def of(value: int) -> Length:
        """A length that is a number."""
        return Length(const(value), value, value)

    @property
    def divisors(self) -> tuple[int, ...]:
        """What divides a known length, descending, so that the simplest cut is none."""
        value = self.value
        return () if value is None else tuple(d for d in range(value, 0, -1) if value % d == 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths, outermost first; none for a scalar."""

    lengths: tuple[Length, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.lengths)

    @property
    def most(self) -> int:
        """A bound on the number of elements."""
        total = 1
        for length in self.lengths:
            total *= length.most
        return total

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The lengths' expressions."""
        return tuple(length.expr for length in self.lengths)

    @property
    def element(self) -> Shape:
        """What one element of the outermost dimension is."""
        return Shape(self.lengths[1:])

    def with_outer(self, *lengths: Length) -> Shape:
        """The shape inside further dimensions."""
        return Shape((*lengths, *self.lengths))

    def replaced(self, depth: int, count: int, *lengths: Length) -> Shape:
        """Other lengths in the place of ``count`` lengths at ``depth``."""
        return Shape((*self.lengths[:depth], *lengths, *self.lengths[depth + count :]))
