"""What costs read off a kernel's loops: its stores, and how far each access goes with each loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

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
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.cost.compiled_expr import Function, function_of
from mapper.schedule import ScheduleCode

#: Bytes of a line.
LINE = 64
_SLOW_OPERATION = 10.0
_SLOW = frozenset({Op.DIV, Op.EXP, Op.SQRT})
#: Lines that a power of two apart share a few places of the nearest cache: so many bytes, and ways.
_ALIAS = 4096
_WAYS = 8
_MISSES = 2.0
PARALLEL = frozenset(int(code) for code in ScheduleCode if code.is_parallel)


@dataclass(frozen=True, slots=True)
class Access:
    """One that a store makes: its buffer, and the place along each dimension."""

    buffer: Buffer
    sizes: tuple[Function, ...]
    indices: tuple[Function, ...]
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class CostLoop:
    """A loop: of a map, or of a reduce (``map_id`` None)."""

    variable: str
    map_id: str | None
    trip: Function
    unroll: Function | None
    prefetch: Function | None


@dataclass(frozen=True, slots=True)
class Asked:
    """Whether a place is at least 0 and below a limit."""

    place: Function
    limit: Function
    names: frozenset[str]

    def may_fail(
        self, loops: Sequence[CostLoop], trips: Sequence[int], values: dict[str, int]
    ) -> bool:
        """Whether it does for the first or the last iteration of some loop."""
        first = dict.fromkeys(self.names, 0) | values
        last = first | {loop.variable: trip - 1 for loop, trip in zip(loops, trips, strict=True)
                        if loop.variable in self.names}  # fmt: skip
        limit = self.limit(values)
        return any(not 0 <= self.place(at) < limit for at in (first, last))


@dataclass(frozen=True, slots=True)
class Accesses:
    """A store with the loops around it, outermost first, and what is loaded for it.

    ``operations`` are those of a vector, or of a scalar; ``private`` are the private arrays that
    are read; ``guards`` are what is asked of places before something is fetched. ``parameters`` are
    all that the sizes of it depend on, sorted.
    """

    loops: tuple[CostLoop, ...]
    reads: tuple[Access, ...]
    writes: Access
    operations: float
    private: frozenset[str]
    guards: tuple[Asked, ...]
    parameters: tuple[str, ...]

    @property
    def steps(self) -> float:
        """Operations and guards."""
        return self.operations + len(self.guards)


class Reach:
    """How far an access goes when loops run: along each dimension, loop by loop."""

    def __init__(
        self,
        access: Access,
        loops: Sequence[CostLoop],
        trips: Sequence[int],
        values: dict[str, int],
    ) -> None:
        self._element = access.buffer.element_bytes
        self._trips = trips
        self._sizes = [size(values) for size in access.sizes]
        zero = dict.fromkeys(access.names, 0) | values
        start = [index(zero) for index in access.indices]
        self._spans: list[list[int] | None] = []
        self._near: list[bool] = []
        for loop, trip in zip(loops, trips, strict=True):
            if loop.variable not in access.names or trip < 2:
                self._spans.append(None)
                self._near.append(True)
                continue
            ends = [index({**zero, loop.variable: trip - 1}) for index in access.indices]
            self._spans.append([abs(e - s) for e, s in zip(ends, start, strict=True)])
            nexts = [index({**zero, loop.variable: 1}) for index in access.indices]
            moved = [n - s for n, s in zip(nexts, start, strict=True)]
            self._near.append(not any(moved[:-1]) and moved[-1:] in ([0], [1]))

    def moves(self, loop: int) -> bool:
        """Whether a loop's iterations access different elements."""
        return self._spans[loop] is not None

    def along(self, loop: int | None) -> bool:
        """Whether neighbours of a loop access neighbours."""
        return loop is not None and self.moves(loop) and self._near[loop]

    def side_by_side(self, loop: int) -> int:
        """How many neighbours of a loop access neighbours: all of them, or one; of a loop over a
        window's rows and columns one."""
        spans, trip = self._spans[loop], self._trips[loop]
        straight = self.along(loop) and spans is not None and sum(spans) == spans[-1] == trip - 1
        return trip if straight else 1

    def fetched(
        self, own: Sequence[int], vector: int | None, lanes: float, trips: Sequence[int]
    ) -> float:
        """Loads of a tile: one for a vector of neighbours, or for what all lanes read."""
        count = float(prod(trips[k] for k in own if self.moves(k)))
        if self._aliases(own):
            count *= _MISSES
        if vector is None or lanes == 1.0 or not self.moves(vector):
            return count
        vectors = ceil(trips[vector] / lanes)
        return count * vectors * (1.0 if self._near[vector] else lanes)

    def _aliases(self, own: Sequence[int]) -> bool:
        """Whether a tile's loads are so far apart that they throw each other out."""
        steps = 1
        for k in own:
            spans = self._spans[k]
            if spans is not None and self.step_bytes(k) % _ALIAS == 0:
                steps *= self._trips[k]
        return steps > _WAYS

    def step_bytes(self, loop: int) -> int:
        """How many bytes apart neighbours of a loop access; 0 where it does not move."""
        spans, trip, place = self._spans[loop], self._trips[loop], 0
        if spans is None:
            return 0
        for span, size in zip(spans, self._sizes, strict=True):
            place = place * size + span // max(1, trip - 1)
        return place * self._element

    def bytes(self, depth: int) -> float:
        """What the loops from ``depth`` on touch, in whole lines."""
        return self.touched([1] * depth + list(self._trips[depth:]))

    def touched(self, counts: Sequence[int]) -> float:
        """What so many iterations of each loop touch, in whole lines."""
        extents = [1] * len(self._sizes)
        elements = 1
        for k, count in enumerate(counts):
            spans = self._spans[k]
            if spans is None or count < 2:
                continue
            elements *= count
            if count < self._trips[k]:
                steps = self._trips[k] - 1
                spans = [span * (count - 1) // steps for span in spans]
            extents = [e + s for e, s in zip(extents, spans, strict=True)]
        extents = [min(e, n) for e, n in zip(extents, self._sizes, strict=True)]
        if not extents:
            return float(LINE)
        row, rows = extents[-1] * self._element, prod(extents[:-1])
        # Rows that are touched whole follow one another.
        for extent, size in zip(reversed(extents[:-1]), reversed(self._sizes), strict=False):
            if row < size * self._element:
                break
            row, rows = row * extent, rows // max(1, extent)
        return min(float(rows) * max(LINE, row), float(elements) * LINE)


def accesses_of(kernel: LoopKernel) -> tuple[str, list[Accesses]]:
    """A kernel's name and its stores, in order."""
    found: list[Accesses] = []
    for statement, loops in walk(kernel.statements):
        if isinstance(statement, Store):
            own = tuple(_loop_of(loop) for loop in loops)
            reads = dict.fromkeys(
                _access(load.buffer, load.indices) for load in loads(statement.value)
            )
            # Private memory is registers: what is there is not fetched.
            fetched = tuple(r for r in reads if r.buffer.memory is not Memory.PRIVATE)
            private = frozenset(r.buffer.name for r in reads if r.buffer.memory is Memory.PRIVATE)
            writes = _access(statement.buffer, statement.indices)
            operations = _operations(statement.value)
            asked = tuple(_asked(statement.value))
            parameters = _parameters(statement, loops)
            found.append(Accesses(own, fetched, writes, operations, private, asked, parameters))
    return kernel.name, found


def _parameters(statement: Store, loops: Sequence[Loop]) -> tuple[str, ...]:
    own = [statement, *loads(statement.value)]
    places = [e for one in own for e in (*one.indices, *one.buffer.dimensions)]
    about = [e for o in loops for e in (o.trip, o.unroll, o.prefetch) if e is not None]
    names = {name for expression in (*places, *about) for name in expression.names()}
    return tuple(sorted(names - {loop.variable.name for loop in loops}))


def _loop_of(loop: Loop) -> CostLoop:
    name = None if loop.map_id is None else str(loop.map_id)
    unroll = None if loop.unroll is None else function_of(loop.unroll)
    prefetch = None if loop.prefetch is None else function_of(loop.prefetch)
    return CostLoop(loop.variable.name, name, function_of(loop.trip), unroll, prefetch)


def _access(buffer: Buffer, indices: tuple[Expr, ...]) -> Access:
    names = frozenset(name for index in indices for name in index.names())
    sizes = tuple(function_of(size) for size in buffer.dimensions)
    return Access(buffer, sizes, tuple(function_of(index) for index in indices), names)


def _operations(value: Value) -> float:
    """Vector operations; a product that is added is one with the sum."""
    match value:
        case Constant() | Load():
            return 0.0
        case Guarded():
            return _operations(value.value)
        case LaneSum():
            return 2.0 + _operations(value.value)
        case Operate():
            inner = sum(_operations(operand) for operand in value.operands)
            if value.op is Op.ADD and any(
                isinstance(o, Operate) and o.op is Op.MUL for o in value.operands
            ):
                return inner
            return inner + (_SLOW_OPERATION if value.op in _SLOW else 1.0)


def _asked(value: Value) -> Iterator[Asked]:
    match value:
        case Guarded(guard, inside, _):
            # What is cropped of a tile in registers is known when the kernel is compiled.
            if not (isinstance(inside, Load) and inside.buffer.memory is Memory.PRIVATE):
                names = guard.index.names()
                yield Asked(function_of(guard.index), function_of(guard.limit), names)
            yield from _asked(inside)
        case LaneSum():
            yield from _asked(value.value)
        case Operate():
            for operand in value.operands:
                yield from _asked(operand)
        case _:
            return


def width_of(code: int | None) -> int:
    """The lanes of a vector code, else 1."""
    return code if code is not None and ScheduleCode(code).vector_width is not None else 1


def shared_loops(codes: Sequence[int | None]) -> list[int]:
    """The loops that are shared out, with those fused into them, by the codes of all."""
    found: list[int] = []
    inside = False
    for k, code in enumerate(codes):
        if code is None:
            inside = False
        elif code != ScheduleCode.FUSED:
            inside = code in PARALLEL
        if code is not None and inside:
            found.append(k)
    return found


@dataclass(frozen=True, slots=True)
class Decided:
    """An assignment, by what it is of: parameters, codes of maps, local sizes by kernel and
    dimension."""

    values: dict[str, int]
    codes: dict[str, int]
    sizes: dict[tuple[str, int], int]

    @classmethod
    def of(cls, assignment: Mapping[Variable, int]) -> Decided:
        """The assignment taken apart."""
        found = cls({}, {}, {})
        for variable, value in assignment.items():
            match variable:
                case ParameterVariable():
                    found.values[variable.name] = value
                case CodeVariable():
                    found.codes[str(variable.map_id)] = value
                case LocalSizeVariable():
                    found.sizes[variable.kernel, variable.dimension] = value
        return found
