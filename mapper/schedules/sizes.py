"""Sizes that a schedule names: numbers, or tuning parameters with their domains."""

from __future__ import annotations

from itertools import islice, product
from math import prod

from mapper.ast_model.index_expr import Expr, ExprLike, as_expr
from mapper.ast_model.nodes import Parameter, Program
from mapper.ast_model.text_form import parse_expr
from mapper.errors import InputError

MAX_COMBINATIONS = 4096
MAX_VALUE = 4096
#: No more divisors than these are taken beside round sizes.
_FEW = 8
#: Lengths that are short, and how many tiles of them are few.
_SHORT = 256
_FEW_TILES = 4
Size = ExprLike | str


def as_size(size: Size) -> Expr:
    """A size as it is named: a number, an expression or its text; InputError for other text."""
    return parse_expr(size) if isinstance(size, str) else as_expr(size)


def lengths(program: Program, length: Expr) -> tuple[int, ...]:
    """The lengths that an expression may stand for; for very many combinations some of them."""
    sizes = dict(program.sizes)
    free = [p for p in program.parameters if p.name in length.names()]
    if prod(len(p.values) for p in free) > MAX_COMBINATIONS:
        free = [Parameter(p.name, tuple({p.values[0], p.values[-1]})) for p in free]
    found: set[int] = set()
    for values in islice(product(*(p.values for p in free)), MAX_COMBINATIONS):
        numbers = {**sizes, **dict(zip((p.name for p in free), values, strict=True))}
        try:
            found.add(length.evaluate(numbers))
        except InputError:  # a division that leaves a remainder for these values
            continue
    return tuple(sorted(n for n in found if n >= 1))


def divisors(program: Program, length: Expr) -> tuple[int, ...]:
    """What divides some length that the expression stands for, ascending."""
    found = {k for n in lengths(program, length) for k in range(1, min(n, MAX_VALUE) + 1)
             if n % k == 0}  # fmt: skip
    return tuple(sorted(found)) or (1,)


def upto(program: Program, length: Expr) -> tuple[int, ...]:
    """1 to the longest length that the expression stands for."""
    most = max(lengths(program, length), default=1)
    return tuple(range(1, min(most, MAX_VALUE) + 1))


def coarsely(program: Program, length: Expr) -> tuple[int, ...]:
    """Two sizes in each octave, a power of two and thrice one: their products are few. What divides
    a length beside them where that is not many more; for a short length that eight does not divide,
    where round sizes waste most, the least multiples of four with which few tiles cover it."""
    most = max(lengths(program, length), default=1)
    found = {n << k for n in (1, 3) for k in range(MAX_VALUE.bit_length()) if n << k <= most}
    exact = divisors(program, length)
    if most <= _SHORT and most % 8:
        found |= {4 * -(-most // (4 * tiles)) for tiles in range(1, _FEW_TILES + 1)}
    return tuple(sorted(found.union(exact if len(exact) <= _FEW else ())))


def overhangs(program: Program, length: Expr, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """How much is missing to whole tiles of these sizes, for some length."""
    return tuple(sorted({-n % size for n in lengths(program, length) for size in sizes}))


def parameters_for(program: Program, size: Expr, values: tuple[int, ...]) -> tuple[Parameter, ...]:
    """The parameters that a size names and the program does not have yet, with these values."""
    known = {name for name, _ in program.sizes} | {p.name for p in program.parameters}
    return tuple(Parameter(name, values) for name in sorted(size.names() - known))
