"""Layout of a buffer: its dimensions in another order in memory, for all who write and read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapper.ast_model.nodes import Kernel, Let, Node, Program, Ref, To
from mapper.ast_model.types import dimensions
from mapper.schedules.facts import type_of
from mapper.schedules.find import find_let
from mapper.schedules.nests import permuted
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import Site, substituted
from mapper.schedules.unique import Names

NAME = "layout"


def layout(program: Program, buffer: str, order: Sequence[int]) -> Step:
    """The staged value or kernel ``buffer`` with dimension ``order[k]`` as its k-th.

    The last kernel's layout is the result's, and stays.
    """
    names = Names(program)
    for kernel in program.kernels[:-1]:
        if kernel.name == buffer:
            return step(NAME, buffer, program, _of_kernel(names, program, kernel, tuple(order)))
    if buffer == program.kernels[-1].name:
        raise refusal(NAME, buffer, "it is the last kernel, whose result is the program's")
    site = find_let(NAME, program, buffer)
    let = site.node
    assert isinstance(let, Let)
    if not isinstance(let.value, To):
        raise refusal(NAME, buffer, "it is no buffer of its own", "", "let t = to_…(…)")
    rank = len(dimensions(type_of(let.value, site.types(), program))[0])
    _check(buffer, tuple(order), rank)
    if let.value.spread:
        raise refusal(NAME, buffer, "its dimensions are spread over work-items")
    value = replace(let.value, argument=permuted(names, let.value.argument, order))
    body = substituted(let.body, {let.name: _back(names, let.name, tuple(order))})
    return step(NAME, buffer, program, site.replaced(Let(let.name, value, body)))


def _of_kernel(names: Names, program: Program, kernel: Kernel, order: tuple[int, ...]) -> Program:
    types = Site(program, kernel, (), kernel.body).types()
    rank = len(dimensions(type_of(kernel.body, types, program))[0])
    _check(kernel.name, order, rank)
    kernels: list[Kernel] = []
    for other in program.kernels:
        if other.name == kernel.name:
            kernels.append(replace(kernel, body=permuted(names, kernel.body, order)))
        else:
            back = {kernel.name: _back(names, kernel.name, order)}
            kernels.append(replace(other, body=substituted(other.body, back)))
    return replace(program, kernels=tuple(kernels))


def _check(buffer: str, order: tuple[int, ...], rank: int) -> None:
    if sorted(order) != list(range(rank)):
        raise refusal(NAME, buffer, "the order is no permutation of the dimensions",
                      str(list(order)), f"0 to {rank - 1} in some order")  # fmt: skip
    if order == tuple(range(rank)):
        raise refusal(NAME, buffer, "it has this layout already", str(list(order)))


def _back(names: Names, name: str, order: tuple[int, ...]) -> Node:
    return permuted(names, Ref(name), [order.index(k) for k in range(len(order))])
