"""Views made anew from the places that they read: dense tiles, and windows over them.

Where every place is a sum of loop variables times factors that are never negative, an array
can be cut into tiles that hold what one loop's element needs and nothing else, and the element be
had from its tile: overlapped tiling, as "Forma: A DSL for Image Processing Applications to Target
GPUs and Multi-core CPUs", section 4, and the rule of "Auto-Generation of Specialized Direct
Convolutions for Mobile GPUs" (GPGPU'20), section 4.1, that splits what slides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mapper.ast_model.index_expr import (
    Expr,
    Quotient,
    Remainder,
    Symbol,
    const,
    exact_div,
    is_nonnegative,
    parameter_symbol,
    symbol,
    the_symbol,
)
from mapper.ast_model.loop_nest import Guard
from mapper.ast_model.nodes import NO, Join, Node, Pad, Program, Slide, Split
from mapper.schedules.access import Access
from mapper.schedules.nests import at_depth, permuted, repeated
from mapper.schedules.unique import Names

ONE = const(1)


class NotAffine(Exception):
    """What stands against it; primitives say it in a refusal."""


@dataclass(frozen=True, slots=True)
class Term:
    """A loop variable and the step that it makes along a dimension."""

    variable: Symbol
    factor: Expr
    extent: Expr

    @property
    def reach(self) -> Expr:
        """How far it goes from its first to its last value."""
        return self.factor * (self.extent - 1)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of the base: ``outer`` and ``inner`` terms, and the place that all start at."""

    outer: tuple[Term, ...]
    inner: tuple[Term, ...]
    start: Expr
    length: Expr
    guarded: bool

    @property
    def tile(self) -> Expr:
        """How much of it one tile holds."""
        return sum((t.reach for t in self.inner), const(1))


@dataclass(frozen=True, slots=True)
class Tiling:
    """How an access is cut: its dimensions and the loops' variables with their extents.

    ``digits`` are of the ``inner`` variables those that are one dimension of the element with the
    variable before: it is read in rows of as many places (channels in blocks of 16).
    """

    dimensions: tuple[Dimension, ...]
    outer: tuple[tuple[Symbol, Expr], ...]
    inner: tuple[tuple[Symbol, Expr], ...]
    otherwise: float
    digits: frozenset[Symbol] = frozenset()

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions of a tile: of the base's those in which it holds more than one place."""
        return tuple(k for k, d in enumerate(self.dimensions) if d.inner)

    @property
    def is_dense(self) -> bool:
        """True if the element is its tile, place for place."""
        inner = [d.inner for d in self.dimensions if d.inner]
        plain = all(len(terms) == 1 and terms[0].factor == 1 for terms in inner)
        return plain and [terms[0].variable for terms in inner] == [v for v, _ in self.inner]

    @property
    def own(self) -> tuple[tuple[Symbol, Expr], ...]:
        """The first variable of each dimension of the element, and how much it holds."""
        found: list[tuple[Symbol, Expr]] = []
        for variable, extent in self.inner:
            if variable in self.digits:
                found[-1] = found[-1][0], found[-1][1] * extent
            else:
                found.append((variable, extent))
        return tuple(found)

    @property
    def is_within(self) -> bool:
        """True if no place is in a border: pads only cut off."""
        return not any(d.guarded for d in self.dimensions)


def tiling_of(program: Program, access: Access) -> Tiling:
    """The tiles of an access; NotAffine says what does not fit."""
    access, digits = _in_digits(access, dict(program.sizes))
    zeros = {p.name for p in program.parameters if 0 in p.values}
    plain = {name: symbol(name) for name in zeros}

    def known(expression: Expr) -> Expr:
        return expression.substitute(plain)

    taken: set[Symbol] = set()
    found: list[Dimension] = []
    unmatched = list(access.guards)
    for index, length in zip(access.indices, access.shape, strict=True):
        guards = [g for g in unmatched if g.index == index and g.limit == length]
        unmatched = [g for g in unmatched if g not in guards]
        outer, rest = _terms(access.outer, index, taken, zeros)
        inner, rest = _terms(access.inner, rest, taken, zeros)
        if any(s in rest.symbols() for s in (*access.outer, *access.inner)):
            raise NotAffine(f"a place is not a sum of loop variables: {index}")
        found.append(
            Dimension(
                tuple(replace(t, factor=known(t.factor), extent=known(t.extent)) for t in outer),
                tuple(replace(t, factor=known(t.factor), extent=known(t.extent)) for t in inner),
                known(rest),
                known(length),
                bool(guards),
            )
        )
    if unmatched:
        raise NotAffine(f"a border that is not around the whole array: {unmatched[0].index}")
    if not found:
        raise NotAffine("a scalar")
    return Tiling(
        tuple(found),
        tuple((s, known(_extent(s))) for s in access.outer),
        tuple((s, known(_extent(s))) for s in access.inner),
        access.otherwise,
        digits,
    )


def _in_digits(access: Access, sizes: Mapping[str, int]) -> tuple[Access, frozenset[Symbol]]:
    """The access with two variables for each of the element's that only comes as a quotient and a
    remainder of one number, which divides its extent; the second of each two."""
    inner, digits = list[Symbol](), set[Symbol]()
    for variable in access.inner:
        row = _row(access, variable, sizes)
        if row is None:
            inner.append(variable)
            continue
        whole = symbol(f"{variable.name}q", exact_div(_extent(variable), row))
        rest = symbol(f"{variable.name}r", row)
        # Whole rows and a rest: the quotient and the remainder of this sum are its parts.
        put = {variable.name: row * whole + rest}
        access = replace(
            access,
            indices=tuple(i.substitute(put) for i in access.indices),
            guards=tuple(Guard(g.index.substitute(put), g.limit) for g in access.guards),
        )
        inner += [the_symbol(whole), the_symbol(rest)]
        digits.add(the_symbol(rest))
    return replace(access, inner=tuple(inner)), frozenset(digits)


def _row(access: Access, variable: Symbol, sizes: Mapping[str, int]) -> Expr | None:
    """The number by which all places divide a variable; None if there is none, or several."""
    rows: set[Expr] = set()
    has_rest = has_whole = False
    for atom in (a for i in access.indices for monomial, _ in i.terms for a in monomial):
        if isinstance(atom, Symbol):
            if atom == variable:
                return None
        elif variable in atom.numerator.symbols():
            rows.add(atom.denominator)
            has_whole |= isinstance(atom, Quotient)
            has_rest |= isinstance(atom, Remainder)
    if len(rows) != 1 or not (has_whole and has_rest):
        return None
    row, extent = rows.pop(), _extent(variable)
    if row.constant is None or not extent.names() <= sizes.keys():
        return None
    return row if extent.evaluate(sizes) % row.constant == 0 else None


def _extent(variable: Symbol) -> Expr:
    assert variable.extent is not None
    return variable.extent


def _terms(
    variables: Sequence[Symbol], index: Expr, taken: set[Symbol], zeros: set[str]
) -> tuple[tuple[Term, ...], Expr]:
    found: list[Term] = []
    for variable in variables:
        parts = index.coefficient(variable)
        if parts is None:
            raise NotAffine(f"a place is not a sum of loop variables: {index}")
        factor, rest = parts
        if factor == 0:
            continue
        proof = factor.substitute({name: parameter_symbol(name) for name in zeros})
        if not is_nonnegative(proof - 1):
            raise NotAffine(f"a step that is not known to go forward: {factor}")
        if variable in taken:
            raise NotAffine("one loop goes along two dimensions")
        taken.add(variable)
        found.append(Term(variable, factor, _extent(variable)))
        index = rest
    return tuple(found), index


@dataclass(frozen=True, slots=True)
class Margin:
    """More places than are needed at either end of a tile's last dimension.

    Tiles and borders of that dimension are of whole vectors of ``vector`` places.
    """

    front: Expr = NO
    wide: Expr = NO
    vector: Expr = ONE


def tiles(names: Names, base: Node, tiling: Tiling, margin: Margin) -> Node:
    """[outer loops][tile dimensions] of the base: for each iteration what it needs."""
    last = tiling.kept[-1] if tiling.kept else -1
    node, labels = base, list[Symbol | int]()
    for position in reversed(range(len(tiling.dimensions))):
        d = tiling.dimensions[position]
        own = margin if position == last else Margin()
        otherwise = tiling.otherwise if d.guarded else 0.0
        node = at_depth(names, partial(_line, names, d, own, otherwise), node, position)
        mine: list[Symbol | int] = [t.variable for t in d.outer]
        labels = [*mine, position, *labels]
    for position in range(len(tiling.dimensions)):
        if position not in tiling.kept:
            node = _joined_away(names, node, labels, position)
    for variable, extent in tiling.outer:
        if variable not in labels:
            node, labels = repeated(names, node, extent), [variable, *labels]
    wanted: list[Symbol | int] = [*(v for v, _ in tiling.outer), *tiling.kept]
    return permuted(names, node, [labels.index(label) for label in wanted])


def vector_demands(tiling: Tiling, margin: Margin) -> tuple[Expr, ...]:
    """What whole vectors must divide, so that tiles and the border are of them."""
    if margin.vector == 1 or not tiling.kept:
        return ()
    d = tiling.dimensions[tiling.kept[-1]]
    size = d.tile + margin.front + margin.wide
    return (margin.front - d.start, size, d.length, *(t.factor for t in d.outer))


def _line(names: Names, d: Dimension, margin: Margin, otherwise: float, line: Node) -> Node:
    """[outer loops][tile] of one dimension of the base."""
    vector = margin.vector
    if vector != 1:
        line = Split(vector, line)
    # All in vectors, which divide it: see vector_demands.
    size = exact_div(d.tile + margin.front + margin.wide, vector)
    terms = [replace(t, factor=exact_div(t.factor, vector)) for t in d.outer]
    length = sum((t.reach for t in terms), size)
    left = exact_div(margin.front - d.start, vector)
    right = length - left - exact_div(d.length, vector)
    if left != 0 or right != 0:
        line = Pad(left, right, otherwise, line)
    line = _cut(names, line, 0, terms, length)
    return line if vector == 1 else at_depth(names, Join, line, len(terms))


def without_repeats(tiling: Tiling) -> Tiling:
    """The tiling without the outer loops for which all tiles are one."""
    used = {t.variable for d in tiling.dimensions for t in d.outer}
    return replace(tiling, outer=tuple(pair for pair in tiling.outer if pair[0] in used))


def with_repeats(names: Names, node: Node, tiling: Tiling) -> Node:
    """The tiles of :func:`without_repeats` for all outer loops."""
    labels: list[Symbol | int] = [v for v, _ in without_repeats(tiling).outer]
    wanted: list[Symbol | int] = [v for v, _ in tiling.outer]
    for variable, extent in tiling.outer:
        if variable not in labels:
            node, labels = repeated(names, node, extent), [variable, *labels]
    return permuted(names, node, [labels.index(label) for label in wanted])


def repeated_inner(tiling: Tiling) -> tuple[int, ...]:
    """The dimensions of the loop's element along which it holds the same again and again."""
    used = {t.variable for d in tiling.dimensions for t in d.inner}
    return tuple(k for k, (variable, _) in enumerate(tiling.own) if variable not in used)


def made_anew(names: Names, base: Node, tiling: Tiling) -> Node:
    """The loop's element for each iteration, from the base alone and without repeats: dimensions
    are the outer loops that it depends on, then its own but those of :func:`repeated_inner`."""
    skipped = {tiling.own[k][0] for k in repeated_inner(tiling)}
    kept = tuple(pair for pair in tiling.inner if pair[0] not in skipped)
    own = replace(without_repeats(tiling), inner=kept)
    cut = tiles(names, base, own, Margin())
    return at_depth(names, lambda v: element(names, v, own, Margin()), cut, len(own.outer))


def again(names: Names, node: Node, tiling: Tiling) -> Node:
    """The loop's element, of one without the dimensions of :func:`repeated_inner`."""
    for place in repeated_inner(tiling):
        extent = tiling.own[place][1]
        node = at_depth(names, lambda v, n=extent: repeated(names, v, n), node, place)
    return node


def element(names: Names, tile: Node, tiling: Tiling, margin: Margin) -> Node:
    """The loop's element, from its tile."""
    node, labels = tile, list[Symbol | int]()
    for depth in reversed(range(len(tiling.kept))):
        position = tiling.kept[depth]
        d = tiling.dimensions[position]
        if position == tiling.kept[-1] and (margin.front != 0 or margin.wide != 0):
            crop = (-margin.front, -margin.wide, 0.0)
            node = at_depth(names, lambda v, crop=crop: Pad(*crop, v), node, depth)
        node = _cut(names, node, depth, d.inner[:-1], d.tile)
        node = _every(names, node, depth + len(d.inner) - 1, d.inner[-1])
        labels = [*(t.variable for t in d.inner), *labels]
    for variable, extent in tiling.inner:
        if variable not in labels:
            node, labels = repeated(names, node, extent), [variable, *labels]
    wanted = [v for v, _ in tiling.inner]
    node = permuted(names, node, [labels.index(label) for label in wanted])
    for depth in reversed(range(len(wanted))):
        if wanted[depth] in tiling.digits:
            node = at_depth(names, Join, node, depth - 1)
    return node


def _cut(names: Names, node: Node, depth: int, terms: Sequence[Term], length: Expr) -> Node:
    """Windows along the dimension at ``depth``, one dimension more for each term."""
    for term in terms:
        size = length - term.reach
        if size == term.factor:
            node = at_depth(names, lambda v, s=size: Split(s, v), node, depth)
        else:
            node = at_depth(
                names, lambda v, s=size, t=term: Slide(s, t.factor, v, t.factor != 1), node, depth
            )
        depth, length = depth + 1, size
    return node


def _every(names: Names, node: Node, depth: int, term: Term) -> Node:
    """Every so many places along a dimension, from the first to the last."""
    if term.factor == 1:
        return node
    return at_depth(
        names,
        lambda v: Join(Slide(const(1), term.factor, v, True)),
        node,
        depth,
    )


def _joined_away(names: Names, node: Node, labels: list[Symbol | int], position: int) -> Node:
    """A dimension of one place left out."""
    place = labels.index(position)
    labels.remove(position)
    return at_depth(names, Join, node, max(place - 1, 0))
