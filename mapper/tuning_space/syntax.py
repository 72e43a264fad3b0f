"""Expressions of tuning spaces as they were read: frozen nodes, each with its place.

``at`` is an offset in the text. Chains of one precedence are one node, so that the depth of a
tree is bounded by the nesting of the text and not by its length.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """An integer."""

    value: int
    at: int


@dataclass(frozen=True, slots=True)
class Text:
    """A label of an enumerated parameter."""

    value: str
    at: int


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    value: bool
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A parameter."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Negation:
    """The negative of a number."""

    operand: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``first op operand op operand …``, from the left; all of one precedence."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Power:
    """A number to a constant power."""

    base: Expression
    exponent: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """``min``, ``max`` or ``abs``."""

    function: str
    arguments: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What stands behind ``in``."""

    items: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``a < b <= c``: every neighbouring pair holds; ``in`` has a listing to its right."""

    first: Expression
    rest: tuple[tuple[str, Expression | Listing], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All parts hold; what follows a part that does not is not evaluated."""

    parts: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Some part holds; what follows it is not evaluated."""

    parts: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Inversion:
    """The operand does not hold."""

    operand: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Conditional:
    """``then if condition else otherwise``; the other branch is not evaluated."""

    condition: Expression
    then: Expression
    otherwise: Expression
    at: int


Expression = (
    Number
    | Text
    | Flag
    | Name
    | Negation
    | Arithmetic
    | Power
    | Call
    | Comparison
    | Conjunction
    | Disjunction
    | Inversion
    | Conditional
)
