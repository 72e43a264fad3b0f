"""Copy the result: a kernel that computes, and one that writes its result where it belongs."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.nodes import Kernel, Map, Program, Ref
from mapper.ast_model.types import dimensions
from mapper.schedules.facts import type_of
from mapper.schedules.find import check_new_kernel, find_kernel
from mapper.schedules.nests import copied
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view, through_layout
from mapper.schedules.unique import Names

NAME = "copy_result"


def copy_result(program: Program, kernel: str, computed: str) -> Step:
    """What a kernel's outermost map computes by the kernel ``computed``; this one copies it.

    Layout around the map, such as a crop, is then of reads and not of writes: the maps
    ``<kernel>_copy`` go over what is left of the result.
    """
    found, names = find_kernel(NAME, program, kernel), Names(program)
    check_new_kernel(NAME, program, kernel, computed)
    around, inner = through_layout(found.body)
    if not isinstance(inner, Map) or is_view(inner.body):
        raise refusal(NAME, kernel, "no map is outermost in it", type(inner).__name__.lower(),
                      "a map, with only layout around it")  # fmt: skip
    if inner is found.body:
        raise refusal(NAME, kernel, "there is no layout around its outermost map")
    env = {i.name: i.type for i in program.inputs}
    for other in program.kernels:
        if other.name == kernel:
            break
        env[other.name] = type_of(other.body, env, program)
    rank = len(dimensions(type_of(found.body, env, program))[0])
    stem = f"{kernel}_copy"
    check_ids(NAME, kernel, f"{stem}_{rank}")
    copy = copied(names, names.map_id(stem), around(Ref(computed)), rank)
    kernels = list(program.kernels)
    place = kernels.index(found)
    kernels[place : place + 1] = Kernel(computed, inner), Kernel(kernel, copy)
    return step(NAME, kernel, program, replace(program, kernels=tuple(kernels)))
