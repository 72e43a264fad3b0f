"""Polynomials with integer coefficients over symbols, floor quotients and remainders.

The values behind :mod:`mapper.ast_model.index_expr`, which says what they are for: their
canonical form, arithmetic, substitution, evaluation and text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

from mapper.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A named integer; with ``extent`` a loop variable in ``[0, extent)``."""

    name: str
    extent: Expr | None = None
    may_be_zero: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        # Mostly it is the very same object, or has another name.
        return self is other or (
            isinstance(other, Symbol)
            and self.name == other.name
            and self.extent == other.extent
            and self.may_be_zero == other.may_be_zero
        )


@dataclass(frozen=True, slots=True)
class Quotient:
    """Floor division that did not simplify; ``exact`` says the remainder is zero."""

    numerator: Expr
    denominator: Expr
    exact: bool


@dataclass(frozen=True, slots=True)
class Remainder:
    """Non-negative remainder that did not simplify."""

    numerator: Expr
    denominator: Expr


SIMPLIFIES: ContextVar[bool] = ContextVar("SIMPLIFIES", default=True)
"""False where divisions are to stand as they are (see :func:`index_expr.as_they_are`)."""

Atom = Symbol | Quotient | Remainder
Monomial = tuple[Atom, ...]
ExprLike = Union["Expr", int]


def atom_key(atom: Atom) -> tuple[int, str]:
    """What atoms are sorted by, in a term and between terms: their kind and text."""
    if isinstance(atom, Symbol):
        return (1 if atom.extent is None else 0, atom.name)
    return (2, _division_text(atom))


@lru_cache(maxsize=65536)
def _division_text(atom: Quotient | Remainder) -> str:
    return str(Expr((((atom,), 1),)))


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, str]]]:
    return -len(term[0]), [atom_key(atom) for atom in term[0]]


class Expr:
    """An immutable polynomial; build it with :func:`const`, :func:`symbol` and operators."""

    __slots__ = ("_ends", "_hash", "_mentions", "_symbols", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._symbols: frozenset[Symbol] | None = None
        self._mentions: frozenset[str] | None = None
        # Not known yet: the empty tuple.
        self._ends: tuple[int, int] | tuple[()] | None = ()
        self._text = ""

    @staticmethod
    def from_terms(terms: Mapping[Monomial, int]) -> Expr:
        kept = [(m, c) for m, c in terms.items() if c != 0]
        if len(kept) > 1:
            kept.sort(key=_term_key)
        return Expr(tuple(kept))

    def __reduce__(self) -> tuple[type[Expr], tuple[tuple[tuple[Monomial, int], ...]]]:
        # Hashes of names are another process's own.
        return Expr, (self.terms,)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr):
            return self is other or (self._hash == other._hash and self.terms == other.terms)
        return isinstance(other, int) and self.constant == other

    @property
    def constant(self) -> int | None:
        """The value if this is a constant, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __add__(self, other: ExprLike) -> Expr:
        other = as_expr(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        total = dict(self.terms)
        cancelled: list[Expr] = []
        for monomial, coefficient in other.terms:
            if monomial not in total:
                total[monomial] = coefficient
                continue
            summed = total.pop(monomial) + coefficient
            product = _cancel(summed, monomial)  # a/2 + a/2 = a
            if product is None:
                total[monomial] = summed
            else:
                cancelled.append(product)
        result = Expr.from_terms(total)
        for product in cancelled:
            result = result + product
        return result

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: ExprLike) -> Expr:
        return self + (-as_expr(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return as_expr(other) + (-self)

    def __mul__(self, other: ExprLike) -> Expr:
        other = as_expr(other)
        if (number := other.constant) is not None:
            return self._times(number)
        if (number := self.constant) is not None:
            return other._times(number)
        total: Expr | None = None
        flat: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in other.terms:
                key = tuple(sorted(m1 + m2, key=atom_key))
                product = _cancel(c1 * c2, key)
                if product is None:
                    flat[key] = flat.get(key, 0) + c1 * c2
                else:
                    total = product if total is None else total + product
        result = Expr.from_terms(flat)
        return result if total is None else total + result

    __rmul__ = __mul__

    def _times(self, number: int) -> Expr:
        if number == 1:
            return self
        if number == 0:
            return const(0)
        total: Expr | None = None
        plain: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            product = _cancel(coefficient * number, monomial)
            if product is None:
                plain.append((monomial, coefficient * number))
            else:
                total = product if total is None else total + product
        result = Expr(tuple(plain))
        return result if total is None else total + result

    def __str__(self) -> str:
        if not self._text:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+"
            body = _term_text(abs(coefficient), monomial)
            if text:
                text += f" {sign} {body}"
            elif sign == "+":
                text = body
            else:
                # -a/b would be read as (-a)/b, which is another term.
                text = f"-({body})" if coefficient == -1 and _is_division(monomial) else f"-{body}"
        return text

    def __repr__(self) -> str:
        return f"Expr({self})"

    def symbols(self) -> frozenset[Symbol]:
        """Every symbol that occurs, inside quotients and remainders too."""
        if self._symbols is None:
            found: set[Symbol] = set()
            for monomial, _ in self.terms:
                for atom in monomial:
                    if isinstance(atom, Symbol):
                        found.add(atom)
                    else:
                        found |= atom.numerator.symbols() | atom.denominator.symbols()
            self._symbols = frozenset(found)
        return self._symbols

    def names(self) -> frozenset[str]:
        """Names of the symbols that occur."""
        return frozenset(s.name for s in self.symbols())

    def mentions(self) -> frozenset[str]:
        """Names of the symbols that occur, in the extents of loop variables too."""
        if self._mentions is None:
            found: set[str] = set()
            for symbol_ in self.symbols():
                found.add(symbol_.name)
                if symbol_.extent is not None:
                    found |= symbol_.extent.mentions()
            self._mentions = frozenset(found)
        return self._mentions

    def ends(self) -> tuple[int, int] | None:
        """Numbers that it is never below or above; None if they depend on anything."""
        if self._ends == ():
            self._ends = _number_ends(self)
        return self._ends or None

    def substitute(self, values: Mapping[str, ExprLike]) -> Expr:
        """Replace symbols by name, in loop extents too; what is replaced is simplified."""
        mentioned = self.mentions()
        if mentioned.isdisjoint(values):
            return self
        items = tuple((n, v) for n, v in values.items() if n in mentioned)
        # What is remembered has been simplified.
        return _substituted(self, items) if SIMPLIFIES.get() else _put_in(self, items)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer under ``values``; InputError names a symbol without a value."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                match atom:
                    case Symbol():
                        if atom.name not in values:
                            raise InputError(f"no value for {atom.name!r} in expression {self}")
                        product *= values[atom.name]
                    case Quotient():
                        divisor = atom.denominator.evaluate(values)
                        if divisor == 0:
                            raise InputError(f"division by zero in expression {self}")
                        product *= atom.numerator.evaluate(values) // divisor
                    case Remainder():
                        divisor = atom.denominator.evaluate(values)
                        if divisor == 0:
                            raise InputError(f"division by zero in expression {self}")
                        product *= atom.numerator.evaluate(values) % divisor
            total += product
        return total

    def coefficient(self, variable: Symbol) -> tuple[Expr, Expr] | None:
        """Split into ``(factor, rest)`` with ``self = factor * variable + rest``.

        None if the variable occurs more than linearly or inside a quotient or remainder.
        """
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            count = 0
            for atom in monomial:
                if isinstance(atom, Symbol):
                    count += atom == variable
                elif variable in atom.numerator.symbols() | atom.denominator.symbols():
                    return None
            if count > 1:
                return None
            if count == 0:
                rest[monomial] = coefficient
            else:
                without = tuple(a for a in monomial if a != variable)
                factor[without] = factor.get(without, 0) + coefficient
        return Expr.from_terms(factor), Expr.from_terms(rest)


@lru_cache(maxsize=4096, typed=True)  # True is no 1 when it is printed
def const(value: int) -> Expr:
    """A constant."""
    return Expr((((), value),)) if value else Expr(())


# One object for equal symbols, so that comparing them seldom looks further.
@lru_cache(maxsize=65536)
def symbol(name: str, extent: ExprLike | None = None) -> Expr:
    """A symbol; with an extent, a loop variable."""
    return Expr((((Symbol(name, None if extent is None else as_expr(extent)),), 1),))


def parameter_symbol(name: str) -> Expr:
    """A tuning parameter whose values include 0."""
    return Expr((((Symbol(name, None, True),), 1),))


def as_expr(value: ExprLike) -> Expr:
    """An int as an expression; an expression as it is."""
    return const(value) if isinstance(value, int) else value


def the_symbol(expression: Expr) -> Symbol:
    """The symbol that a one-symbol expression consists of."""
    ((atom,), one) = expression.terms[0]
    assert isinstance(atom, Symbol) and one == 1 and len(expression.terms) == 1
    return atom


def weighted_sum(parts: Iterable[tuple[int, Expr]]) -> Expr:
    """The sum of expressions, each times its number."""
    flat: dict[Monomial, int] = {}
    others: Expr | None = None
    for weight, part in parts:
        for monomial, coefficient in part.terms:
            if any(isinstance(atom, Quotient) and atom.exact for atom in monomial):
                # A multiple of it may cancel out.
                product = Expr(((monomial, coefficient),)) * weight
                others = product if others is None else others + product
            else:
                flat[monomial] = flat.get(monomial, 0) + weight * coefficient
    result = Expr.from_terms(flat)
    return result if others is None else others + result


def atom_expr(atom: Atom) -> Expr:
    """The atom alone."""
    return Expr((((atom,), 1),))


# Unrolling puts the same numbers into the same index again and again.
@lru_cache(maxsize=16384)
def _substituted(expression: Expr, items: tuple[tuple[str, ExprLike], ...]) -> Expr:
    return _put_in(expression, items)


def _put_in(expression: Expr, items: tuple[tuple[str, ExprLike], ...]) -> Expr:
    values = dict(items)
    kept: list[tuple[Monomial, int]] = []
    parts: list[tuple[int, Expr]] = []
    for monomial, coefficient in expression.terms:
        if not any(_is_changed(atom, values) for atom in monomial):
            kept.append((monomial, coefficient))
            continue
        product = const(1)
        for atom in monomial:
            product = product * _substitute_atom(atom, values)
        parts.append((coefficient, product))
    return weighted_sum([(1, Expr(tuple(kept))), *parts])


def _is_changed(atom: Atom, values: Mapping[str, ExprLike]) -> bool:
    if isinstance(atom, Symbol):
        if atom.name in values:
            return True
        return atom.extent is not None and not atom.extent.mentions().isdisjoint(values)
    return not (
        atom.numerator.mentions().isdisjoint(values)
        and atom.denominator.mentions().isdisjoint(values)
    )


def _substitute_atom(atom: Atom, values: Mapping[str, ExprLike]) -> Expr:
    # Divisions are made of polynomials, and putting numbers into one divides again.
    from mapper.ast_model.index_expr import exact_div, floor_div, modulo

    match atom:
        case Symbol():
            if atom.name in values:
                return as_expr(values[atom.name])
            if atom.extent is not None:
                return symbol(atom.name, atom.extent.substitute(values))
            return atom_expr(atom)
        case Quotient():
            top, bottom = atom.numerator.substitute(values), atom.denominator.substitute(values)
            return exact_div(top, bottom) if atom.exact else floor_div(top, bottom)
        case Remainder():
            return modulo(atom.numerator.substitute(values), atom.denominator.substitute(values))


def _cancel(coefficient: int, monomial: Monomial) -> Expr | None:
    """``q*(a/q) -> a`` for an exact quotient inside a product, or None."""
    for position, atom in enumerate(monomial):
        if not isinstance(atom, Quotient) or not atom.exact:
            continue
        rest = monomial[:position] + monomial[position + 1 :]
        divided = divide_term(coefficient, rest, atom.denominator)
        if divided is not None:
            return divided * atom.numerator
    return None


def divide_term(coefficient: int, monomial: Monomial, divisor: Expr) -> Expr | None:
    """The term divided by a one-term divisor without remainder, or None."""
    if len(divisor.terms) != 1:
        return None
    (d_monomial, d_coefficient) = divisor.terms[0]
    if d_coefficient == 0 or coefficient % d_coefficient:
        return None
    left = list(monomial)
    for atom in d_monomial:
        if atom not in left:
            return None
        left.remove(atom)
    return Expr.from_terms({tuple(sorted(left, key=atom_key)): coefficient // d_coefficient})


def _number_ends(expression: Expr) -> tuple[int, int] | None:
    low = high = 0
    for monomial, coefficient in expression.terms:
        least = most = coefficient
        for atom in monomial:
            ends = _atom_ends(atom)
            if ends is None:
                return None
            least *= ends[0]
            most *= ends[1]
        low += min(least, most)
        high += max(least, most)
    return low, high


def _atom_ends(atom: Atom) -> tuple[int, int] | None:
    """As :func:`_atom_range`, where both are numbers."""
    if isinstance(atom, Symbol):
        size = None if atom.extent is None else atom.extent.constant
        return None if size is None else (0, size - 1)
    divisor = atom.denominator.constant
    if not divisor:
        return None
    if isinstance(atom, Remainder):
        return 0, divisor - 1
    ends = atom.numerator.ends()
    return None if ends is None or ends[0] < 0 else (0, ends[1] // divisor)


def _term_text(coefficient: int, monomial: Monomial) -> str:
    factors = [str(coefficient)] if coefficient != 1 or not monomial else []
    alone = coefficient == 1 and len(monomial) == 1
    for atom in monomial:
        match atom:
            case Symbol():
                factors.append(atom.name)
            case Quotient():
                if atom.exact:
                    # In a product it stays in parentheses: 2*(n/4) is not (2*n)/4 as a term.
                    quotient = f"{_paren(atom.numerator)}/{_paren(atom.denominator)}"
                    factors.append(quotient if alone else f"({quotient})")
                else:
                    factors.append(f"({_paren(atom.numerator)} // {_paren(atom.denominator)})")
            case Remainder():
                factors.append(f"({_paren(atom.numerator)} % {_paren(atom.denominator)})")
    return "*".join(factors)


def _is_division(monomial: Monomial) -> bool:
    """True if it prints as ``a/b``, without parentheses of its own."""
    return len(monomial) == 1 and isinstance(monomial[0], Quotient) and monomial[0].exact


def _paren(expression: Expr) -> str:
    if len(expression.terms) == 1:
        (monomial, coefficient) = expression.terms[0]
        plain = len(monomial) == 1 and not _is_division(monomial)
        if not monomial or (coefficient == 1 and plain):
            return str(expression)
    return f"({expression})"


def walk_atoms(expression: Expr) -> Iterator[Atom]:
    """Every atom, outer before inner."""
    for monomial, _ in expression.terms:
        for atom in monomial:
            yield atom
            if not isinstance(atom, Symbol):
                yield from walk_atoms(atom.numerator)
                yield from walk_atoms(atom.denominator)
