"""What a kernel does, counted from its loop nest: operations, and bytes by level of memory.

Of global memory those bytes are counted that are fetched: neighbouring work-items that read
neighbouring elements share a fetch, and those that read one element share it whole. How far
apart neighbours read is the stride of the index function in the loop that runs along
dimension 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Guarded,
    LaneSum,
    Load,
    Loop,
    LoopKernel,
    Operate,
    Store,
    Value,
    loads,
    walk,
)
from mapper.ast_model.nodes import Op
from mapper.ast_model.types import Memory
from mapper.errors import InputError
from mapper.schedule import ScheduleCode

#: Bytes that a device fetches at once: a sector of a GPU, about a cache line elsewhere.
FETCH_BYTES = 32
#: Neighbouring work-items whose accesses are one request.
LANES = 32


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of a whole launch: arithmetic operations, stores and loads of private memory, bytes of
    local memory, bytes fetched from and written to global memory, and the least global bytes
    (each element of each buffer touched once)."""

    operations: float
    private_accesses: float
    local_bytes: float
    global_bytes: float
    least_global_bytes: float


def traffic_of(kernel: LoopKernel, codes: Mapping[str, ScheduleCode]) -> Traffic:
    """Count a kernel whose sizes are numbers; guards are taken to hold."""
    operations = private = local = fetched = 0.0
    touched: dict[str, float] = {}
    for statement, loops in walk(kernel.statements):
        if not isinstance(statement, Store):
            continue
        times = 1.0
        width = 1
        for loop in loops:
            code = codes.get(str(loop.map_id))
            trip = float(_number(loop.trip))
            times *= trip
            if code is not None and code.vector_width:
                width = code.vector_width
        operations += times * operations_of(statement.value)
        neighbour = _along_neighbours(loops, codes)
        for buffer, indices in accesses_of(statement):
            size = buffer.element_bytes
            match buffer.memory:
                case Memory.PRIVATE:
                    private += times / width
                case Memory.LOCAL:
                    local += times * size
                case Memory.GLOBAL:
                    stride = _stride(buffer, indices, neighbour)
                    fetched += times * fetched_bytes(stride, size)
                    whole = float(size)
                    for dimension in buffer.dimensions:
                        whole *= _number(dimension)
                    touched[buffer.name] = whole
    return Traffic(operations, private, local, fetched, sum(touched.values()))


def fetched_bytes(stride: int | None, element_bytes: int) -> float:
    """Bytes fetched for each access of work-items that read ``stride`` elements apart; None
    where neighbours read nothing in a pattern (or there are no neighbours)."""
    if stride == 0:
        return element_bytes / LANES
    if stride is None:
        return float(element_bytes)
    return float(min(abs(stride) * element_bytes, FETCH_BYTES))


def _along_neighbours(loops: Sequence[Loop], codes: Mapping[str, ScheduleCode]) -> Loop | None:
    """The loop whose iterations neighbouring work-items run: the innermost of dimension 0."""
    for loop in reversed(loops):
        code = codes.get(str(loop.map_id))
        if code in (ScheduleCode.LOCAL_0, ScheduleCode.GLOBAL_0):
            return loop
    return None


def _stride(buffer: Buffer, indices: tuple[Expr, ...], neighbour: Loop | None) -> int | None:
    """Elements between what neighbours access, from the start of the index space."""
    if neighbour is None:
        return None
    places = [_place(buffer, indices, neighbour.variable.name, value) for value in (0, 1)]
    if places[0] is None or places[1] is None:
        return None
    return places[1] - places[0]


def _place(buffer: Buffer, indices: tuple[Expr, ...], variable: str, value: int) -> int | None:
    """The row-major position where all symbols are 0 but one."""
    position = 0
    for index, dimension in zip(indices, buffer.dimensions, strict=True):
        values = {name: value if name == variable else 0 for name in index.names()}
        try:
            found = index.evaluate(values)
        except InputError:
            # Divided by a symbol: no pattern that this sees.
            return None
        position = position * _number(dimension) + found
    return position


def accesses_of(store: Store) -> list[tuple[Buffer, tuple[Expr, ...]]]:
    """What a store loads, and then where it stores."""
    return [
        *((load.buffer, load.indices) for load in loads(store.value)),
        (store.buffer, store.indices),
    ]


def operations_of(value: Value) -> int:
    """Operators in a value: ``fma`` is two, the sum over a vector's lanes is one."""
    match value:
        case Constant() | Load():
            return 0
        case Guarded():
            return operations_of(value.value)
        case LaneSum():
            return 1 + operations_of(value.value)
        case Operate():
            own = 2 if value.op is Op.FMA else 1
            return own + sum(operations_of(operand) for operand in value.operands)


def _number(expression: Expr) -> int:
    found = expression.constant
    if found is None:
        raise ValueError(f"{expression} is no number: the kernel has open parameters")
    return found
