"""Views: what a data layout change does to indices, for reading and for writing.

A read view answers "which element is this?", a write view (destination) answers "where
does this element go?". Nothing is copied. After the view system of "Auto-Generation of
Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mapper.ast_model.index_expr import Expr, Symbol, const, exact_div, floor_div, modulo, symbol
from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Guard,
    Guarded,
    LaneSum,
    Load,
    Operate,
    Value,
    substitute_value,
)
from mapper.ast_model.nodes import OrderKind
from mapper.ast_model.types import (
    ArrayType,
    Memory,
    TupleType,
    Type,
    VectorType,
    element_dtype,
)

#: No name of a size, a parameter or a loop has an apostrophe.
LANE = "lane'"


def lane_symbol(width: Expr) -> Symbol:
    """The symbol that stands for the lane of a vector of this width."""
    return Symbol(LANE, width)


def lane_expr(width: Expr) -> Expr:
    """The lane symbol as an expression."""
    return symbol(LANE, width)


@dataclass(frozen=True, slots=True)
class ScalarView:
    """A scalar, or a vector when ``value`` mentions the lane symbol."""

    type: Type
    value: Value
    memories: frozenset[Memory]


@dataclass(frozen=True, slots=True)
class TupleView:
    """A tuple of views."""

    type: TupleType
    items: tuple[View, ...]

    @property
    def memories(self) -> frozenset[Memory]:
        return frozenset[Memory]().union(*(item.memories for item in self.items))


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An array: ``at(i)`` is the view of element i."""

    type: ArrayType
    at: Callable[[Expr], View]
    memories: frozenset[Memory]


View = ScalarView | TupleView | ArrayView


def buffer_view(buffer: Buffer, type_: Type, indices: tuple[Expr, ...] = ()) -> View:
    """The view of (a part of) a buffer laid out row-major as its type says.

    Over dimensions that may be spread, each thread comes by its own part only: there the
    buffer is nobody's private memory yet.
    """
    memories = frozenset((buffer.memory,) if len(indices) >= buffer.spread else ())
    if isinstance(type_, ArrayType):
        element = type_.element
        return ArrayView(type_, lambda i: buffer_view(buffer, element, (*indices, i)), memories)
    if isinstance(type_, VectorType):
        indices = (*indices, lane_expr(type_.width))
    return ScalarView(type_, Load(buffer, indices), memories)


def fill_view(type_: Type, value: float) -> View:
    """An array of one constant; it lives in the code and in no memory."""
    if isinstance(type_, ArrayType):
        element = type_.element
        return ArrayView(type_, lambda _: fill_view(element, value), frozenset())
    return ScalarView(type_, Constant(value, element_dtype(type_)), frozenset())


def guard_view(view: View, guard: Guard, otherwise: float) -> View:
    """``view`` where the guard holds, a constant elsewhere."""
    if isinstance(view, ArrayView):
        inner = view
        return ArrayView(
            view.type, lambda i: guard_view(inner.at(i), guard, otherwise), view.memories
        )
    if isinstance(view, TupleView):
        return TupleView(view.type, tuple(guard_view(v, guard, otherwise) for v in view.items))
    assert isinstance(view, ScalarView)
    held = element_dtype(view.type).stored(otherwise)
    return ScalarView(view.type, Guarded(guard, view.value, held), view.memories)


def split_view(view: ArrayView, size: Expr, type_: ArrayType) -> ArrayView:
    """[T]n as [[T]size]."""
    inner_type = type_.element
    assert isinstance(inner_type, ArrayType)
    return ArrayView(
        type_,
        lambda i: ArrayView(inner_type, lambda j: view.at(i * size + j), view.memories),
        view.memories,
    )


def join_view(view: ArrayView, type_: ArrayType) -> ArrayView:
    """[[T]m]n as [T](n*m)."""
    inner = view.type.element
    assert isinstance(inner, ArrayType)
    width = inner.length
    return ArrayView(
        type_,
        lambda k: as_array(view.at(floor_div(k, width))).at(modulo(k, width)),
        view.memories,
    )


def slide_view(view: ArrayView, step: Expr, type_: ArrayType) -> ArrayView:
    """Windows every ``step`` elements."""
    inner_type = type_.element
    assert isinstance(inner_type, ArrayType)
    return ArrayView(
        type_,
        lambda i: ArrayView(inner_type, lambda j: view.at(i * step + j), view.memories),
        view.memories,
    )


def pad_view(view: ArrayView, left: Expr, value: float, type_: ArrayType) -> ArrayView:
    """A constant border; negative amounts crop."""
    length = view.type.length

    def at(i: Expr) -> View:
        index = i - left
        return guard_view(view.at(index), Guard(index, length), value)

    return ArrayView(type_, at, view.memories)


def transpose_view(view: ArrayView, type_: ArrayType) -> ArrayView:
    """The two outer dimensions swapped."""
    inner_type = type_.element
    assert isinstance(inner_type, ArrayType)
    return ArrayView(
        type_,
        lambda i: ArrayView(inner_type, lambda j: as_array(view.at(j)).at(i), view.memories),
        view.memories,
    )


def reordered_index(kind: OrderKind, amount: Expr, length: Expr, index: Expr) -> Expr:
    """Where element ``index`` of a reordered array stands in its argument."""
    if kind is OrderKind.REVERSE:
        return length - 1 - index
    run = exact_div(length, amount)
    return floor_div(index, run) + amount * modulo(index, run)


def reordered_target(kind: OrderKind, amount: Expr, length: Expr, index: Expr) -> Expr:
    """Where element ``index`` of the argument stands in the reordered array (the inverse)."""
    if kind is OrderKind.REVERSE:
        return length - 1 - index
    run = exact_div(length, amount)
    return modulo(index, amount) * run + floor_div(index, amount)


#: How many vectors are being put together of scalars that are looked up right now.
_OPEN_VECTORS: ContextVar[int] = ContextVar("_OPEN_VECTORS", default=0)


@contextmanager
def _lane_of_its_own(width: Expr) -> Generator[tuple[Expr, dict[str, Expr]]]:
    """A lane to look scalars up with, and what makes it :data:`LANE` afterwards.

    The scalars may be components of other vectors, whose lanes are replaced on the way, within
    views that hold this lane already (an outer index of a transposition). So it has a name that no
    vector in between has: what is looked up is looked up before this is left.
    """
    depth = _OPEN_VECTORS.get() + 1
    name = f"{LANE}{depth}"
    token = _OPEN_VECTORS.set(depth)
    try:
        yield symbol(name, width), {name: lane_expr(width)}
    finally:
        _OPEN_VECTORS.reset(token)


def vector_view(view: ArrayView, width: Expr, type_: ArrayType) -> ArrayView:
    """[float]n as [float<width>]."""

    def at(i: Expr) -> View:
        with _lane_of_its_own(width) as (lane, named):
            scalar = view.at(i * width + lane)
        assert isinstance(scalar, ScalarView)
        return ScalarView(type_.element, substitute_value(scalar.value, named), scalar.memories)

    return ArrayView(type_, at, view.memories)


def scalar_view(view: ArrayView, width: Expr, type_: ArrayType) -> ArrayView:
    """[float<w>]n as [float](n*w)."""

    def at(k: Expr) -> View:
        vector = view.at(floor_div(k, width))
        assert isinstance(vector, ScalarView)
        value = substitute_value(vector.value, {LANE: modulo(k, width)})
        return ScalarView(type_.element, value, vector.memories)

    return ArrayView(type_, at, view.memories)


def as_array(view: View) -> ArrayView:
    """A view that the type checker has shown to be an array."""
    assert isinstance(view, ArrayView)
    return view


def mentions_lane(value: Value) -> bool:
    """True if a value differs between the lanes of a vector."""
    match value:
        case Constant():
            return False
        case Load():
            return any(LANE in index.names() for index in value.indices)
        case Guarded():
            return LANE in value.guard.index.names() or mentions_lane(value.value)
        case Operate():
            return any(mentions_lane(operand) for operand in value.operands)
        case LaneSum():
            return False


@dataclass(frozen=True, slots=True)
class ScalarDestination:
    """One element (or vector, if ``lane`` is set) to write."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    guards: tuple[Guard, ...]
    lane: Symbol | None


@dataclass(frozen=True, slots=True)
class ArrayDestination:
    """An array to write; ``memory`` is that of the buffer behind it.

    Its ``spread`` outermost dimensions may be spread over threads.
    """

    at: Callable[[Expr], Destination]
    memory: Memory
    spread: int = 0


Destination = ScalarDestination | ArrayDestination


def buffer_destination(buffer: Buffer, type_: Type, indices: tuple[Expr, ...] = ()) -> Destination:
    """The destination that writes a buffer row-major as its type says."""
    if isinstance(type_, ArrayType):
        element = type_.element
        return ArrayDestination(
            lambda i: buffer_destination(buffer, element, (*indices, i)),
            buffer.memory,
            max(buffer.spread - len(indices), 0),
        )
    if isinstance(type_, VectorType):
        lane = lane_symbol(type_.width)
        return ScalarDestination(buffer, (*indices, lane_expr(type_.width)), (), lane)
    return ScalarDestination(buffer, indices, (), None)


def destination_buffer(destination: Destination) -> Buffer:
    """The buffer that a destination writes to."""
    while isinstance(destination, ArrayDestination):
        destination = destination.at(const(0))
    return destination.buffer


def as_array_destination(destination: Destination) -> ArrayDestination:
    """A destination that the type checker has shown to be an array."""
    assert isinstance(destination, ArrayDestination)
    return destination


def nested_destination(memory: Memory, at: Callable[[Expr, Expr], Destination]) -> ArrayDestination:
    """A two-dimensional destination."""
    return ArrayDestination(lambda i: ArrayDestination(lambda j: at(i, j), memory), memory)


def crop_destination(destination: ArrayDestination, left: Expr, length: Expr) -> ArrayDestination:
    """Write element k to ``k + left`` if that lies in ``[0, length)``, else drop it."""

    def at(k: Expr) -> Destination:
        index = k + left
        return guard_destination(destination.at(index), Guard(index, length))

    return ArrayDestination(at, destination.memory)


def guard_destination(destination: Destination, guard: Guard) -> Destination:
    """Write only where the guard holds."""
    if isinstance(destination, ArrayDestination):
        return ArrayDestination(
            lambda i: guard_destination(destination.at(i), guard), destination.memory
        )
    return ScalarDestination(
        destination.buffer, destination.indices, (*destination.guards, guard), destination.lane
    )


def _placed(
    destination: ScalarDestination, values: Mapping[str, Expr], lane: Symbol | None
) -> ScalarDestination:
    """A destination with symbols replaced by name in its indices and guards."""
    return ScalarDestination(
        destination.buffer,
        tuple(index.substitute(values) for index in destination.indices),
        tuple(Guard(g.index.substitute(values), g.limit) for g in destination.guards),
        lane,
    )


def lane_destination(destination: ArrayDestination, width: Expr) -> ArrayDestination:
    """Destination of vectors over a destination of scalars (writes under ``as_scalar``)."""
    lane = lane_symbol(width)

    def at(i: Expr) -> Destination:
        with _lane_of_its_own(width) as (own, named):
            scalar = destination.at(i * width + own)
        assert isinstance(scalar, ScalarDestination)
        return _placed(scalar, named, lane)

    return ArrayDestination(at, destination.memory)


def component_destination(destination: ArrayDestination, width: Expr) -> ArrayDestination:
    """Destination of scalars over a destination of vectors (writes under ``as_vector``)."""

    def at(i: Expr) -> Destination:
        vector = destination.at(floor_div(i, width))
        assert isinstance(vector, ScalarDestination)
        return _placed(vector, {LANE: modulo(i, width)}, None)

    return ArrayDestination(at, destination.memory)


def destination_view(destination: Destination, type_: Type) -> View:
    """Read back what a destination holds (an accumulator that lives in the result)."""
    if isinstance(type_, ArrayType):
        array = as_array_destination(destination)
        element = type_.element
        memories = frozenset(() if array.spread else (array.memory,))
        return ArrayView(type_, lambda i: destination_view(array.at(i), element), memories)
    assert isinstance(destination, ScalarDestination)
    view: View = ScalarView(
        type_,
        Load(destination.buffer, destination.indices),
        frozenset((destination.buffer.memory,)),
    )
    for guard in destination.guards:
        view = guard_view(view, guard, 0.0)
    return view
