"""The kernels of a program whose decisions depend on no other kernel's, as spaces of their own.

Kernels meet in buffers alone. Each is solved, drawn and timed by itself, as long as no constraint
and no size (of a packed operand, say, or of the parts of a sum) is about two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.loop_nest import LoopKernel, Store, loads, prepared, walk
from mapper.ast_model.nodes import Program
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    variables,
)
from mapper.cost.loop_cost import LoopCost, loop_cost
from mapper.device_profile import DeviceProfile
from mapper.solver.space import Space

#: What a part is decided by: parts of several programs with the same are one.
PartKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class KernelPart:
    """Some kernels of a program, and the space of what is to be decided about them."""

    kernels: tuple[LoopKernel, ...]
    space: Space
    once: frozenset[str] = frozenset()
    """Names of the kernels that do not run with every image."""

    def cost(self, device: DeviceProfile) -> LoopCost:
        """What a run of the kernels is expected to take; where none runs each time, of all."""
        each_time = [kernel for kernel in self.kernels if kernel.name not in self.once]
        return loop_cost(each_time or self.kernels, device)

    @property
    def idle(self) -> frozenset[Variable]:
        """What makes no difference to a run's time: how kernels are spread that do not run with
        every image, where others do."""
        names = {kernel.name for kernel in self.kernels}
        if self.once >= names:
            return frozenset()
        maps = {m for kernel in self.kernels if kernel.name in self.once for m in kernel.map_ids()}
        maps -= {m for k in self.kernels if k.name not in self.once for m in k.map_ids()}
        return frozenset(
            variable
            for variable, _ in self.space.variables
            if (isinstance(variable, LocalSizeVariable) and variable.kernel in self.once)
            or (isinstance(variable, CodeVariable) and variable.map_id in maps)
        )

    @property
    def key(self) -> PartKey:
        """The same for two parts that have the same kernels, variables and constraints."""
        predicates = frozenset(c.predicate for c in self.space.constraints)
        return (self.kernels, self.once, self.space.variables, predicates)


def kernel_parts(program: Program, space: Space) -> tuple[KernelPart, ...]:
    """A program's space taken apart, in the order of its kernels; kernels without anything to
    decide, and variables of no kernel, are with the first part."""
    kernels = elaborate(program).kernels
    once = prepared(kernels, program.constants)
    groups = _Groups()
    declared = {variable for variable, _ in space.variables}
    for variable in declared:
        groups.root(variable)
    for constraint in space.constraints:
        groups.join(list(variables(constraint.predicate)))
    own = [_decided(kernel, declared) for kernel in kernels]
    for decided in own:
        groups.join(decided)
    roots = list(dict.fromkeys(groups.root(decided[0]) for decided in own if decided))
    if len(roots) < 2:
        return (KernelPart(tuple(kernels), space, once),)
    place = {root: k for k, root in enumerate(roots)}

    def part_of(variable: Variable) -> int:
        return place.get(groups.root(variable), 0)

    parts: list[KernelPart] = []
    for k in range(len(roots)):
        mine = tuple(
            kernel
            for kernel, decided in zip(kernels, own, strict=True)
            if (part_of(decided[0]) if decided else 0) == k
        )
        about = ((c, next(iter(variables(c.predicate)), None)) for c in space.constraints)
        parts.append(
            KernelPart(
                mine,
                Space(
                    tuple(entry for entry in space.variables if part_of(entry[0]) == k),
                    tuple(c for c, v in about if (0 if v is None else part_of(v)) == k),
                ),
                once & {kernel.name for kernel in mine},
            )
        )
    return tuple(parts)


def _decided(kernel: LoopKernel, declared: set[Variable]) -> list[Variable]:
    """What is decided about a kernel, of what is declared."""
    found: dict[Variable, None] = {
        v: None for v in declared if isinstance(v, LocalSizeVariable) and v.kernel == kernel.name
    }
    found.update((CodeVariable(map_id), None) for map_id in kernel.map_ids())
    for expression in _expressions(kernel):
        found.update((ParameterVariable(name), None) for name in sorted(expression.names()))
    return [variable for variable in found if variable in declared]


def _expressions(kernel: LoopKernel) -> Iterator[Expr]:
    for statement, loops in walk(kernel.statements):
        for loop in loops:
            yield from (e for e in (loop.trip, loop.unroll, loop.prefetch) if e is not None)
        if isinstance(statement, Store):
            reached = [(statement.buffer, statement.indices)]
            reached += [(load.buffer, load.indices) for load in loads(statement.value)]
            for buffer, indices in reached:
                yield from buffer.dimensions
                yield from indices
        else:
            yield from statement.buffer.dimensions


class _Groups:
    """Variables that hang together."""

    def __init__(self) -> None:
        self._above: dict[Variable, Variable] = {}

    def root(self, variable: Variable) -> Variable:
        self._above.setdefault(variable, variable)
        while (above := self._above[variable]) != variable:
            self._above[variable] = self._above[above]
            variable = above
        return variable

    def join(self, several: Sequence[Variable]) -> None:
        for variable in several[1:]:
            self._above[self.root(variable)] = self.root(several[0])
