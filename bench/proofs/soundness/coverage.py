"""What a campaign has tried, counted case by case, so that nobody has to trust it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod

from bench.proofs.soundness.cases import Case
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.loop_nest import Declare, Loop, LoopKernel, Statement, walk
from mapper.ast_model.nodes import (
    AsScalar,
    AsVector,
    Call,
    Join,
    Let,
    Map,
    Node,
    Pad,
    Program,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    Zip,
    children,
)
from mapper.kernel_gen.generate import Choices
from mapper.pipeline import choices_of
from mapper.schedule import Level, ScheduleCode

_VIEWS = (Split, Join, Slide, Pad, Transpose, Reorder, AsVector, AsScalar, Zip)
_MANY = 4

Features = Iterator[tuple[str, str]]


def features(case: Case) -> frozenset[tuple[str, str]]:
    """Pairs of a feature and the value it takes in the case; a feature may take several."""
    choices = choices_of(case.assignment)
    loops = elaborate(case.draft.program, dict(choices.parameters))
    found = {*program_features(case.draft.program), *_of_choices(choices), *_of_source(case)}
    for kernel in loops.kernels:
        found |= {*_of_kernel(kernel, choices)}
    depth = max(
        sum(loop.map_id is not None for loop in around)
        for kernel in loops.kernels
        for _, around in walk(kernel.statements)
    )
    return frozenset({*found, ("depth of maps", str(depth))})


def histogram(cases: Iterable[frozenset[tuple[str, str]]]) -> dict[str, dict[str, int]]:
    """Numbers of cases by feature and value."""
    counted = Counter(pair for found in cases for pair in found)
    table: dict[str, dict[str, int]] = {}
    for (feature, value), count in sorted(counted.items()):
        table.setdefault(feature, {})[value] = count
    return table


def merged(
    left: Mapping[str, Mapping[str, int]], right: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """The sum of two histograms."""
    table = {feature: Counter(values) for feature, values in left.items()}
    for feature, values in right.items():
        table.setdefault(feature, Counter()).update(values)
    return {feature: dict(sorted(table[feature].items())) for feature in sorted(table)}


def _several(count: int) -> str:
    return str(count) if count < _MANY else f"{_MANY} or more"


# -- programs ----------------------------------------------------------------------------------


def program_features(program: Program) -> Features:
    """What a program has, whatever becomes of it."""
    yield "kernels", str(len(program.kernels))
    yield "inputs", str(len(program.inputs))
    yield "tuning parameters", str(len(program.parameters))
    yield "named sizes", "yes" if program.sizes else "no"
    yield "requirements", "yes" if program.requirements else "no"
    written = {kernel.name for kernel in program.kernels}
    lets = 0
    for kernel in program.kernels:
        walk = _ProgramWalk(written)
        walk.write(kernel.body)
        lets += walk.lets
        yield from walk.found
    yield "lets", _several(lets)


class _ProgramWalk:
    """Goes through one kernel and knows what stands where a result is written."""

    def __init__(self, written: set[str]) -> None:
        self.written = set(written)
        self.found: list[tuple[str, str]] = []
        self.lets = 0

    def write(self, node: Node) -> None:
        match node:
            case Map():
                self.read(node.argument)
                if self._produced(node.argument):
                    self.written.add(node.parameter)
                self.write(node.body)
            case Let():
                self._let(node)
                self.write(node.body)
            case To():
                self.write(node.argument)
            case Reduce():
                self._reduce(node)
            case Split() | Join() | Transpose() | Reorder() | Pad() | AsVector() | AsScalar():
                self.found.append(("view of a result", type(node).__name__.lower()))
                self.write(node.argument)
            case _:
                for _, child in children(node):
                    self.read(child)

    def read(self, node: Node) -> None:
        if isinstance(node, _VIEWS) and any(self._produced(c) for _, c in children(node)):
            self.found.append(("view between producer and consumer", type(node).__name__.lower()))
        match node:
            case To():
                self.write(node.argument)
            case Map() if _writes(node.body):
                self.write(node)
            case Map():
                # A layout change further in: what it changes is the argument's element.
                if self._produced(node.argument):
                    self.written.add(node.parameter)
                self.read(node.argument)
                self.read(node.body)
            case Let():
                self._let(node)
                self.read(node.body)
            case Reduce():
                self._reduce(node)
            case _:
                for _, child in children(node):
                    self.read(child)

    def _let(self, node: Let) -> None:
        self.lets += 1
        kind = "computed scalar" if isinstance(node.value, Call) else "stored"
        self.found.append(("kind of let", kind))
        self.read(node.value)
        if self._produced(node.value):
            self.written.add(node.name)

    def _reduce(self, node: Reduce) -> None:
        initial, memory = node.initial, "in place or private"
        if isinstance(initial, To):
            initial, memory = initial.argument, initial.memory.value
        kind = "array" if _writes(initial) or isinstance(initial, Map) else "scalar"
        self.found.append(("accumulator", f"{kind}, {memory}"))
        self.found.append(("reduction", _function(node.body)))
        if node.unroll != 0:
            self.found.append(("unrolled reduction", str(node.unroll.constant or "tuned")))
        self.read(node.argument)
        if isinstance(node.body, Let):
            self.found.append(("written in every round of a reduction", "yes"))
        self.write(node.body)

    def _produced(self, node: Node) -> bool:
        """Whether the node's elements were written by an earlier stage."""
        if isinstance(node, Ref):
            return node.name in self.written
        return (
            isinstance(node, To | Reduce | Map)
            and (_writes(node) or self._produced(getattr(node, "argument", node)))
        ) or (isinstance(node, _VIEWS) and any(self._produced(c) for _, c in children(node)))


def _writes(node: Node) -> bool:
    return isinstance(node, Call | Reduce | To) or any(_writes(c) for _, c in children(node))


def _function(node: Node) -> str:
    while not isinstance(node, Call):
        node = node.body if isinstance(node, Map | Let) else Call("other", ())
    return node.function


# -- mappings ----------------------------------------------------------------------------------


def _of_choices(choices: Choices) -> Features:
    codes = set(choices.codes.values())
    for code in codes:
        yield "code", code.short_name
    levels = {code.level for code in codes}
    yield "dimensions", str(len({code.dimension for code in codes if code.is_parallel}))
    if Level.LOCAL in levels and Level.VECTOR in levels:
        yield "local and vector codes", "yes"
    threads = max((prod(size) for size in choices.local_sizes.values()), default=1)
    yield "work-group", "1" if threads == 1 else "2 to 16" if threads <= 16 else "17 or more"


def _of_source(case: Case) -> Features:
    source = case.plan.source
    yield "barriers", _several(source.count("barrier("))
    if "the iteration before still uses" in source:
        yield "barrier for the next round", "yes"
    groups = max(
        prod(launch.global_size) // prod(launch.local_size) for launch in case.plan.launches
    )
    yield "work-groups", "1" if groups == 1 else "2 to 16" if groups <= 16 else "17 or more"
    if "vload" in source or "vstore" in source:
        yield "vector loads or stores", "yes"
    if "_next" in source:
        yield "copies that start an iteration early", "yes"


def _of_kernel(kernel: LoopKernel, choices: Choices) -> Features:
    yield "top-level nests", _several(sum(isinstance(s, Loop) for s in kernel.statements))
    for statement, _ in walk(kernel.statements):
        if isinstance(statement, Declare):
            kind = "array" if statement.buffer.dimensions else "scalar"
            yield "intermediate", f"{kind}, {statement.buffer.memory.value}"
            if statement.buffer.spread:
                yield "dimensions spread over work-items", str(statement.buffer.spread)
    if _ragged(kernel.statements, None, 1, choices, kernel.name):
        yield "ragged", "yes"


def _ragged(
    statements: tuple[Statement, ...],
    owner: ScheduleCode | None,
    trip: int,
    choices: Choices,
    kernel: str,
) -> bool:
    """Whether some local or global run has iterations that its threads do not divide."""
    size = choices.local_sizes.get(kernel, (1, 1, 1))
    for statement in statements:
        if not isinstance(statement, Loop):
            continue
        code, length = None, statement.trip.constant or 1
        if statement.map_id is not None:
            code = choices.codes[statement.map_id]
            if code is ScheduleCode.FUSED:
                code, length = owner, trip * length
        if (
            code is not None
            and code.level in (Level.LOCAL, Level.GLOBAL)
            and code.dimension is not None
            and length % size[code.dimension]
        ):
            return True
        if _ragged(statement.body, code, length, choices, kernel):
            return True
    return False
