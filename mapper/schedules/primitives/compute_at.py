"""Compute at: a producer kernel fused at a consumer's loop, what tiles share recomputed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapper.ast_model.nodes import Get, Let, Map, MapId, Node, Program, Ref, To
from mapper.ast_model.types import ArrayType, Memory, ScalarType, TupleType, Type
from mapper.schedules.affine import Margin, element, tiles
from mapper.schedules.carried import OldBody, carried, part_tiling, with_parts
from mapper.schedules.facts import type_of
from mapper.schedules.find import find_kernel
from mapper.schedules.leaves import assembled, leaf_types, leaves
from mapper.schedules.nests import mapped
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import (
    Site,
    concrete_maps,
    free_names,
    is_view,
    nodes_of,
    rebuilt,
    substituted,
)
from mapper.schedules.unique import Names

NAME = "compute_at"


@dataclass(frozen=True, slots=True)
class _Producer:
    """A kernel that is perfectly nested maps around ``body`` of an element of a view."""

    maps: tuple[Map, ...]
    array: Node
    type: Type
    body: Node

    @property
    def element(self) -> Type:
        type_ = self.type
        for _ in self.maps:
            assert isinstance(type_, ArrayType)
            type_ = type_.element
        return type_


def compute_at(program: Program, kernel: str, loop: MapId, memory: Memory = Memory.LOCAL) -> Step:
    """Each iteration of ``loop`` computes the tile of ``kernel`` that it reads, in ``memory``.

    Where the loop reads one element there is no tile: the producer is inlined. Applies to kernels
    that are perfectly nested maps of scalars over a view, read without a border. The kernel goes
    where nothing else reads it. As Halide's ``compute_at``; overlapped tiling of "Forma: A DSL for
    Image Processing Applications to Target GPUs and Multi-core CPUs", section 4.
    """
    names = Names(program)
    producer = _producer(program, kernel)
    found = carried(NAME, names, program, loop)
    places = [k for k, p in enumerate(found.parts) if p.access and p.access.base == kernel]
    if len(places) != 1:
        raise refusal(NAME, kernel, f"{len(places)} arrays of the element of {loop} come from it",
                      "", "one", "overlap or another loop")  # fmt: skip
    place = places[0]
    tiling = part_tiling(NAME, found, loop, place)
    if not tiling.is_within:
        raise refusal(NAME, kernel, "it is read with a border, which its own border is not", "",
                      "a reader that only crops")  # fmt: skip
    cut = [tiles(names, leaf, tiling, Margin())
           for leaf in leaves(names, producer.array, producer.type)]  # fmt: skip
    rank, count = len(tiling.kept), len(cut)
    arrays = [part.array for part in found.parts]
    arrays[place : place + 1] = cut

    def body(new: list[Node], old_body: OldBody) -> Node:
        mine = new[place : place + count]
        if not rank and not isinstance(producer.element, TupleType):
            value = _of_leaves(names, producer, mine)
            return old_body([*new[:place], value, *new[place + count :]])
        if not rank:
            return old_body([*new[:place], _inlined(producer, mine), *new[place + count :]])
        type_ = producer.element
        for position in reversed(tiling.kept):
            type_ = ArrayType(type_, tiling.dimensions[position].tile)
        made = mapped(
            names,
            tuple(names.map_id(f"{producer.maps[k].id}_at") for k in tiling.kept),
            lambda z: substituted(producer.body, {producer.maps[-1].parameter: z}),
            assembled(names, type_, mine),
        )
        name = names.value(kernel)
        tile = element(names, Ref(name), tiling, Margin())
        return Let(name, To(memory, made), old_body([*new[:place], tile, *new[place + count :]]))

    after = _without(with_parts(names, found, arrays, body), kernel)
    if not rank and len(concrete_maps(after)) > len(concrete_maps(program)):
        raise refusal(NAME, kernel, f"{loop} repeats the element that it reads", "",
                      "a reader that computes with it where it is")  # fmt: skip
    return step(NAME, kernel, program, after)


def _producer(program: Program, name: str) -> _Producer:
    kernel = find_kernel(NAME, program, name)
    if kernel is program.kernels[-1]:
        raise refusal(NAME, name, "it is the last kernel, which nothing reads")
    maps: list[Map] = []
    node = kernel.body
    while isinstance(node, Map) and not is_view(node.body):
        if maps and node.argument != Ref(maps[-1].parameter):
            break
        if maps and maps[-1].parameter in free_names(node.body):
            break
        maps.append(node)
        node = node.body
    if not maps or not is_view(maps[0].argument):
        raise refusal(NAME, name, "it is not perfectly nested maps over a view")
    types = Site(program, kernel, (), kernel.body).types()
    type_ = type_of(maps[0].argument, types, program)
    element: Type = type_
    for _ in maps:
        assert isinstance(element, ArrayType)
        element = element.element
    body_type = type_of(node, {**types, maps[-1].parameter: element}, program)
    if not isinstance(body_type, ScalarType):
        raise refusal(NAME, name, "it is not maps around one scalar", str(body_type), "a scalar",
                      "interchange its maps to the outside")  # fmt: skip
    return _Producer(tuple(maps), maps[0].argument, type_, node)


def _of_leaves(names: Names, producer: _Producer, mine: list[Node]) -> Node:
    element = producer.element
    value = mine[0] if isinstance(element, ScalarType) else assembled(names, element, mine)
    return substituted(producer.body, {producer.maps[-1].parameter: value})


def _inlined(producer: _Producer, mine: list[Node]) -> Node:
    """The producer's scalar of a tuple's components."""
    element = producer.element
    assert isinstance(element, TupleType)
    flat = all(len(leaf_types(item)) == 1 for item in element.items)
    if not flat:
        raise refusal(NAME, producer.maps[0].id, "its element is a tuple of tuples")
    name = producer.maps[-1].parameter

    def put(node: Node) -> Node:
        if isinstance(node, Get) and node.argument == Ref(name):
            return mine[node.index]
        return rebuilt(node, put)

    return put(producer.body)


def _without(program: Program, name: str) -> Program:
    """The program without a kernel that nothing reads any more."""
    read = any(Ref(name) == node for k in program.kernels for node in nodes_of(k.body))
    kernels = tuple(k for k in program.kernels if read or k.name != name)
    return replace(program, kernels=kernels)
