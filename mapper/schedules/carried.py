"""What a loop's element is made of: arrays that can be replaced one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mapper.ast_model.nodes import Get, Join, Map, MapId, Node, Program, Reduce, Ref
from mapper.ast_model.types import ArrayType, TupleType, Type, dimensions
from mapper.schedules.access import Access, Chain, accesses, chain_of, roots
from mapper.schedules.affine import NotAffine, Tiling, tiling_of
from mapper.schedules.find import MapSite, ReduceSite, find_loop
from mapper.schedules.leaves import assembled, leaf_paths, leaf_types, leaves
from mapper.schedules.nests import at_depth, zip_nd
from mapper.schedules.step import refusal
from mapper.schedules.tree import free_names, is_view, looked_at, replaced, with_child
from mapper.schedules.unique import Names

OldBody = Callable[[list[Node]], Node]
"""Makes a loop's body as it was of expressions for the parts that its element had."""


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a loop's element: what it is for all loops of the chain, and its own type.

    ``root`` is the input, kernel or computed value that it comes from.
    """

    array: Node
    type: Type
    access: Access | None
    root: str
    item: int


@dataclass(frozen=True, slots=True)
class Carried:
    """A loop and the arrays that its element is made of; those that the body ignores left out."""

    found: MapSite | ReduceSite
    chain: Chain
    parts: tuple[Part, ...]

    @property
    def parameter(self) -> str:
        return self.found.node.parameter

    def reads(self, base: str) -> list[int]:
        """The parts that come from this input, kernel or value."""
        return [k for k, p in enumerate(self.parts)
                if base in (p.root, p.access.base if p.access else "")]  # fmt: skip


def carried(
    primitive: str, names: Names, program: Program, loop: MapId, *, every: bool = False
) -> Carried:
    """The loop of this name; NotApplicable if what it goes over is computed.

    With ``every`` also the arrays that its body ignores.
    """
    found = find_loop(primitive, program, loop)
    chain = chain_of(found)
    if not is_view(chain.argument):
        raise refusal(primitive, loop, "what the loop goes over is computed", "", "a view",
                      "stage it first")  # fmt: skip
    where = roots(chain.loops[0])
    arrays = leaves(names, chain.argument, chain.type)
    types = leaf_types(chain.element)
    places = accesses(chain)
    items = _items(chain.element)
    used = looked_at(found.node.body, found.node.parameter)
    parts = tuple(
        Part(array, type_, access, where.get(access.base, access.base) if access else "", item)
        for array, type_, access, item in zip(arrays, types, places, items, strict=True)
        if every or not isinstance(chain.element, TupleType) or used is None or item in used
    )
    return Carried(found, chain, parts)


def _items(element: Type) -> list[int]:
    """Of every leaf the component of the element that it is in."""
    if not isinstance(element, TupleType):
        return [0] * len(leaf_types(element))
    return [k for k, item in enumerate(element.items) for _ in leaf_types(item)]


def with_parts(
    names: Names,
    carried: Carried,
    arrays: Sequence[Node],
    body: Callable[[list[Node], OldBody], Node],
) -> Program:
    """The program whose chain goes over ``arrays`` instead.

    ``body`` is given the new parts of the element, and what makes the loop's old body of
    expressions for its old parts.
    """
    found, chain = carried.found, carried.chain
    x = carried.parameter
    new: list[Node] = [Ref(x)] if len(arrays) == 1 else [Get(k, Ref(x)) for k in range(len(arrays))]

    def old_body(expressions: list[Node]) -> Node:
        return _put_in(names, carried, expressions)

    node: Node = replace(found.node, body=body(new, old_body))
    top = chain.loops[0]
    for parent, field in reversed(found.site.path[len(top.path) :]):
        node = with_child(parent, field, node)
    assert isinstance(node, Map | Reduce)
    argument = zip_nd(names, chain.depth, tuple(arrays))
    return top.replaced(replace(node, argument=argument))


def with_arguments(
    names: Names, carried: Carried, arguments: Sequence[Node], parts: list[Node]
) -> Program:
    """The program whose chain's loops go over these, one by one, outermost first.

    ``parts`` stand in the body for the parts that the loop's element had.
    """
    found, loops = carried.found, carried.chain.loops
    node: Node = replace(found.node, body=_put_in(names, carried, parts), argument=arguments[-1])
    places = {id(site.node): k for k, site in enumerate(loops[:-1])}
    top = loops[0]
    for parent, field in reversed(found.site.path[len(top.path) :]):
        node = with_child(parent, field, node)
        if id(parent) in places and isinstance(node, Map):
            node = replace(node, argument=arguments[places[id(parent)]])
    return top.replaced(node)


def with_same_parts(names: Names, carried: Carried, arrays: list[Node]) -> Program:
    """The program whose chain goes over arrays of the same types that hold the same."""
    top = carried.chain.loops[0]
    assert isinstance(top.node, Map | Reduce)
    argument = assembled(names, carried.chain.type, arrays)
    return top.replaced(replace(top.node, argument=argument))


def _put_in(names: Names, carried: Carried, expressions: list[Node]) -> Node:
    element, x = carried.chain.element, carried.parameter
    body = carried.found.node.body
    if not isinstance(element, TupleType):
        whole = expressions[0] if len(expressions) == 1 and not _has_tuples(element) else (
            assembled(names, element, expressions))  # fmt: skip
        return _exchanged(body, Ref(x), whole)
    for index, item in enumerate(element.items):
        mine = [e for e, p in zip(expressions, carried.parts, strict=True) if p.item == index]
        if mine:
            body = _component_put_in(names, body, Get(index, Ref(x)), item, mine)
    return body


def _component_put_in(
    names: Names, body: Node, old: Node, item: Type, expressions: list[Node]
) -> Node:
    """The body with these for a component of an element; one by one if it is a tuple itself."""
    if not isinstance(item, TupleType):
        return _exchanged(body, old, assembled(names, item, expressions))
    rest = expressions
    for index, inner in enumerate(item.items):
        count = len(leaf_types(inner))
        mine, rest = rest[:count], rest[count:]
        body = _component_put_in(names, body, Get(index, old), inner, mine)
    return body


def part_tiling(primitive: str, found: Carried, loop: MapId, place: int) -> Tiling:
    """How a part is cut into tiles; NotApplicable where it cannot be."""
    access = found.parts[place].access
    if access is None:
        raise refusal(primitive, loop, "it is no array of floats with one place for each")
    try:
        return tiling_of(found.found.site.program, access)
    except NotAffine as error:
        raise refusal(primitive, loop, str(error), "",
                      "sums of loop variables times steps forward") from None  # fmt: skip


def base_node(names: Names, found: Carried, place: int) -> Node:
    """The array that a part is read from, as it stands in scope, joined as its access says."""
    access = found.parts[place].access
    assert access is not None
    name = access.base.split("/")[0]
    type_ = found.chain.loops[0].types()[name]
    paths = leaf_paths(type_, name)
    node = leaves(names, Ref(name), type_)[paths.index(access.base)]
    for depth in access.joined:
        node = at_depth(names, Join, node, depth)
    return node


def _exchanged(node: Node, old: Node, new: Node) -> Node:
    # A marker first: the new node may hold the old one.
    marker = Ref("'new")
    return replaced(replaced(node, old, marker), marker, new)


def _has_tuples(type_: Type) -> bool:
    return isinstance(dimensions(type_)[1], TupleType)


def one_part(primitive: str, carried: Carried, loop: MapId, base: str, use: int = 0) -> int:
    """The only part from a base, or the ``use``-th of several, counted from 1 as the element holds
    them; NotApplicable if there is no such part, or several and no ``use`` is given."""
    found = carried.reads(base)
    if use:
        found = found[use - 1 : use]
    if len(found) != 1:
        known = ", ".join(sorted({p.root for p in carried.parts if p.root}))
        count = len(carried.reads(base))
        why = f"{count} arrays of the loop's element come from {base}"
        allowed = f"use=1 to {count}" if count > 1 else "one"
        raise refusal(primitive, loop, why, f"arrays from {known or 'nothing'}", allowed)
    if not isinstance(carried.parts[found[0]].type, ArrayType):
        raise refusal(primitive, loop, f"of {base} the loop's element is a scalar", "", "an array",
                      "a loop further out")  # fmt: skip
    return found[0]


def is_closed(node: Node, program: Program, kernel: str) -> bool:
    """True if a node depends on inputs and earlier kernels only."""
    known = {i.name for i in program.inputs}
    for other in program.kernels:
        if other.name == kernel:
            break
        known.add(other.name)
    return free_names(node) <= known
