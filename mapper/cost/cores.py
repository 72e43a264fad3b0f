"""What a program takes on the cores of a processor, read off its loops, codes and sizes.

For each store of a nest: cycles of the vector units and of the load and store ports, with the
sums of a tile in registers as far as there are any; and bytes that come from each level of the
caches. A level holds the outermost loop of which all that it touches fits; what the loop touches
comes from the level behind once for each time it runs ("Analytical Modeling Is Enough for
High-Performance BLIS", TOMS'16; the model of Halide's and PolyMage's schedulers is of this kind).
Only the order of what it says is worth anything: constants were fitted to the order of candidates
that were timed on a Zen 5 with vectors of 16 (docs/decisions/0026), and are no facts of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import ceil, prod

from mapper.ast_model.loop_nest import LoopKernel
from mapper.ast_model.types import Memory
from mapper.constraint_rules.limits import MAX_REGISTERS
from mapper.constraint_rules.predicate import Variable
from mapper.cost.loops import Accesses, Decided, Reach, accesses_of, shared_loops, width_of
from mapper.cpu_targets import vector_registers
from mapper.device_profile import DeviceProfile
from mapper.schedule import DIMENSIONS, Level, ScheduleCode

#: Bytes of the caches of a core, the last one's share of it.
CACHES = (32 << 10, 1 << 20, 8 << 20)
#: Bytes that a core gets in a cycle from the level behind each.
_FROM_BEHIND = (55.0, 10.0, 4.0)
_CYCLES_A_MS = 3e6
#: Vector operations, loads and stores that a core begins in a cycle.
_UNITS = 2.0
_LOADS = 0.67
_STORES = 0.5
#: What a guard that may fail adds to a load.
_GUARD = 0.5
#: Least cycles of a step: until the result of a vector operation can be used.
_LATENCY = 15.0
#: What it costs where sums do not fit into the registers, and where a body is so long (in vector
#: operations) that it is fetched anew in every step; such bodies take compilers long, too.
_SPILLING = 6.0
_LONGEST_BODY = 1000.0
_TOO_LONG = 1.5
#: Numbers that steps taken together find side by side are loaded as vectors, and taken apart,
#: where there are as many.
_TAKEN_APART = 1.6
_VECTOR = 4
#: Cycles of a step of a loop that is not unrolled, of a work-item, of a group and of a launch.
_STEP = 2.2
_ITEM = 1.0
_GROUP = 120.0
_LAUNCH = 2e4
#: Groups for each core that are dealt out one by one.
_IN_TURN = 16
_LOCAL_CODES = frozenset({ScheduleCode.LOCAL_0, ScheduleCode.LOCAL_1, ScheduleCode.LOCAL_2})
#: To take the place of a fused loop apart.
_DIGIT = 0.6


class CoreCost:
    """The cost of kernels on a processor with these vectors and cores: those of an elaborated
    program, or some of them, for costs of kernels add up."""

    def __init__(self, kernels: Iterable[LoopKernel], device: DeviceProfile) -> None:
        self._kernels = [accesses_of(kernel) for kernel in kernels]
        self._registers = device.vector_registers or vector_registers(device.vector_widths)
        self._widest = max(device.vector_widths)
        self._units = max(1, device.compute_units)

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """About how long an assignment of all that is decided about them takes."""
        decided = Decided.of(assignment)
        cycles = 0.0
        for name, statements in self._kernels:
            line = [decided.sizes.get((name, dimension), 1) for dimension in DIMENSIONS]
            own = [_Mapped(s, decided.values, decided.codes) for s in statements]
            cycles += _LAUNCH + self._kernel(own, line)
        return cycles / _CYCLES_A_MS

    def _kernel(self, statements: Sequence[_Mapped], line: Sequence[int]) -> float:
        if not statements:
            return 0.0
        largest = max(statements, key=lambda s: s.items)
        groups = largest.groups(line)
        items, count = sum(size * n for size, n in groups), sum(n for _, n in groups)
        work = sum(s.cycles(self._registers, self._widest) for s in statements)
        work += items * _ITEM + count * _GROUP
        return work * _busiest(groups, self._units) / items


def _busiest(groups: Iterable[tuple[int, int]], cores: int) -> float:
    """Work-items of the core that has most of them, where cores take groups one by one; of groups
    there are so many of each size."""
    sizes = sorted(groups, reverse=True)
    items, count = sum(size * n for size, n in sizes), sum(n for _, n in sizes)
    if count > _IN_TURN * cores:
        # About half a group longer than the others.
        return items / cores + sizes[0][0] / 2
    loads = [0] * cores
    for size in chain.from_iterable([size] * n for size, n in sizes):
        loads[loads.index(min(loads))] += size
    return float(max(loads))


def _in_turn(codes: Sequence[int | None]) -> list[int]:
    """The loops in the order in which a core goes round: groups before work-items, of each the
    first dimension innermost; inside of all of them what a work-item does by itself."""
    shared = shared_loops(codes)
    runs: list[list[int]] = []
    for k in shared:
        if codes[k] == ScheduleCode.FUSED:
            runs[-1].append(k)
        else:
            runs.append([k])
    runs.sort(key=lambda run: (codes[run[0]] in _LOCAL_CODES, -((codes[run[0]] or 0) % 10)))
    return [*chain.from_iterable(runs), *(k for k in range(len(codes)) if k not in shared)]


class _Mapped:
    """A statement under an assignment."""

    def __init__(
        self, statement: Accesses, values: dict[str, int], codes: Mapping[str, int]
    ) -> None:
        self._statement = statement
        self._values = values
        written = [None if o.map_id is None else codes.get(o.map_id) for o in statement.loops]
        order = _in_turn(written)
        self._loops = [statement.loops[k] for k in order]
        self._codes = [written[k] for k in order]
        self._trips = [loop.trip(values) for loop in self._loops]
        self._vector = next((k for k, code in enumerate(self._codes) if width_of(code) > 1), None)
        self._shared = shared_loops(self._codes)
        self.items = prod(self._trips[k] for k in self._shared)
        accesses = (*statement.reads, statement.writes)
        outer = [a for a in accesses if a.buffer.memory is not Memory.PRIVATE]
        self._outer = [Reach(a, self._loops, self._trips, values) for a in outer]
        self._guards = sum(
            asked.may_fail(self._loops, self._trips, values) for asked in statement.guards
        )

    def groups(self, line: Sequence[int]) -> list[tuple[int, int]]:
        """Sizes of work-groups of these local sizes, and how many there are of each: the last of a
        dimension may have fewer work-items."""
        found = [(1, 1)]
        for dimension, width in enumerate(line):
            items, groups = self._spread(dimension)
            whole, rest = divmod(items, width) if groups is None else (groups, 0)
            size = width if groups is None else items
            own = [(size, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)
            found = [(a * b, n * m) for a, n in found for b, m in own]
        return found

    def _spread(self, dimension: int) -> tuple[int, int | None]:
        """Work-items along a dimension, and groups where codes say how many there are."""
        trips = {Level.GLOBAL: 1, Level.LOCAL: 1, Level.WORK_GROUP: 1}
        level, grouped = Level.GLOBAL, False
        mine = False
        for k in self._shared:
            code = ScheduleCode(self._codes[k] or 0)
            if code != ScheduleCode.FUSED:
                level, mine = code.level, code.dimension == dimension
                grouped |= mine and level is not Level.GLOBAL
            if mine:
                trips[level] *= self._trips[k]
        if grouped:
            return trips[Level.LOCAL], trips[Level.WORK_GROUP]
        return trips[Level.GLOBAL], None

    def cycles(self, registers: int, widest: int) -> float:
        """Of one core that does all."""
        compute = self._compute(registers, widest)
        traffic = [t / rate for t, rate in zip(self._traffic(), _FROM_BEHIND, strict=True)]
        parts = [compute, *traffic]
        # Little of the rest is not hidden behind what takes longest.
        return max(parts) + 0.25 * (sum(parts) - max(parts))

    def _lanes(self, widest: int) -> float:
        if self._vector is None:
            return 1.0
        return float(min(self._trips[self._vector], width_of(self._codes[self._vector]), widest))

    def _compute(self, registers: int, widest: int) -> float:
        lanes = self._lanes(widest)
        times = prod(self._trips)
        reduces = [k for k, loop in enumerate(self._loops) if loop.map_id is None]
        operations = max(self._statement.operations, 1.0)
        first = reduces[-1] + 1 if reduces else self._tile_begin()
        own = [k for k in range(first, len(self._loops)) if k != self._vector]
        moving = [k for k in own if self._trips[k] > 1]
        tile = prod(self._trips[k] for k in own)
        if self._vector is not None and self._vector >= first:
            tile *= ceil(self._trips[self._vector] / lanes)
        else:
            lanes = 1.0
        steps = times / max(1.0, tile * lanes)
        fetched = sum(r.fetched(own, self._vector, lanes, self._trips) for r in self._reads())
        held = [r.fetched(own, self._vector, lanes, self._trips) for r in self._reads()
                if r.along(self._vector)]  # fmt: skip
        joined = self._joined(moving, widest) if reduces and lanes == 1.0 else 1.0
        fetched *= 1.0 + _GUARD * self._guards
        cycles = max(tile * operations / _UNITS, fetched / _LOADS) / joined
        if reduces:
            needed = (tile + min(held, default=0.0)) / joined + 2
            kept = needed <= registers and self._sums() <= MAX_REGISTERS
            cycles = max(cycles, _LATENCY) * (1.0 if kept else _SPILLING)
            unrolled = self._unrolled(reduces[-1])
            between = [k for k in range(reduces[0] + 1, reduces[-1])
                       if self._loops[k].map_id is not None and self._trips[k] > 1]  # fmt: skip
            if between:
                # Work-items take turns: each fetches its sums, and puts them back.
                inside = prod(self._trips[k] for k in reduces if k > between[-1])
                cycles += 2 * tile / _STORES / inside
            if tile * unrolled > _LONGEST_BODY:
                cycles *= _TOO_LONG
            near = max((r.side_by_side(reduces[-1]) for r in self._reads()), default=1)
            if unrolled > 1 and lanes > 1 and near >= _VECTOR:
                cycles *= _TAKEN_APART
        else:
            stores = 1.0 if self._stores_in_lanes() else lanes
            cycles = max(cycles, tile * stores / _STORES)
            unrolled = 1.0
        digits = _DIGIT * self._digits() * times / max(1, prod(self._trips[k] for k in own) * lanes)
        return steps * (cycles + (_STEP / unrolled)) + (0.0 if reduces else digits)

    def _sums(self) -> int:
        """Elements of a work-item's private array that the statement writes."""
        writes = self._statement.writes
        if writes.buffer.memory is not Memory.PRIVATE:
            return 0
        return prod(size(self._values) for size in writes.sizes[writes.buffer.spread :])

    def _joined(self, own: Sequence[int], widest: int) -> float:
        """Neighbours of a tile without vectors that a compiler makes vectors of."""
        if not own or any(r.moves(own[-1]) and not r.along(own[-1]) for r in self._reads()):
            return 1.0
        return float(min(widest, 1 << (self._trips[own[-1]].bit_length() - 1)))

    def _tile_begin(self) -> int:
        """The first loop inside all that is shared out."""
        shared = self._shared
        return shared[-1] + 1 if shared else 0

    def _digits(self) -> int:
        """Loops fused into shared ones: places are quotients and remainders then."""
        return sum(self._codes[k] == ScheduleCode.FUSED for k in self._shared)

    def _unrolled(self, place: int) -> float:
        switch = self._loops[place].unroll
        whole = switch is not None and switch(self._values)
        return float(self._trips[place]) if whole else 1.0

    def _reads(self) -> list[Reach]:
        return self._outer[: len(self._outer) - self._writes_outer()]

    def _writes_outer(self) -> bool:
        return self._statement.writes.buffer.memory is not Memory.PRIVATE

    def _stores_in_lanes(self) -> bool:
        return (
            self._vector is None or not self._writes_outer() or self._outer[-1].along(self._vector)
        )

    def _traffic(self) -> list[float]:
        """Bytes that come from behind each cache."""
        found: list[float] = []
        depths = range(len(self._loops) + 1)
        sizes = [[reach.bytes(depth) for reach in self._outer] for depth in depths]
        for capacity in CACHES:
            depth = next((d for d in depths if sum(sizes[d]) <= 0.8 * capacity), len(self._loops))
            times = prod(self._trips[:depth])
            total = 0.0
            for k, reach in enumerate(self._outer):
                own = times
                # What the loop around does not move stays where twice the rest fits beside it.
                if (
                    depth
                    and not reach.moves(depth - 1)
                    and (sizes[depth][k] + 2 * (sum(sizes[depth]) - sizes[depth][k]) <= capacity)
                ):
                    own /= max(1, self._trips[depth - 1])
                total += own * sizes[depth][k]
            found.append(total)
        return found
