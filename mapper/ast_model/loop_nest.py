"""The loop nest of a kernel: loops, buffers and scalar stores, before any schedule is chosen.

Elaboration turns functional programs into this form once; constraint rules read it for
dependences and sizes, and the kernel generator adds a schedule and prints it. A vector
statement is a scalar one that mentions a *lane* symbol, which runs over the width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from mapper.ast_model.index_expr import Expr, Symbol
from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import MapId, Op
from mapper.ast_model.types import Memory
from mapper.elements import Element


class Role(StrEnum):
    """What a buffer is to its kernel."""

    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Elements in row-major order; ``dimensions`` outermost first (vector lanes are one).

    The first ``spread`` dimensions of a private buffer may be spread over work-items. ``stem``
    is what its elements are, in a word, for the names in a kernel's text.
    """

    name: str
    memory: Memory
    dimensions: tuple[Expr, ...]
    role: Role
    spread: int = 0
    dtype: Element = Element.FLOAT32
    stem: str = ""

    @property
    def element_bytes(self) -> int:
        """Bytes of an element where it is kept."""
        return (self.dtype.held if self.memory is Memory.PRIVATE else self.dtype).bytes


@dataclass(frozen=True, slots=True)
class Guard:
    """``0 <= index < limit``."""

    index: Expr
    limit: Expr


@dataclass(frozen=True, slots=True)
class Constant:
    """A number."""

    value: float
    dtype: Element = Element.FLOAT32


@dataclass(frozen=True, slots=True)
class Load:
    """One element of a buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Guarded:
    """``value`` where the guard holds, else ``otherwise`` (a padded border)."""

    guard: Guard
    value: Value
    otherwise: float


@dataclass(frozen=True, slots=True)
class Operate:
    """An operator of a user function; DOT and SUM never occur (see LaneSum).

    ``dtype`` is what it gives; of a comparison, what it compares.
    """

    op: Op
    operands: tuple[Value, ...]
    dtype: Element = Element.FLOAT32


@dataclass(frozen=True, slots=True)
class LaneSum:
    """Sum of ``value`` over the lanes of a vector."""

    lane: Symbol
    value: Value


Value = Constant | Load | Guarded | Operate | LaneSum


@dataclass(frozen=True, slots=True)
class Declare:
    """The scope in which a local or private buffer, or a global intermediate, lives."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Store:
    """Write one element, or with ``lane`` one vector, where all guards hold."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Value
    guards: tuple[Guard, ...]
    lane: Symbol | None


@dataclass(frozen=True, slots=True)
class Loop:
    """A concrete map (``map_id`` set) or a sequential reduce (``map_id`` None).

    ``spreads``: what it writes is private, but may be spread over the threads that run it.
    """

    variable: Symbol
    trip: Expr
    map_id: MapId | None
    body: tuple[Statement, ...]
    reads: frozenset[Memory] = frozenset()
    writes: Memory = Memory.GLOBAL
    perfectly_nested: bool = False
    unroll: Expr | None = None
    spreads: bool = False
    prefetch: Expr | None = None


Statement = Declare | Store | Loop


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """One kernel; ``output`` is the global buffer that holds its value."""

    name: str
    statements: tuple[Statement, ...]
    output: Buffer

    def map_ids(self) -> tuple[MapId, ...]:
        """Ids of all maps, in program order."""
        found: dict[MapId, None] = {}
        for _, loops in walk(self.statements):
            found.update((loop.map_id, None) for loop in loops if loop.map_id is not None)
        return tuple(found)

    def nest(self) -> Nest:
        """The forest of concrete maps that the constraint rules speak of."""
        return Nest(
            self.name,
            tuple(_nest_maps(self.statements)),
            tuple(_direct_writes(self.statements)),
            known_buffers=True,
        )


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """All kernels of a program in order, with its input buffers."""

    name: str
    inputs: tuple[Buffer, ...]
    kernels: tuple[LoopKernel, ...]


def prepared(kernels: Iterable[LoopKernel], constants: Iterable[str]) -> frozenset[str]:
    """The kernels that read constant inputs only, or what such kernels made of them: they run once,
    not with every image."""
    known, found = set(constants), set[str]()
    for kernel in kernels:
        reads = {
            load.buffer.name
            for statement, _ in walk(kernel.statements)
            if isinstance(statement, Store)
            for load in loads(statement.value)
            if load.buffer.memory is Memory.GLOBAL
        }
        if reads <= known | {kernel.output.name}:
            known.add(kernel.output.name)
            found.add(kernel.name)
    return frozenset(found)


def _nest_maps(statements: tuple[Statement, ...]) -> Iterator[NestMap]:
    for statement in statements:
        if not isinstance(statement, Loop):
            continue
        if statement.map_id is None:
            yield from _nest_maps(statement.body)
            continue
        yield NestMap(
            statement.map_id,
            statement.trip,
            statement.reads or frozenset((Memory.PRIVATE,)),
            statement.writes,
            statement.perfectly_nested,
            tuple(_nest_maps(statement.body)),
            tuple(_direct_writes(statement.body)),
            reads_constants=not statement.reads,
            spreads=statement.spreads,
        )


def _direct_writes(statements: tuple[Statement, ...]) -> Iterator[Memory]:
    for statement in statements:
        if isinstance(statement, Store):
            yield statement.buffer.memory
        elif isinstance(statement, Loop) and statement.map_id is None:
            yield from _direct_writes(statement.body)


def dtype_of(value: Value) -> Element:
    """The element type of a value; of a condition, what it compares."""
    match value:
        case Constant() | Operate():
            return value.dtype
        case Load():
            return value.buffer.dtype
        case Guarded() | LaneSum():
            return dtype_of(value.value)


def loads(value: Value) -> Iterator[Load]:
    """Every load in a value."""
    match value:
        case Constant():
            return
        case Load():
            yield value
        case Guarded() | LaneSum():
            yield from loads(value.value)
        case Operate():
            for operand in value.operands:
                yield from loads(operand)


def guards_of(value: Value) -> Iterator[Guard]:
    """Every guard in a value, outermost first."""
    match value:
        case Constant() | Load():
            return
        case Guarded():
            yield value.guard
            yield from guards_of(value.value)
        case LaneSum():
            yield from guards_of(value.value)
        case Operate():
            for operand in value.operands:
                yield from guards_of(operand)


def substitute_value(value: Value, values: Mapping[str, Expr]) -> Value:
    """Replace symbols by name in every index of a value."""
    match value:
        case Constant():
            return value
        case Load():
            return Load(value.buffer, tuple(i.substitute(values) for i in value.indices))
        case Guarded():
            guard = Guard(
                value.guard.index.substitute(values), value.guard.limit.substitute(values)
            )
            return Guarded(guard, substitute_value(value.value, values), value.otherwise)
        case Operate():
            operands = tuple(substitute_value(o, values) for o in value.operands)
            return Operate(value.op, operands, value.dtype)
        case LaneSum():
            # The lane is bound here: an outer lane of the same name does not reach inside.
            free = {name: v for name, v in values.items() if name != value.lane.name}
            return replace(value, value=substitute_value(value.value, free))


def substitute_store(store: Store, values: Mapping[str, Expr]) -> Store:
    """Replace symbols by name in every index of a store."""
    return Store(
        store.buffer,
        tuple(i.substitute(values) for i in store.indices),
        substitute_value(store.value, values),
        tuple(Guard(g.index.substitute(values), g.limit.substitute(values)) for g in store.guards),
        store.lane,
    )


def walk(
    statements: tuple[Statement, ...], loops: tuple[Loop, ...] = ()
) -> Iterator[tuple[Declare | Store, tuple[Loop, ...]]]:
    """Every declaration and store in program order with the loops around it."""
    for statement in statements:
        if isinstance(statement, Loop):
            yield from walk(statement.body, (*loops, statement))
        else:
            yield statement, loops
