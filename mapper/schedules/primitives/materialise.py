"""Materialise: a staged value that no loop changes, as a kernel of its own."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.nodes import Kernel, Let, Program, Reduce, Ref, To
from mapper.schedules.find import check_new_kernel, find_let
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import free_names, is_view, substituted, through_layout

NAME = "materialise"


def materialise(program: Program, name: str, kernel: str) -> Step:
    """``let name = to_global(…)`` as the kernel ``kernel``, which runs before the one it is in.

    The value may depend on inputs and earlier kernels only: fission takes it out of maps.
    """
    site = find_let(NAME, program, name)
    let = site.node
    assert isinstance(let, Let)
    check_new_kernel(NAME, program, name, kernel)
    before: set[str] = {i.name for i in program.inputs}
    for other in program.kernels:
        if other.name == site.kernel.name:
            break
        before.add(other.name)
    inner = free_names(let.value) - before
    if inner:
        raise refusal(NAME, name, "it depends on what maps around it go over",
                      ", ".join(sorted(inner)), "inputs and earlier kernels",
                      "fission of the maps around it")  # fmt: skip
    value = let.value.argument if isinstance(let.value, To) else let.value
    if is_view(value):
        raise refusal(NAME, name, "it is a view, which no map writes", "", "what is computed",
                      "copy_views of the kernel")  # fmt: skip
    _, made = through_layout(value)
    if isinstance(made, Reduce) and isinstance(made.initial, To):
        raise refusal(NAME, name, "its accumulator has a memory of its own, and nothing copies it",
                      made.initial.memory.value, "a value that a map writes",
                      "materialise before the accumulator is staged")  # fmt: skip
    body = substituted(let.body, {let.name: Ref(kernel)})
    after = site.replaced(body)
    kernels = list(after.kernels)
    place = [k.name for k in kernels].index(site.kernel.name)
    kernels.insert(place, Kernel(kernel, value))
    return step(NAME, name, program, replace(after, kernels=tuple(kernels)))
