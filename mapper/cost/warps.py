"""What a program takes on a GPU, read off its loops, codes and sizes.

Groups run on units, as many at once on each as its registers, its local memory and its places for
work-items allow. For each store of a nest: instructions of the warps; turns of the port to local
memory and to the nearest cache, by the places that a warp's lanes access (banks, sectors); bytes
that come from the cache that all units share, and from memory. What takes longest counts, and the
time in which a group waits for what it loads, as far as no other group runs meanwhile ("An
Analytical Model for a GPU Architecture with Memory-level and Thread-level Parallelism Awareness",
ISCA'09; "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, for banks and
sectors). Only the order of what it says is worth anything: constants were fitted to the order of
candidates that were timed on an H100 and an H200 (docs/decisions/0026), and are no facts of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, gcd, prod

from mapper.ast_model.loop_nest import LoopKernel
from mapper.ast_model.types import Memory
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.prefetch_stages import MORE_THAN_A_SHARE
from mapper.cost.loops import Access, Accesses, Decided, Reach, accesses_of, width_of
from mapper.device_profile import DeviceProfile
from mapper.schedule import ScheduleCode

_CYCLES_A_MS = 1.7e6
#: What a unit has: registers of 4 bytes, local memory, nearest cache, places for work-items and for
#: groups, instructions of warps that it begins in a cycle.
_REGISTERS = 65536
_MOST_REGISTERS = 255
_LOCAL_BYTES = 224 << 10
_CACHE_BYTES = 224 << 10
_ITEMS = 2048
_GROUPS = 32
_ISSUED = 4.0
#: Of these one warp has so many, which waits for what it computed last: few warps keep a unit less
#: than busy.
_OF_A_WARP = 0.4
#: Bytes that a unit gets in a cycle from the shared cache and from memory, and the former's size.
_FROM_SHARED = 35.0
_FROM_MEMORY = 20.0
_SHARED_BYTES = 40 << 20
_REREAD = 0.3
_SECTOR = 32
_BANKS = 32
_BANK_BYTES = 4
#: Bytes that lanes may ask of local memory at once, the same or not.
_SERVED = 128
#: The widest access of a work-item, and bytes that the nearest cache hands on in a cycle.
_WIDEST = 16
_LINE = 128
#: Registers that a work-item needs beside what it keeps.
_OTHER_REGISTERS = 13
#: The share of an array of copies that is in registers at once.
_AT_ONCE = 0.75
#: Cycles until what is loaded is there: from memory, the share of them where it is prefetched, from
#: local memory and from a cache; of a barrier, of a step of a loop, of a group, of a launch;
#: instructions of a work-item at its begin and of a place in a fused loop.
_LATENCY = 100.0
_PREFETCHED = 0.05
#: The share of waiting that other groups do not hide.
_SEEN = 0.3
_NEAR_LATENCY = 30.0
_CACHED_LATENCY = 1500.0
_BARRIER = 9.2
_STEP = 1.9
_GROUP = 60.0
_LAUNCH = 4000.0
_ITEM = 190.0
_DIGITS = 1.0
_SPILLING = 2.5
#: Steps that compilers take together by themselves, and instructions of a body that they, and the
#: cache of instructions, take badly.
_TOGETHER = 4
_LONGEST_BODY = 12000.0
_TOO_LONG = 2.0
#: Bytes that have to be under way on a unit for memory to be busy.
_UNDER_WAY = 24e3
#: Statements under values that are kept.
_MOST_KNOWN = 4096
_GROUP_CODES = frozenset({ScheduleCode.WORK_GROUP_0, ScheduleCode.WORK_GROUP_1,
                          ScheduleCode.WORK_GROUP_2})  # fmt: skip
_LOCAL_CODES = frozenset({ScheduleCode.LOCAL_0, ScheduleCode.LOCAL_1, ScheduleCode.LOCAL_2})


class WarpCost:
    """The cost of kernels on a GPU with these units: those of an elaborated program, or some of
    them, for costs of kernels add up."""

    def __init__(self, kernels: Iterable[LoopKernel], device: DeviceProfile) -> None:
        self._kernels = [accesses_of(kernel) for kernel in kernels]
        self._lanes = device.lanes or 32
        self._units = max(1, device.compute_units)
        # Assignments that are close to each other mostly have the same of a statement.
        self._known: dict[tuple[object, ...], _Mapped] = {}

    def ms(self, assignment: Mapping[Variable, int]) -> float:
        """About how long an assignment of all that is decided about them takes."""
        decided = Decided.of(assignment)
        cycles = 0.0
        for name, statements in self._kernels:
            sizes = tuple(decided.sizes.get((name, dimension), 1) for dimension in range(3))
            own = [self._mapped(statement, decided, sizes) for statement in statements]
            cycles += _LAUNCH + self._kernel(own, prod(sizes))
        return cycles / _CYCLES_A_MS

    def _mapped(self, statement: Accesses, decided: Decided, sizes: tuple[int, ...]) -> _Mapped:
        key = (
            id(statement),
            sizes,
            *(decided.values.get(name) for name in statement.parameters),
            *(o.map_id and decided.codes.get(o.map_id) for o in statement.loops),
        )
        found = self._known.get(key)
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = _Mapped(statement, decided, sizes, self._lanes)
        return found

    def _kernel(self, own: Sequence[_Mapped], size: int) -> float:
        if not own:
            return 0.0
        groups = max(m.groups for m in own)
        warps = ceil(size / self._lanes)
        registers = _OTHER_REGISTERS + _registers(own)
        local = sum(_local(own).values())
        resident = min(
            _GROUPS,
            _ITEMS // max(self._lanes, size) or 1,
            int(_REGISTERS // (min(registers, _MOST_REGISTERS) * warps * self._lanes)) or 1,
            int(_LOCAL_BYTES // max(1.0, local)) or 1,
            ceil(groups / self._units),
        )
        issued = sum(m.issued for m in own) + warps * _ITEM
        ports = sum(m.ports for m in own)
        cache = _CACHE_BYTES - resident * local
        shared = sum(m.from_shared(cache / resident) for m in own)
        memory = self._memory_bytes(own, shared * groups) / groups
        spilled = registers > min(_MOST_REGISTERS, _REGISTERS / (warps * self._lanes))
        if not any(m.reduces for m in own):
            under_way = resident * size * max(m.loaded_ahead for m in own)
            memory *= max(1.0, min(8.0, _UNDER_WAY / max(1.0, under_way)))

        def work(at_once: int) -> float:
            """Of so many groups beside one another on a unit."""
            rate = min(_ISSUED, _OF_A_WARP * at_once * warps)
            others = (ports, shared / _FROM_SHARED, memory / _FROM_MEMORY)
            # What does not take longest is hidden behind it.
            longest = max(issued / rate, *others)
            return at_once * (longest * (_SPILLING if spilled else 1.0) + _GROUP)

        waiting = sum(m.waiting for m in own)
        full, rest = divmod(groups, self._units * resident)
        alone = work(1) + waiting
        total = full * max(work(resident), alone)
        if rest:
            total += max(work(ceil(rest / self._units)), alone)
        # Never all of it is hidden.
        return total + _SEEN * waiting * (full + bool(rest))

    def _memory_bytes(self, own: Sequence[_Mapped], shared: float) -> float:
        """Bytes that come from memory or go there: each once, and what does not stay in the shared
        cache again."""
        unique: dict[str, float] = {}
        for mapped in own:
            for name, bytes_ in mapped.unique.items():
                unique[name] = max(unique.get(name, 0.0), bytes_)
        once = sum(unique.values())
        again = max(0.0, shared - once) if once > _SHARED_BYTES else 0.0
        return once + _REREAD * again


def _registers(own: Sequence[_Mapped]) -> float:
    """The most that arrays and operands need at once: an array from the first statement that has to
    do with it to the last. Of what is only copied a share, for compilers load it as it is used."""
    computed = {name for m in own if m.computes for name in m.kept}
    kept = {
        name: n * (1.0 if name in computed else _AT_ONCE) for m in own for name, n in m.kept.items()
    }
    mentions = {
        name: [k for k, m in enumerate(own) if name in m.kept or name in m.private] for name in kept
    }
    return max(
        mapped.operands
        + sum(n for name, n in kept.items() if mentions[name][0] <= k <= mentions[name][-1])
        for k, mapped in enumerate(own)
    )


def _local(own: Sequence[_Mapped]) -> dict[str, float]:
    """Bytes of each local array."""
    return {name: n for m in own for name, n in m.local.items()}


class _Mapped:
    """A statement under an assignment: what one group does of it."""

    def __init__(
        self, statement: Accesses, decided: Decided, sizes: tuple[int, ...], lanes: int
    ) -> None:
        loops, values = statement.loops, decided.values
        self._statement = statement
        self._values = values
        self._loops = loops
        self._lanes = lanes
        self._trips = [loop.trip(values) for loop in loops]
        codes = [None if o.map_id is None else decided.codes.get(o.map_id) for o in loops]
        self._vector = next((k for k, code in enumerate(codes) if width_of(code) > 1), None)
        self._codes, self._size = codes, prod(sizes)
        self._share_out(codes, sizes)
        writes = statement.writes
        self.computes = bool(statement.steps) or not statement.reads
        self.private = statement.private
        self.reduces = [k for k, loop in enumerate(loops) if loop.map_id is None]
        self.kept: dict[str, float] = {}
        self.local: dict[str, float] = {}
        self._keep(writes)
        self._reads = [Reach(a, loops, self._trips, values) for a in statement.reads]
        self._write: Reach | None = None
        if writes.buffer.memory is not Memory.PRIVATE:
            self._write = Reach(writes, loops, self._trips, values)
        self.unique = self._unique()
        self._count()

    def _share_out(self, codes: Sequence[int | None], sizes: tuple[int, ...]) -> None:
        """Which iterations of each loop are groups', and which work-items of a group."""
        trips = self._trips
        self.groups = 1
        #: Iterations of a loop that one group does, and those of one work-item.
        self._of_group = list(trips)
        self._of_item = list(trips)
        #: Loops that the lanes of a warp go along, innermost first, with their iterations.
        self._along: list[tuple[int, int]] = []
        active, self._rounds, items = 1, 1, prod(sizes)
        k = 0
        shared = False
        while k < len(trips):
            code = codes[k]
            end = k + 1
            while end < len(trips) and codes[end] == ScheduleCode.FUSED:
                end += 1
            run = range(k, end)
            total = prod(trips[k:end])
            if code in _GROUP_CODES:
                self.groups *= total
                for j in run:
                    self._of_group[j] = self._of_item[j] = 1
            elif code is not None and ScheduleCode(code).is_parallel:
                size = sizes[code % 10]
                shared = True
                active *= min(total, size)
                rounds = ceil(total / size)
                if code in _LOCAL_CODES:
                    self._rounds *= rounds
                else:
                    self.groups *= rounds
                left = size
                for j in reversed(run):
                    mine = min(trips[j], max(1, left))
                    left //= max(1, mine)
                    if code not in _LOCAL_CODES:
                        self._of_group[j] = mine
                    self._of_item[j] = 1
                    if code % 10 == 0:
                        self._along.append((j, mine))
            k = end
        self._warps = ceil((active if shared else items) / self._lanes)
        self._active = min(self._lanes, active if shared else items)

    def _keep(self, writes: Access) -> None:
        buffer = writes.buffer
        own = [size(self._values) for size in writes.sizes]
        if buffer.memory is Memory.PRIVATE:
            self.kept[buffer.name] = prod(own[buffer.spread :]) * buffer.element_bytes / 4
        elif buffer.memory is Memory.LOCAL:
            copies = max((int(loop.prefetch(self._values)) for loop in self._loops
                          if loop.prefetch is not None), default=1)  # fmt: skip
            self.local[buffer.name] = float(prod(own) * buffer.element_bytes * max(1, copies))

    def _unique(self) -> dict[str, float]:
        """Bytes of global memory that are accessed in all, by array."""
        found: dict[str, float] = {}
        for access, reach in self._accesses():
            if access.buffer.memory is Memory.GLOBAL:
                found[access.buffer.name] = reach.touched(self._trips)
        return found

    def _accesses(self) -> list[tuple[Access, Reach]]:
        found = list(zip(self._statement.reads, self._reads, strict=True))
        if self._write is not None:
            found.append((self._statement.writes, self._write))
        return found

    def _count(self) -> None:
        """Instructions, turns of the ports, registers of operands, and cycles of waiting."""
        trips = self._of_item
        last = self.reduces[-1] if self.reduces else None
        shared = [k for k, n in enumerate(trips) if n < self._trips[k]]
        first = last + 1 if last is not None else (shared[-1] + 1 if shared else 0)
        own = [k for k in range(first, len(trips)) if trips[k] > 1]
        tile = prod(trips[k] for k in own)
        steps = self._rounds * prod(trips[:first])
        instructions = tile * max(self._statement.steps, 0.5)
        self.operands = 0.0
        ports = 0.0
        self.loaded_ahead = 0.0
        for access, reach in self._accesses():
            count, turns, elements = self._moved(access, reach, own, last)
            instructions += count
            ports += count * turns
            if reach is not self._write:
                # What goes to registers as it is needs no others.
                if last is not None and not (self.kept and not self._statement.steps):
                    self.operands += elements
                if access.buffer.memory is Memory.GLOBAL:
                    self.loaded_ahead += elements * access.buffer.element_bytes
        instructions += _STEP / self._unrolled(last)
        if self._body(last, tile) > _LONGEST_BODY:
            instructions *= _TOO_LONG
        self._steps = steps
        # What several rounds need is made out anew in each step: there are too few registers.
        again = prod(self._trips[k] for k in self.reduces) if self._rounds > 1 else 1
        self.issued = self._warps * (steps * instructions + again * self._rounds * self._digits())
        self.ports = self._warps * steps * ports
        self.waiting = self._waits(last, steps)

    def _digits(self) -> float:
        return _DIGITS * max(0, len(self._along) - 1)

    def _unrolled(self, last: int | None) -> float:
        """Steps of a reduce that are one body."""
        if last is None:
            return 1.0
        switch = self._loops[last].unroll
        whole = switch is not None and switch(self._values)
        return float(self._trips[last] if whole else min(_TOGETHER, self._trips[last]))

    def _body(self, last: int | None, tile: float) -> float:
        """Operations of the code that a work-item goes round: steps that are unrolled, and those of
        a reduce over what is in registers, which have no places but in the code, are all in it."""
        if last is None:
            return tile
        near = self.private - {self._statement.writes.buffer.name}
        body = tile * (self._trips[last] if near else self._unrolled(last))
        for k in reversed(self.reduces[:-1]):
            switch = self._loops[k].unroll
            if switch is None or not switch(self._values):
                break
            body *= self._trips[k]
        return body

    def _moved(
        self, access: Access, reach: Reach, own: Sequence[int], last: int | None
    ) -> tuple[float, float, float]:
        """Instructions of a work-item in a step for an access, turns of the port that one of a warp
        takes, and elements."""
        trips, element = self._of_item, access.buffer.element_bytes
        moving = [k for k in own if reach.moves(k)]
        elements = float(prod(trips[k] for k in moving))
        wide, steps = 1, 1
        vector = self._vector
        if vector is not None and vector in moving and reach.along(vector):
            wide = trips[vector]
        elif access.buffer.memory is Memory.LOCAL and last is not None:
            # Neighbours in the tile, or in the steps that are taken together, are loaded together.
            wide = max((gcd(trips[k], _TOGETHER) for k in moving if reach.along(k)), default=1)
            if wide == 1 and reach.along(last) and reach.moves(last):
                wide = steps = min(int(self._unrolled(last)), _TOGETHER)
                elements *= wide
        count = elements / wide * ceil(wide * element / _WIDEST)
        if steps > 1:
            count /= steps
        elif last is not None and reach is not self._write and not reach.moves(last):
            # It is loaded once for all steps.
            count /= max(1, self._trips[last])
        bytes_ = min(wide * element, _WIDEST)
        pattern = tuple((reach.step_bytes(k), n) for k, n in self._along)
        turns = turns_of_port(pattern, bytes_, self._active, access.buffer.memory is Memory.LOCAL)
        return count, turns, elements

    def _waits(self, last: int | None, steps: float) -> float:
        """Cycles in which a group waits for what it loads."""
        memories = {a.buffer.memory for a, r in self._accesses() if r is not self._write}
        if self._statement.writes.buffer.memory is Memory.LOCAL:
            times = prod(self._trips[k] for k in self.reduces)
            ahead = self._prefetched()
            wait = _PREFETCHED * _LATENCY if ahead else _LATENCY
            return times * (wait + _BARRIER * (1 if ahead > 1 else 2))
        if last is None:
            return _LATENCY if Memory.GLOBAL in memories else 0.0
        together = self._unrolled(last)
        latency = _CACHED_LATENCY if Memory.GLOBAL in memories else _NEAR_LATENCY
        return steps / min(together, 16.0) * latency * 0.5

    def _prefetched(self) -> int:
        """Buffers of what is loaded early; 0 where nothing is, or a work-item would have to keep
        much more than its share (:mod:`mapper.kernel_gen.prefetch`)."""
        found = [
            (int(loop.prefetch(self._values)), k)
            for k, loop in enumerate(self._loops)
            if loop.prefetch is not None
        ]
        buffers, place = max(found, default=(0, 0))
        inside = range(place + 1, len(self._loops))
        own = self._rounds * prod(self._of_item[k] for k in inside)
        share = ceil(prod(self._trips[k] for k in inside) / self._size)
        as_one = sum(self._codes[k] != ScheduleCode.FUSED for k in inside) <= 1
        return buffers if own <= share + (0 if as_one else MORE_THAN_A_SHARE) else 0

    def from_shared(self, cache: float) -> float:
        """Bytes of global memory that a group gets from behind the nearest cache, and writes."""
        found = 0.0
        reads = [r for a, r in zip(self._statement.reads, self._reads, strict=True)
                 if a.buffer.memory is Memory.GLOBAL]  # fmt: skip
        if self._write is not None and self._statement.writes.buffer.memory is Memory.GLOBAL:
            found += self._write.touched(self._of_group)
        if not reads:
            return found
        inner, times = list(self._of_group), 1.0
        in_order = [k for k, n in enumerate(self._of_item) if n > 1]
        sizes = [r.touched(inner) for r in reads]
        for k in in_order:
            if sum(sizes) <= cache:
                break
            times *= inner[k]
            inner[k] = 1
            sizes = [r.touched(inner) for r in reads]
        whole = [r.touched(self._of_group) for r in reads]
        return found + sum(max(w, times * s) for w, s in zip(whole, sizes, strict=True))


@lru_cache(maxsize=65536)
def turns_of_port(
    pattern: tuple[tuple[int, int], ...], bytes_: int, active: int, local: bool
) -> float:
    """Cycles of the port for an access of a warp, by how far its lanes are apart.

    ``pattern``: the loops that lanes go along, innermost first: bytes between neighbours, trips.
    """
    lanes: list[int] = []
    for lane in range(active):
        left, place = lane, 0
        for step, trip in pattern:
            left, digit = divmod(left, trip)
            place += digit * step
        lanes.append(place)
    if not local:
        sectors = {(place + k) // _SECTOR for place in {*lanes} for k in range(0, bytes_, 4)}
        lines = {sector * _SECTOR // _LINE for sector in sectors}
        return max(float(len(lines)), len(sectors) * _SECTOR / _LINE)
    at_once = max(1, _SERVED // bytes_)
    # Of wide accesses twice as many lanes are served at once where all have what a neighbour has.
    if bytes_ > _BANK_BYTES and any(_pairs(lanes, other) for other in (1, 2)):
        at_once *= 2
    turns = 0
    for first in range(0, active, at_once):
        places = {*lanes[first : first + at_once]}
        words = {(p + k) // _BANK_BYTES for p in places for k in range(0, bytes_, _BANK_BYTES)}
        turns += max(Counter(word % _BANKS for word in words).values())
    return float(turns)


def _pairs(lanes: Sequence[int], other: int) -> bool:
    """Whether each lane is at the place of lane ``k ^ other``, which a GPU of NVIDIA makes use of
    ("Unexpected shared memory bank conflict", NVIDIA's developer forum, thread 77228)."""
    return all(place == lanes[k ^ other] for k, place in enumerate(lanes) if k ^ other < len(lanes))
