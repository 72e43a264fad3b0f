"""Finding what a schedule names: maps, reduces, buffers and kernels of a program."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.ast_model.bounds import is_name
from mapper.ast_model.builders import said_name
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import Kernel, Let, Map, MapId, Node, Program, Reduce
from mapper.ast_model.types import ArrayType, Type
from mapper.schedules.facts import type_of
from mapper.schedules.step import refusal
from mapper.schedules.tree import Site, is_view, same_id, sites

MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class MapSite:
    """A computing map in its place, and the type of its argument."""

    site: Site
    node: Map
    argument: ArrayType

    @property
    def length(self) -> Expr:
        return self.argument.length


@dataclass(frozen=True, slots=True)
class ReduceSite:
    """A reduce in its place, with the types of its argument and its accumulator."""

    site: Site
    node: Reduce
    argument: ArrayType
    accumulator: Type

    @property
    def length(self) -> Expr:
        return self.argument.length


def find_map(primitive: str, program: Program, map_id: MapId) -> MapSite:
    """The computing map of this id; NotApplicable if there is none."""
    ids: list[str] = []
    for site in sites(program, lambda node: isinstance(node, Map), views=False):
        node = site.node
        assert isinstance(node, Map)
        if is_view(node.body):
            continue
        if same_id(node.id, map_id):
            type_ = type_of(node.argument, site.types(), program)
            assert isinstance(type_, ArrayType)
            return MapSite(site, node, type_)
        ids.append(str(node.id))
    raise refusal(primitive, map_id, "no map of this name computes anything", "",
                  ", ".join(ids[:MAX_LISTED]) or "a program with a map")  # fmt: skip


def find_reduce(primitive: str, program: Program, name: str) -> ReduceSite:
    """The reduce whose step has this name, or the only one whose step's name says it."""
    found = list(sites(program, lambda node: isinstance(node, Reduce), views=False))
    exact = [s for s in found if _step(s.node) == name]
    wanted = exact or [s for s in found if said_name(_step(s.node)) == name]
    names = ", ".join(_step(s.node) for s in found[:MAX_LISTED])
    if len(wanted) != 1:
        raise refusal(primitive, name, "no reduce or several have steps of this name",
                      str(len(wanted)), f"one of {names or 'no reduces'}")  # fmt: skip
    site = wanted[0]
    node = site.node
    assert isinstance(node, Reduce)
    types = site.types()
    type_ = type_of(node.argument, types, program)
    assert isinstance(type_, ArrayType)
    return ReduceSite(site, node, type_, type_of(node.initial, types, program))


def find_loop(primitive: str, program: Program, name: MapId) -> MapSite | ReduceSite:
    """The map or the reduce of this name; a map where both have it."""
    for site in sites(program, lambda node: isinstance(node, Map), views=False):
        node = site.node
        if isinstance(node, Map) and same_id(node.id, name) and not is_view(node.body):
            return find_map(primitive, program, name)
    return find_reduce(primitive, program, str(name))


def find_let(primitive: str, program: Program, name: str) -> Site:
    """The ``let`` of this name, or the only one whose name says it."""
    found = list(sites(program, lambda node: isinstance(node, Let)))
    exact = [s for s in found if _bound(s.node) == name]
    wanted = exact or [s for s in found if said_name(_bound(s.node)) == name]
    if len(wanted) != 1:
        names = ", ".join(_bound(s.node) for s in found[:MAX_LISTED])
        raise refusal(primitive, name, "no let or several have this name", str(len(wanted)),
                      f"one of {names or 'no lets'}")  # fmt: skip
    return wanted[0]


def find_kernel(primitive: str, program: Program, name: str) -> Kernel:
    """The kernel of this name; NotApplicable if there is none."""
    for kernel in program.kernels:
        if kernel.name == name:
            return kernel
    raise refusal(primitive, name, "no kernel has this name", "",
                  ", ".join(k.name for k in program.kernels[:MAX_LISTED]))  # fmt: skip


def check_new_kernel(primitive: str, program: Program, target: object, name: str) -> None:
    """NotApplicable if no kernel can be given this name: it is taken, or no name."""
    taken = {i.name for i in program.inputs} | {k.name for k in program.kernels}
    taken |= {n for n, _ in program.sizes} | {p.name for p in program.parameters}
    if name in taken or not is_name(name):
        raise refusal(
            primitive, target, "the kernel's name is taken or unusable", name, "a new name"
        )


def _step(node: Node) -> str:
    assert isinstance(node, Reduce)
    return node.parameter


def _bound(node: Node) -> str:
    assert isinstance(node, Let)
    return node.name
