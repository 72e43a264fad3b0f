"""OpenCL C text of a scheduled kernel."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mapper.ast_model.index_expr import (
    Expr,
    Symbol,
    const,
    floor_div,
    modulo,
    symbol,
    walk_atoms,
)
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Guard,
    Store,
    Value,
    loads,
    substitute_store,
)
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.kernel_gen.barriers import Barrier
from mapper.kernel_gen.buffer_names import BufferNames
from mapper.kernel_gen.c_expr import c_condition, c_index, never_holds, rounds_down
from mapper.kernel_gen.c_values import VECTOR_WIDTHS, ValuePrinter, c_type, stored_as_half
from mapper.kernel_gen.identifiers import (
    INDEX,
    c_name,
    comment_text,
    constant_name,
    kernel_name,
    lane_name,
)
from mapper.kernel_gen.joined_stores import joined, unrounded
from mapper.kernel_gen.own_functions import OwnFunction
from mapper.kernel_gen.registers import into_registers
from mapper.kernel_gen.scheduled import (
    Ahead,
    Run,
    Scheduled,
    ScheduledKernel,
    element_count,
    stores_in,
    threads_of,
    trip_count,
)
from mapper.kernel_gen.split_borders import split_borders
from mapper.kernel_gen.vector_copies import copies_in_vectors
from mapper.kernel_gen.vector_lanes import into_vectors, vector_arrays, vector_registers
from mapper.schedule import Level

_THREAD_IDS = {
    Level.LOCAL: "get_local_id",
    Level.WORK_GROUP: "get_group_id",
    Level.GLOBAL: "get_global_id",
}
_FENCES = {Memory.LOCAL: "CLK_LOCAL_MEM_FENCE", Memory.GLOBAL: "CLK_GLOBAL_MEM_FENCE"}
#: Bytes that a device loads at once, where they are neighbours.
_LOADED_AS_ONE = 16


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """The text of a kernel, and what it came to.

    ``arguments`` are names of its global buffers in order. Private buffers in ``registers``
    are variables, the others arrays. ``functions``: what it calls beside OpenCL's own.
    """

    name: str
    text: str
    arguments: tuple[str, ...]
    names: BufferNames
    registers: frozenset[str]
    functions: frozenset[OwnFunction]


def print_kernel(kernel: ScheduledKernel, trips: Mapping[str, Expr]) -> PrintedKernel:
    """The text of one kernel. ``trips``: trip counts in constants, by loop variable."""
    names = BufferNames(
        kernel.body, (*kernel.local_buffers, *kernel.global_intermediates, kernel.output)
    )
    body, registers = into_registers(into_vectors(split_borders(kernel.body)))
    body = copies_in_vectors(body, registers)
    printer = _Printer(kernel, body, registers, names, trips)
    loaded = _loaded_globals(kernel.body)
    arguments = _global_buffers(kernel, loaded)
    printer.statements(body)
    lines = (*_local_arrays(kernel, names, printer.values.aligned), *printer.lines)
    written = {b.name for b in kernel.global_intermediates} | {kernel.output.name}
    parameters = ",\n    ".join(
        f"__global {_pointer(buffer, buffer.name in loaded, buffer.name in written)}"
        f"{names.of(buffer)}"
        for buffer in arguments
    )
    sizes = ", ".join(str(size) for size in kernel.local_size)
    text = (
        f"__attribute__((reqd_work_group_size({sizes})))\n"
        f"__kernel void {kernel_name(kernel.name)}(\n    {parameters})\n{{\n"
    )
    return PrintedKernel(
        kernel_name(kernel.name),
        text + "\n".join(lines) + "\n}\n",
        tuple(buffer.name for buffer in arguments),
        names,
        registers,
        frozenset(printer.values.functions),
    )


def _local_arrays(
    kernel: ScheduledKernel, names: BufferNames, aligned: Mapping[str, int]
) -> Iterator[str]:
    """Declarations of the local buffers, the most aligned first, so that no gap is left.

    OpenCL C without cl_khr_fp16 has pointers to half, but no arrays of it.
    """

    def alignment(buffer: Buffer) -> int:
        # Where a compiler knows that neighbours lie in one vector, it loads them as one.
        whole = element_count(buffer) * buffer.element_bytes % _LOADED_AS_ONE == 0
        vector = aligned.get(buffer.name, 1) * buffer.element_bytes
        return max(vector, _LOADED_AS_ONE) if whole else vector

    for buffer in sorted(kernel.local_buffers, key=lambda b: -alignment(b)):
        least = alignment(buffer)
        rule = f" __attribute__((aligned({least})))" if least > buffer.element_bytes else ""
        name, count = names.of(buffer), element_count(buffer)
        if stored_as_half(buffer):
            yield f"    __local ushort bits_{name}[{count}]{rule};"
            yield f"    __local half *const {name} = (__local half *)bits_{name};"
        else:
            yield f"    __local {buffer.dtype.text} {name}[{count}]{rule};"


def _pointer(buffer: Buffer, loaded: bool, written: bool) -> str:
    """The type of a parameter.

    No two parameters are the same buffer, so ``restrict`` would be right for all. But PoCL
    3.0-rc2 (LLVM 14) moves a load through such a pointer before the store that it reads from,
    if both stand in loops around which another repeats: so not where a kernel does both.
    """
    element = buffer.dtype.text
    if not written:
        return f"const {element} *restrict "
    return f"{element} *" if loaded else f"{element} *restrict "


def _loaded_globals(body: tuple[Scheduled, ...]) -> dict[str, Buffer]:
    """The global buffers that are read, by name, in the order of their first uses."""
    return {
        load.buffer.name: load.buffer
        for store in stores_in(body)
        for load in loads(store.value)
        if load.buffer.memory is Memory.GLOBAL
    }


def _global_buffers(kernel: ScheduledKernel, loaded: Mapping[str, Buffer]) -> tuple[Buffer, ...]:
    """Global buffers that the kernel touches, inputs first, then its own, then the result."""
    own = {b.name for b in kernel.global_intermediates} | {kernel.output.name}
    return (
        *(loaded[name] for name in sorted(loaded) if name not in own),
        *kernel.global_intermediates,
        kernel.output,
    )


class _Printer:
    """Collects the lines of one kernel's body."""

    def __init__(
        self,
        kernel: ScheduledKernel,
        body: tuple[Scheduled, ...],
        registers: frozenset[str],
        names: BufferNames,
        trips: Mapping[str, Expr],
    ) -> None:
        self.kernel = kernel
        self.names = names
        self.trips = trips
        self.lines: list[str] = []
        self.depth = 1
        self.registers = registers
        self.vector_registers = vector_registers(body, registers)
        self.vector_arrays = vector_arrays(body, registers)
        self.values = ValuePrinter(
            names, registers, self.vector_registers, self.vector_arrays, self.line
        )

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def statements(self, body: tuple[Scheduled, ...]) -> None:
        position = 0
        while position < len(body):
            ahead = body[position : position + VECTOR_WIDTHS[-1]]
            count, whole, guards = joined(ahead, self.vector_registers)
            if count > 1:
                with self.where(guards):
                    self.store_row(ahead[:count], whole)
            else:
                self.statement(body[position])
            position += count

    def statement(self, statement: Scheduled) -> None:
        match statement:
            case Declare():
                self.declare(statement.buffer)
            case Barrier():
                self.barrier(statement)
            case Store():
                self.store(statement)
            case Run():
                self.run(statement)
            case Ahead():
                self.ahead(statement)

    def ahead(self, ahead: Ahead) -> None:
        name = c_name(ahead.following.name)
        self.line(f"const {INDEX} {name} = {c_name(ahead.variable.name)} + 1;")
        self.line(f"if ({name} < {ahead.trip}) {{ /* loads for the next iteration */")
        self.depth += 1
        self.statements(ahead.body)
        self.depth -= 1
        self.line("}")

    def barrier(self, barrier: Barrier) -> None:
        for reason in barrier.reasons:
            text = reason.text(self.names.of(reason.buffer))
            self.line(f"/* barrier: {comment_text(text)} */")
        fences = " | ".join(_FENCES[m] for m in sorted(barrier.memories))
        self.line(f"barrier({fences});")

    def declare(self, buffer: Buffer) -> None:
        name = self.names.of(buffer)
        if buffer.name not in self.registers:
            lanes = self.vector_arrays.get(buffer.name, 1)
            type_ = c_type(buffer.dtype, lanes)
            suffix = f"[{element_count(buffer) // lanes}]" if buffer.dimensions else ""
            self.line(f"{type_} {name}{suffix};")
            return
        dimensions = buffer.dimensions
        width = self.vector_registers.get(buffer.name)
        if width is not None:
            dimensions = dimensions[:-1]
        type_ = c_type(buffer.dtype, width or 1)
        names = [name]
        for length in dimensions:
            count = length.constant or 0
            names = [f"{stem}_{k}" for stem in names for k in range(count)]
        for start in range(0, len(names), 8):
            self.line(f"{type_} {', '.join(names[start : start + 8])};")

    # -- loops ---------------------------------------------------------------------------

    def run(self, run: Run, rounds: int | None = None) -> None:
        """A run, or only the first ``rounds`` of a parallel one."""
        if not run.loops:
            self.block(run.body)
            return
        threads = self.threads(run)
        if rounds is None and run.round is None and run.trip % threads and _is_copy(run):
            # Loads of several rounds can be under way together; what is left comes after them.
            whole = run.trip // threads
            if whole:
                self.run(run, whole)
                self.run(replace(run, round=const(whole)))
                return
        ids = [loop.map_id for loop in run.loops if loop.map_id is not None]
        label = ", ".join(f"map {map_id}" for map_id in ids) or "reduce"
        if run.code is not None:
            label += f": {run.code.short_name}"
        if run.piece is not None:
            label += f", {run.loops[0].map_id} from {run.piece[0]} to {run.piece[1] - 1}"
        label = comment_text(label)
        variable = self.loop_variable(run)
        if run.trip == 1 and threads == 1:
            self.line(f"{{ /* {label}, one iteration */")
            self.bind(run, const(0), variable)
        elif run.is_serial:
            wanted = run.loops[0].unroll is not None and run.loops[0].unroll.constant
            # PoCL 3.0-rc2 (LLVM 14) loses what an unrolled loop stores in memory that work-items
            # share, and then loads.
            if wanted and not _loads_what_it_stores(run.body):
                self.line("#pragma unroll")
            trip = self.trip_text(run)
            self.line(
                f"for ({INDEX} {variable} = 0; {variable} < {trip}; ++{variable}) {{ /* {label} */"
            )
            self.bind(run, None, variable)
        else:
            self.parallel_head(run, variable, label, rounds)
        self.depth += 1
        self.statements(run.body)
        self.depth -= 1
        self.line("}")

    def block(self, body: tuple[Scheduled, ...]) -> None:
        self.line("{")
        self.depth += 1
        self.statements(body)
        self.depth -= 1
        self.line("}")

    def trip_text(self, run: Run) -> str:
        """The trip count in sizes and parameters where it is said so, else as a number."""
        if len(run.loops) == 1 and run.piece is None and run.loops[0].variable.extent == run.trip:
            width = None if run.code is None else run.code.vector_width
            named = self.trips.get(run.loops[0].variable.name)
            if named is not None and width is None and _is_plain(named):
                return c_index(in_constants(named))
        return str(run.trip)

    def loop_variable(self, run: Run) -> str:
        return c_name(_counter(run))

    def bind(self, run: Run, value: Expr | None, variable: str) -> None:
        """Declare the loop variables of a fused run (or of one that runs once)."""
        if len(run.loops) == 1 and value is None:
            # Another piece of the same loop may have been a single iteration.
            self.values.digits.pop(run.loops[0].variable.name, None)
            return
        below = run.trip
        counter = symbol(_counter(run), run.trip)
        self.depth += 1
        for position, loop in enumerate(run.loops):
            trip = trip_count(loop)
            name = c_name(loop.variable.name)
            below //= trip
            if value is not None or trip == 1:
                self.values.digits[loop.variable.name] = const(0)
                self.line(f"const {INDEX} {name} = 0;")
                continue
            self.values.digits[loop.variable.name] = modulo(floor_div(counter, below), trip)
            text = variable if below == 1 else f"{variable}/{below}"
            if position > 0 and run.trip != trip * below:
                text = f"({text})%{trip}" if below > 1 else f"{text}%{trip}"
            self.line(f"const {INDEX} {name} = {text};")
        self.depth -= 1

    def threads(self, run: Run) -> int:
        return threads_of(self.kernel, run)

    def parallel_head(self, run: Run, variable: str, label: str, rounds: int | None) -> None:
        """The start of a parallel run, or of so many of its rounds, in which nobody is idle."""
        code = run.code
        assert code is not None and code.dimension is not None
        threads = self.threads(run)
        source = f"{_THREAD_IDS[code.level]}({code.dimension})"
        if run.round is not None and run.trip > threads:
            offset = c_index(run.round * threads)
            place = f"({INDEX}){source}" if offset == "0" else f"({INDEX}){source} + {offset}"
            last = run.round.constant
            ragged = run.trip % threads != 0 and (last is None or (last + 1) * threads > run.trip)
            self.line(f"{f'if ({place} < {run.trip}) ' if ragged else ''}{{ /* {label} */")
            self.depth += 1
            self.line(f"const {INDEX} {variable} = {place};")
            self.depth -= 1
        elif run.trip == threads:
            # As many iterations as threads: no loop.
            self.line(f"{{ /* {label}, {run.trip} iterations, one each */")
            self.depth += 1
            self.line(f"const {INDEX} {variable} = {source};")
            self.depth -= 1
        elif run.trip < threads:
            self.line(f"if (({INDEX}){source} < {run.trip}) {{ /* {label}, of {threads} */")
            self.depth += 1
            self.line(f"const {INDEX} {variable} = {source};")
            self.depth -= 1
        elif run.trip % threads and rounds is None:
            # PoCL 3.0-rc2 (LLVM 14) unrolls a constant number of rounds, of which the last asks
            # whether there is anything left, into stores that none of its work-items may do.
            self.line(
                f"for ({INDEX} {variable} = {source}; {variable} < {run.trip}; "
                f"{variable} += {threads}) {{ /* {label} */"
            )
        else:
            # A constant number of rounds, so that a compiler can unroll them.
            rounds = run.trip // threads if rounds is None else rounds
            n = f"n_{variable}"
            self.line(f"for ({INDEX} {n} = 0; {n} < {rounds}; ++{n}) {{ /* {label} */")
            self.depth += 1
            self.line(f"const {INDEX} {variable} = {source} + {n}*{threads};")
            self.depth -= 1
        self.bind(run, None, variable)

    # -- stores --------------------------------------------------------------------------

    def store(self, store: Store) -> None:
        width = None
        if store.lane is not None:
            assert store.lane.extent is not None
            width = store.lane.extent.constant
        by_lane = width is not None and (
            width not in VECTOR_WIDTHS or any(LANE in g.index.names() for g in store.guards)
        )
        if by_lane:
            for lane in range(width or 0):
                self.store(replace(substitute_store(store, {LANE: const(lane)}), lane=None))
            return
        if any(never_holds(guard) for guard in store.guards):
            return
        with self.where(store.guards):
            if width is None:
                value = self.values.scalar(unrounded(store))
                self.line(self.values.stored(store.buffer, store.indices, value))
            else:
                self.vector_store(store, width)

    @contextmanager
    def where(self, guards: Sequence[Guard]) -> Generator[None]:
        """What is printed within is done where all of these hold."""
        conditions = [c for c in (c_condition(guard) for guard in guards) if c is not None]
        if conditions:
            self.line(f"if ({' && '.join(conditions)}) {{")
            self.depth += 1
        yield
        if conditions:
            self.depth -= 1
            self.line("}")

    def store_row(self, row: tuple[Scheduled, ...], whole: Value | None) -> None:
        """Stores to neighbours, as one of a vector; ``whole`` has what they store in its lanes."""
        stores = [statement for statement in row if isinstance(statement, Store)]
        width, first = len(stores), stores[0]
        if whole is None:
            scalars = [self.values.scalar(unrounded(store)) for store in stores]
            vector = f"({c_type(first.buffer.dtype, width)})({', '.join(scalars)})"
        else:
            vector = self.values.vector(whole, width)
        lanes = (*first.indices[:-1], first.indices[-1] + symbol(LANE, width))
        statement = self.values.stored_vector(first.buffer, lanes, vector, width)
        assert statement is not None, "neighbours are"
        self.line(statement)

    def vector_store(self, store: Store, width: int) -> None:
        value = self.values.vector(unrounded(store), width)
        if store.buffer.name in self.vector_registers:
            self.line(f"{self.values.register(store.buffer, store.indices)} = {value};")
            return
        statement = None
        if store.buffer.name not in self.registers:
            statement = self.values.stored_vector(store.buffer, store.indices, value, width)
        if statement is None:
            self.scatter(store, value, width)
        else:
            self.line(statement)

    def scatter(self, store: Store, value: str, width: int) -> None:
        self.values.counter += 1
        name = f"lanes_{self.values.counter}"
        self.line(f"const {c_type(store.buffer.dtype, width)} {name} = {value};")
        for lane in range(width):
            indices = tuple(i.substitute({LANE: const(lane)}) for i in store.indices)
            self.line(self.values.stored(store.buffer, indices, f"{name}.{lane_name(lane)}"))


def _is_plain(trip: Expr) -> bool:
    """Whether a trip count in names says more than its number: without divisions mended for C."""
    return all(isinstance(atom, Symbol) or rounds_down(atom) for atom in walk_atoms(trip))


def in_constants(expression: Expr) -> Expr:
    """An expression with sizes and tuning parameters under their names in C."""
    return expression.substitute({name: symbol(constant_name(name)) for name in expression.names()})


def _is_copy(run: Run) -> bool:
    """Whether an iteration of a parallel run stores an element or a vector, and that is all."""
    if run.is_serial or len(run.body) != 1:
        return False
    (statement,) = run.body
    if isinstance(statement, Run) and statement.is_serial and statement.trip == 1:
        return len(statement.body) == 1 and isinstance(statement.body[0], Store)
    return isinstance(statement, Store)


def _loads_what_it_stores(body: tuple[Scheduled, ...]) -> bool:
    """Whether a buffer in local or global memory is both stored and loaded there."""
    shared = (s.buffer for s in stores_in(body) if s.buffer.memory is not Memory.PRIVATE)
    stored = {buffer.name for buffer in shared}
    return any(load.buffer.name in stored for s in stores_in(body) for load in loads(s.value))


def _counter(run: Run) -> str:
    """The name of the variable that counts a run's iterations."""
    if len(run.loops) == 1:
        return run.loops[0].variable.name
    return f"f_{run.loops[0].map_id}"
