"""What a loop's element reads: of which array, at which places, and where that comes from."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mapper.ast_model.elaborator import Elaborator
from mapper.ast_model.index_expr import (
    Expr,
    Quotient,
    Remainder,
    Symbol,
    atom_expr,
    const,
    modulo,
    parameter_symbol,
    symbol,
    the_symbol,
)
from mapper.ast_model.loop_nest import Buffer, Guard, Guarded, Load, Role
from mapper.ast_model.nodes import Let, Map, Node, Program, Reduce, Ref
from mapper.ast_model.specialise import specialise, substitute_node, substitute_type
from mapper.ast_model.types import ArrayType, Memory, ScalarType, TupleType, Type
from mapper.ast_model.views import ArrayView, ScalarView, TupleView, View
from mapper.schedules.facts import type_of
from mapper.schedules.find import MapSite, ReduceSite
from mapper.schedules.tree import Site, bound_types, is_view, uses


@dataclass(frozen=True, slots=True)
class Access:
    """One array of scalars in the element of a loop: where its elements are read from.

    ``outer`` are the loops' variables, outermost first, ``inner`` those of the array's own
    dimensions. Element ``inner`` is ``base[indices]`` where all ``guards`` hold, else
    ``otherwise``. ``base`` is a name in scope, with ``/k`` behind it for the k-th array of tuples.

    Neighbouring dimensions that are gone through as one, row after row, are one in ``shape`` and
    ``indices``: then the array is ``base`` joined at the depths ``joined``, one after the other.
    """

    base: str
    shape: tuple[Expr, ...]
    indices: tuple[Expr, ...]
    guards: tuple[Guard, ...]
    otherwise: float
    outer: tuple[Symbol, ...]
    inner: tuple[Symbol, ...]
    joined: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """A loop and the maps around it that hand their elements on to it, outermost first.

    ``argument`` is what the outermost goes over; after as many dimensions as there are loops it
    is what the loop's own element is.
    """

    loops: tuple[Site, ...]
    argument: Node
    type: Type

    @property
    def depth(self) -> int:
        return len(self.loops)

    @property
    def element(self) -> Type:
        """The type of the loop's element."""
        type_ = self.type
        for _ in self.loops:
            assert isinstance(type_, ArrayType)
            type_ = type_.element
        return type_


def chain_of(found: MapSite | ReduceSite) -> Chain:
    """The loop with the maps around it whose parameter is what it goes over."""
    loops = [found.site]
    types: Type = found.argument
    site, argument = found.site, found.node.argument
    while isinstance(argument, Ref):
        outer = site
        while outer.path and argument.name not in _bound_at(outer):
            outer = outer.up()
        if not outer.path or not _hands_on(outer, site, argument.name):
            break
        site = outer.up()
        assert isinstance(site.node, Map)
        argument = site.node.argument
        types = ArrayType(types, _length(site, argument))
        loops.insert(0, site)
    return Chain(tuple(loops), argument, types)


def _bound_at(site: Site) -> tuple[str, ...]:
    parent, field = site.path[-1]
    return (parent.parameter,) if isinstance(parent, Map) and field == "body" else ()


def _hands_on(body: Site, inner: Site, name: str) -> bool:
    """True if a map's body uses its parameter only as what the inner loop goes over."""
    between = inner.path[len(body.path) :]
    return uses(body.node, name) == 1 and all(
        not isinstance(node, Reduce | Let) or field != "body" for node, field in between
    )


def _length(site: Site, argument: Node) -> Expr:
    type_ = type_of(argument, site.types(), site.program)
    assert isinstance(type_, ArrayType)
    return type_.length


class _Recent(threading.local):
    """What was asked for last: steps of a schedule ask for the same, one after the other."""

    def __init__(self) -> None:
        self.found: deque[tuple[Program, Node, int, tuple[Access | None, ...]]] = deque(maxlen=8)


_RECENT = _Recent()


def accesses(chain: Chain) -> tuple[Access | None, ...]:
    """Of every array of scalars in the loop's element, in order: None if it has no one place."""
    site = chain.loops[0]
    for program, node, depth, found in _RECENT.found:
        if program is site.program and node is site.node and depth == chain.depth:
            return found
    found = tuple(_accesses(chain))
    _RECENT.found.append((site.program, site.node, chain.depth, found))
    return found


def _accesses(chain: Chain) -> Iterator[Access | None]:
    site = chain.loops[0]
    # Parameters that may be 0 are known to be so while indices are simplified.
    zeros = {p.name: parameter_symbol(p.name) for p in site.program.parameters if 0 in p.values}
    types = {name: substitute_type(type_, zeros) for name, type_ in site.types().items()}
    env = {name: opaque(name, type_) for name, type_ in types.items()}
    program = specialise(site.program, zeros)
    argument = substitute_node(chain.argument, zeros)
    view = Elaborator(program, site.kernel.name).read(argument, env)
    outer: list[Symbol] = []
    for position in range(chain.depth):
        assert isinstance(view, ArrayView)
        variable = symbol(f"o{position}'", view.type.length)
        outer.append(the_symbol(variable))
        view = view.at(variable)
    sizes = dict(program.sizes)
    for scalar, inner in _scalars(view, (), sizes):
        yield _access(scalar, tuple(outer), inner, sizes)


def _scalars(
    view: View, inner: tuple[Symbol, ...], sizes: Mapping[str, int]
) -> Iterator[tuple[ScalarView, tuple[Symbol, ...]]]:
    match view:
        case TupleView():
            for item in view.items:
                yield from _scalars(item, inner, sizes)
        case ArrayView():
            length = view.type.length
            variable = symbol(f"j{len(inner)}'", length)
            # A window of one element is none.
            alone = length.names() <= sizes.keys() and length.evaluate(sizes) == 1
            place = const(0) if alone else variable
            yield from _scalars(view.at(place), (*inner, the_symbol(variable)), sizes)
        case ScalarView():
            yield view, inner


def _access(
    view: ScalarView, outer: tuple[Symbol, ...], inner: tuple[Symbol, ...], sizes: Mapping[str, int]
) -> Access | None:
    if not isinstance(view.type, ScalarType):
        return None
    value = view.value
    guards: list[Guard] = []
    values: set[float] = set()
    while isinstance(value, Guarded):
        guards.append(value.guard)
        values.add(value.otherwise)
        value = value.value
    if not isinstance(value, Load) or len(values) > 1:
        return None
    otherwise = values.pop() if values else 0.0
    access = Access(
        value.buffer.name, value.buffer.dimensions, value.indices, tuple(guards), otherwise,
        outer, inner, (),
    )  # fmt: skip
    return _merged(access, sizes) if any(map(_digits, access.indices)) else access


def _merged(access: Access, sizes: Mapping[str, int]) -> Access:
    """With the dimensions of which one index is a quotient and the next the remainder as one."""
    # As numbers where they are 1: else a row of windows of one element is no row.
    ones = {name: const(1) for name, size in sizes.items() if size == 1}
    variables = {s.name: atom_expr(s) for s in (*access.outer, *access.inner)}

    def tidy(expression: Expr) -> Expr:
        return expression.substitute(ones).substitute(variables)

    shape, places = list(access.shape), [tidy(index) for index in access.indices]
    guards = [Guard(tidy(g.index), tidy(g.limit)) for g in access.guards]
    joined: list[int] = []
    for k in reversed(range(len(places) - 1)):
        place = tidy(shape[k + 1]) * places[k] + places[k + 1]
        for atom in _digits(places[k + 1]):
            if isinstance(atom, Remainder) and atom.denominator == tidy(shape[k + 1]):
                whole = atom_expr(Quotient(atom.numerator, atom.denominator, False))
                place += atom.numerator - atom.denominator * whole - atom_expr(atom)
        if _digits(places[k + 1]) and not _digits(place):
            # Within the rows, and so within the array; within a row a remainder always is.
            rows, row = Guard(places[k], tidy(shape[k])), Guard(places[k + 1], tidy(shape[k + 1]))
            both = Guard(place, tidy(shape[k] * shape[k + 1]))
            is_within = places[k + 1] == modulo(places[k + 1], row.limit)
            guards = [both if g == rows else g for g in guards if not (is_within and g == row)]
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
            places[k : k + 2] = [place]
            joined.append(k)
    if not joined:
        return access
    limits = {tidy(length): length for length in shape}
    return replace(
        access,
        shape=tuple(shape),
        indices=tuple(places),
        guards=tuple(Guard(g.index, limits.get(g.limit, g.limit)) for g in guards),
        joined=tuple(joined),
    )


def _digits(index: Expr) -> list[Quotient | Remainder]:
    """The quotients and remainders that are terms of an index."""
    atoms = (atom for monomial, _ in index.terms for atom in monomial)
    return [atom for atom in atoms if isinstance(atom, Quotient | Remainder)]


def opaque(name: str, type_: Type) -> View:
    """A value of which nothing is known but its name: arrays of scalars are buffers."""

    def made(type_: Type, indices: tuple[Expr, ...], shape: tuple[Expr, ...], path: str) -> View:
        match type_:
            case ArrayType(element, length):
                return ArrayView(
                    type_,
                    lambda i: made(element, (*indices, i), (*shape, length), path),
                    frozenset(),
                )
            case TupleType(items):
                several = enumerate(items)
                return TupleView(
                    type_, tuple(made(t, indices, shape, f"{path}/{k}") for k, t in several)
                )
            case _:
                buffer = Buffer(path, Memory.GLOBAL, shape, Role.INPUT)
                return ScalarView(type_, Load(buffer, indices), frozenset())

    return made(type_, (), (), name)


def roots(site: Site) -> dict[str, str]:
    """Of every array in scope the input, kernel or computed value that it is part of."""
    found: dict[str, str] = {}
    env: dict[str, Type] = {i.name: i.type for i in site.program.inputs}
    for position, (node, field) in enumerate(site.path):
        if field != "body":
            continue
        here = Site(site.program, site.kernel, site.path[:position], node)
        types = here.types()
        env = {**types, **bound_types(node, types, site.program)}
        match node:
            case Map(_, parameter, _, argument) | Reduce(_, parameter, _, _, argument):
                depth, target = 1, parameter
            case Let(target, argument):
                depth = 0
            case _:
                continue
        if not is_view(argument):
            continue
        view = Elaborator(site.program, site.kernel.name).read(
            argument, {name: opaque(name, type_) for name, type_ in types.items()}
        )
        if depth:
            assert isinstance(view, ArrayView)
            view = view.at(symbol("o'", view.type.length))
        mine = opaque(target, env[target])
        both = zip(_scalars(view, (), {}), _scalars(mine, (), {}), strict=True)
        for (scalar, _), (name, _) in both:
            source, own = _buffer(scalar), _buffer(name)
            if source is not None and own is not None:
                found[own] = found.get(source, source)
    return found


def _buffer(view: ScalarView) -> str | None:
    value = view.value
    while isinstance(value, Guarded):
        value = value.value
    return value.buffer.name if isinstance(value, Load) else None
