"""Copy views: what a kernel names with ``let`` and reads, laid out by kernels of its own."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.bounds import is_name
from mapper.ast_model.builders import said_name
from mapper.ast_model.nodes import Kernel, Let, Node, Program, Ref
from mapper.ast_model.types import ArrayType, TupleType, dimensions
from mapper.schedules.facts import type_of
from mapper.schedules.find import find_kernel
from mapper.schedules.nests import copied
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import free_names, is_view, substituted
from mapper.schedules.unique import Names

NAME = "copy_views"


def copy_views(program: Program, kernel: str) -> Step:
    """Kernels before this one write the views that stand around it as ``let name = …``.

    They are called as the views are; a view that only others read is put into these. For views in
    which places are no sums of loops' variables, such as zeros between pixels or an array in
    reverse, so that what reads them can be tiled.
    """
    found, names = find_kernel(NAME, program, kernel), Names(program)
    taken = {i.name for i in program.inputs} | {k.name for k in program.kernels}
    taken |= {n for n, _ in program.sizes} | {p.name for p in program.parameters}
    env = {i.name: i.type for i in program.inputs}
    for other in program.kernels[: program.kernels.index(found)]:
        env[other.name] = type_of(other.body, env, program)
    views: dict[str, Node] = {}
    node = found.body
    while isinstance(node, Let) and is_view(node.value):
        views[node.name] = substituted(node.value, views)
        node = node.body
    made: list[Kernel] = []
    values = dict(views)
    for name, view in views.items():
        type_ = type_of(view, env, program)
        lengths, element = dimensions(type_)
        if name not in free_names(node) or not isinstance(type_, ArrayType):
            continue
        if isinstance(element, TupleType):
            continue
        copy = said_name(name) or name
        if copy in taken or not is_name(copy):
            raise refusal(NAME, kernel, "a kernel's name is taken or unusable", copy, "a new name")
        check_ids(NAME, kernel, f"{copy}_{len(lengths)}")
        taken.add(copy)
        made.append(Kernel(copy, copied(names, names.map_id(copy), view, len(lengths))))
        values[name] = Ref(copy)
    if not made:
        raise refusal(
            NAME, kernel, "no view that it reads has a name", "", "let name = … around it"
        )
    after = replace(found, body=substituted(node, values))
    kernels = list(program.kernels)
    place = kernels.index(found)
    kernels[place : place + 1] = [*made, after]
    return step(NAME, kernel, program, replace(program, kernels=tuple(kernels)))
