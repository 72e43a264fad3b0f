"""A program's loops as a tree for people: maps, reduces and buffers, with their lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.builders import said_name
from mapper.ast_model.nodes import Let, Map, Node, Program, Reduce, To, children
from mapper.ast_model.types import ArrayType, Type
from mapper.schedules.facts import type_of
from mapper.schedules.tree import all_nodes, bound_types, is_view

MAX_INDENT = 24


@dataclass(frozen=True, slots=True)
class Loop:
    """A map, a reduce, or a buffer that the loops in it fill (``kind``), outer ones first.

    ``name`` is what schedules call it; ``length`` is how often it goes round, in sizes and
    parameters, and of a buffer its memory.
    """

    kind: str
    name: str
    length: str
    inner: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class KernelLoops:
    """The loops of one kernel in the order in which they run."""

    name: str
    loops: tuple[Loop, ...]


def loops_of(program: Program) -> tuple[KernelLoops, ...]:
    """The loops of each kernel of a program that type-checks; views are left out."""
    walk = _Walk(program)
    env: dict[str, Type] = {i.name: i.type for i in program.inputs}
    found: list[KernelLoops] = []
    for kernel in program.kernels:
        found.append(KernelLoops(kernel.name, tuple(walk.loops(kernel.body, env))))
        env[kernel.name] = type_of(kernel.body, env, program)
    return tuple(found)


class _Walk:
    def __init__(self, program: Program) -> None:
        self.program = program
        bound = [n.parameter for n in all_nodes(program) if isinstance(n, Reduce)]
        bound += [n.name for n in all_nodes(program) if isinstance(n, Let)]
        self.said = Counter(said_name(name) for name in bound)

    def called(self, name: str) -> str:
        """What a schedule calls a reduce or a buffer: without its number where that will do."""
        said = said_name(name)
        return said if said and self.said[said] == 1 else name

    def loops(self, node: Node, env: dict[str, Type]) -> Iterator[Loop]:
        """The loops in a node, in the order in which they run."""
        if is_view(node):
            return
        match node:
            case Map(map_id, _, body, argument):
                yield from self.loops(argument, env)
                if not is_view(body):
                    yield Loop("map", str(map_id), self.length(argument, env),
                               tuple(self.loops(body, self.inside(node, env))))  # fmt: skip
            case Reduce(_, parameter, body, initial, argument):
                yield from self.loops(argument, env)
                yield from self.loops(initial, env)
                yield Loop("reduce", self.called(parameter), self.length(argument, env),
                           tuple(self.loops(body, self.inside(node, env))))  # fmt: skip
            case Let(name, value, body):
                inner = tuple(self.loops(value, env))
                if isinstance(value, To):
                    yield Loop("buffer", self.called(name), value.memory.value, inner)
                else:
                    yield from inner
                yield from self.loops(body, self.inside(node, env))
            case _:
                for _, child in children(node):
                    yield from self.loops(child, env)

    def inside(self, node: Node, env: dict[str, Type]) -> dict[str, Type]:
        """The types of names in a node's body."""
        return {**env, **bound_types(node, env, self.program)}

    def length(self, argument: Node, env: dict[str, Type]) -> str:
        """How many elements a map or a reduce goes over."""
        found = type_of(argument, env, self.program)
        assert isinstance(found, ArrayType)
        return str(found.length)


def loops_text(program: Program) -> str:
    """The loops as an indented list, a line each."""
    lines: list[str] = []
    for kernel in loops_of(program):
        lines.append(f"kernel {kernel.name}")
        lines += _lines(kernel.loops, 1)
    return "\n".join((*lines, ""))


def _lines(loops: tuple[Loop, ...], depth: int) -> Iterator[str]:
    for loop in loops:
        indent = "  " * min(depth, MAX_INDENT)
        between = "in" if loop.kind == "buffer" else "x"
        yield f"{indent}{loop.kind} {loop.name} {between} {loop.length}"
        yield from _lines(loop.inner, depth + 1)
