"""OpenCL C text of a scheduled kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mapper.ast_model.index_expr import Expr, const, floor_div, modulo, symbol
from mapper.ast_model.loop_nest import Buffer, Declare, Store, loads, substitute_store
from mapper.ast_model.types import FLOAT_BYTES, Memory
from mapper.ast_model.views import LANE
from mapper.kernel_gen.barriers import Barrier
from mapper.kernel_gen.c_expr import (
    VECTOR_WIDTHS,
    ValuePrinter,
    buffer_name,
    c_condition,
    c_index,
    c_name,
    comment_text,
    global_name,
    kernel_name,
    lane_name,
    never_holds,
)
from mapper.kernel_gen.prefetch import with_prefetch
from mapper.kernel_gen.registers import into_registers
from mapper.kernel_gen.scheduled import (
    Ahead,
    Run,
    Scheduled,
    ScheduledKernel,
    element_count,
    trip_count,
)
from mapper.kernel_gen.vector_lanes import into_vectors
from mapper.schedule import Level

_THREAD_IDS = {
    Level.LOCAL: "get_local_id",
    Level.WORK_GROUP: "get_group_id",
    Level.GLOBAL: "get_global_id",
}
_FENCES = {Memory.LOCAL: "CLK_LOCAL_MEM_FENCE", Memory.GLOBAL: "CLK_GLOBAL_MEM_FENCE"}


def print_kernel(kernel: ScheduledKernel, header: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Source text of one kernel and the names of its global buffers in argument order.

    ``header`` lines go into a comment above the kernel.
    """
    body = with_prefetch(kernel.body, lambda run: threads_of(kernel, run))
    body, registers = into_registers(into_vectors(body))
    printer = _Printer(kernel, body, registers)
    loaded = _loaded_globals(kernel.body)
    arguments = _global_buffers(kernel, loaded)
    printer.statements(body)
    lines = (*_local_arrays(kernel, printer.values.aligned), *printer.lines)
    written = {b.name for b in kernel.global_intermediates} | {kernel.output.name}
    parameters = ",\n    ".join(
        f"__global {_pointer(name in loaded, name in written)}{global_name(name)}"
        for name in arguments
    )
    sizes = ", ".join(str(size) for size in kernel.local_size)
    comment = "".join(f" * {line}\n" for line in header)
    text = (
        f"/*\n{comment} */\n"
        f"__attribute__((reqd_work_group_size({sizes})))\n"
        f"__kernel void {kernel_name(kernel.name)}(\n    {parameters})\n{{\n"
    )
    return text + "\n".join(lines) + "\n}\n", arguments


def _local_arrays(kernel: ScheduledKernel, aligned: Mapping[str, int]) -> Iterator[str]:
    """Declarations of the local buffers, the most aligned first, so that no gap is left."""
    for buffer in sorted(kernel.local_buffers, key=lambda b: -aligned.get(b.name, 1)):
        width = aligned.get(buffer.name, 1)
        alignment = f" __attribute__((aligned({width * FLOAT_BYTES})))" if width > 1 else ""
        yield f"    __local float {buffer_name(buffer)}[{element_count(buffer)}]{alignment};"


def _pointer(loaded: bool, written: bool) -> str:
    """The type of a parameter.

    No two parameters are the same buffer, so ``restrict`` would be right for all. But PoCL
    3.0-rc2 (LLVM 14) moves a load through such a pointer before the store that it reads from,
    if both stand in loops around which another repeats: so not where a kernel does both.
    """
    if not written:
        return "const float *restrict "
    return "float *" if loaded else "float *restrict "


def _loaded_globals(body: tuple[Scheduled, ...]) -> dict[str, None]:
    """Names of the global buffers that are read, in the order of their first uses."""
    found: dict[str, None] = {}
    for statement in body:
        if isinstance(statement, Run):
            found.update(_loaded_globals(statement.body))
        elif isinstance(statement, Store):
            for load in loads(statement.value):
                if load.buffer.memory is Memory.GLOBAL:
                    found[load.buffer.name] = None
    return found


def _global_buffers(kernel: ScheduledKernel, loaded: Iterable[str]) -> tuple[str, ...]:
    """Global buffers that the kernel touches, inputs first, then its own, then the result."""
    own = {b.name for b in kernel.global_intermediates} | {kernel.output.name}
    return (
        *sorted(name for name in loaded if name not in own),
        *(b.name for b in kernel.global_intermediates),
        kernel.output.name,
    )


class _Printer:
    """Collects the lines of one kernel's body."""

    def __init__(
        self, kernel: ScheduledKernel, body: tuple[Scheduled, ...], registers: frozenset[str]
    ) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.registers = registers
        self.vector_registers = _vector_registers(body, registers)
        self.values = ValuePrinter(registers, self.vector_registers, self.line)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def statements(self, body: tuple[Scheduled, ...]) -> None:
        for statement in body:
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
        self.line(f"const int {name} = {c_name(ahead.variable.name)} + 1;")
        self.line(f"if ({name} < {ahead.trip}) {{ /* loads for the next iteration */")
        self.depth += 1
        self.statements(ahead.body)
        self.depth -= 1
        self.line("}")

    def barrier(self, barrier: Barrier) -> None:
        for reason in barrier.reasons:
            self.line(f"/* barrier: {comment_text(reason)} */")
        fences = " | ".join(_FENCES[m] for m in sorted(barrier.memories))
        self.line(f"barrier({fences});")

    def declare(self, buffer: Buffer) -> None:
        name = buffer_name(buffer)
        if buffer.name not in self.registers:
            suffix = f"[{element_count(buffer)}]" if buffer.dimensions else ""
            self.line(f"float {name}{suffix};")
            return
        dimensions = buffer.dimensions
        type_ = "float"
        width = self.vector_registers.get(buffer.name)
        if width is not None:
            dimensions = dimensions[:-1]
            type_ = f"float{width}"
        names = [name]
        for length in dimensions:
            count = length.constant or 0
            names = [f"{stem}_{k}" for stem in names for k in range(count)]
        for start in range(0, len(names), 8):
            self.line(f"{type_} {', '.join(names[start : start + 8])};")

    # -- loops ---------------------------------------------------------------------------

    def run(self, run: Run) -> None:
        if not run.loops:
            self.block(run.body)
            return
        ids = [loop.map_id for loop in run.loops if loop.map_id is not None]
        label = ", ".join(f"map {map_id}" for map_id in ids) or "reduce"
        if run.code is not None:
            label += f": {run.code.short_name}"
        label = comment_text(label)
        variable = self.loop_variable(run)
        if run.trip == 1 and self.threads(run) == 1:
            self.line(f"{{ /* {label}, one iteration */")
            self.bind(run, const(0), variable)
        elif run.is_serial:
            if run.loops[0].unroll is not None and run.loops[0].unroll.constant:
                self.line("#pragma unroll")
            self.line(
                f"for (int {variable} = 0; {variable} < {run.trip}; ++{variable}) {{ /* {label} */"
            )
            self.bind(run, None, variable)
        else:
            self.parallel_head(run, variable, label)
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

    def loop_variable(self, run: Run) -> str:
        return c_name(_counter(run))

    def bind(self, run: Run, value: Expr | None, variable: str) -> None:
        """Declare the loop variables of a fused run (or of one that runs once)."""
        if len(run.loops) == 1 and value is None:
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
                self.line(f"const int {name} = 0;")
                continue
            self.values.digits[loop.variable.name] = modulo(floor_div(counter, below), trip)
            text = variable if below == 1 else f"{variable}/{below}"
            if position > 0 and run.trip != trip * below:
                text = f"({text})%{trip}" if below > 1 else f"{text}%{trip}"
            self.line(f"const int {name} = {text};")
        self.depth -= 1

    def threads(self, run: Run) -> int:
        return threads_of(self.kernel, run)

    def parallel_head(self, run: Run, variable: str, label: str) -> None:
        code = run.code
        assert code is not None and code.dimension is not None
        threads = self.threads(run)
        source = f"{_THREAD_IDS[code.level]}({code.dimension})"
        if run.round is not None and run.trip > threads:
            offset = c_index(run.round * threads)
            place = f"(int){source}" if offset == "0" else f"(int){source} + {offset}"
            last = run.round.constant
            ragged = run.trip % threads != 0 and (last is None or (last + 1) * threads > run.trip)
            self.line(f"{f'if ({place} < {run.trip}) ' if ragged else ''}{{ /* {label} */")
            self.depth += 1
            self.line(f"const int {variable} = {place};")
            self.depth -= 1
        elif run.trip == threads:
            # As many iterations as threads: no loop.
            self.line(f"{{ /* {label}, {run.trip} iterations, one each */")
            self.depth += 1
            self.line(f"const int {variable} = {source};")
            self.depth -= 1
        elif run.trip < threads:
            self.line(f"if ((int){source} < {run.trip}) {{ /* {label}, of {threads} */")
            self.depth += 1
            self.line(f"const int {variable} = {source};")
            self.depth -= 1
        else:
            # A constant number of rounds, so that a compiler can unroll them.
            rounds = -(-run.trip // threads)
            n = f"n_{variable}"
            self.line(f"for (int {n} = 0; {n} < {rounds}; ++{n}) {{ /* {label} */")
            self.depth += 1
            self.line(f"const int {variable} = {source} + {n}*{threads};")
            if run.trip % threads:
                self.line(f"if ({variable} >= {run.trip}) continue;")
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
        conditions = [c for c in (c_condition(guard) for guard in store.guards) if c is not None]
        if conditions:
            self.line(f"if ({' && '.join(conditions)}) {{")
            self.depth += 1
        if width is None:
            value = self.values.scalar(store.value)
            self.line(f"{self.values.element(store.buffer, store.indices)} = {value};")
        else:
            self.vector_store(store, width)
        if conditions:
            self.depth -= 1
            self.line("}")

    def vector_store(self, store: Store, width: int) -> None:
        value = self.values.vector(store.value, width)
        if store.buffer.name in self.registers:
            if store.buffer.name in self.vector_registers:
                self.line(f"{self.values.register(store.buffer, store.indices)} = {value};")
                return
            self.scatter(store, value, width)
            return
        place = self.values.vector_place(store.buffer, store.indices, width)
        if place is not None:
            self.line(f"{place} = {value};")
            return
        base = self.values.lane_base(store.buffer, store.indices, width)
        if base is None:
            self.scatter(store, value, width)
            return
        name = buffer_name(store.buffer)
        self.line(f"vstore{width}({value}, 0, {name} + ({c_index(base)}));")

    def scatter(self, store: Store, value: str, width: int) -> None:
        self.values.counter += 1
        name = f"lanes_{self.values.counter}"
        self.line(f"const float{width} {name} = {value};")
        for lane in range(width):
            indices = tuple(i.substitute({LANE: const(lane)}) for i in store.indices)
            target = self.values.element(store.buffer, indices)
            self.line(f"{target} = {name}.{lane_name(lane)};")


def threads_of(kernel: ScheduledKernel, run: Run) -> int:
    """Threads (or work-groups) that share the iterations of a run."""
    code = run.code
    if code is None or code.dimension is None:
        return 1
    d = code.dimension
    if code.level is Level.LOCAL:
        return kernel.local_size[d]
    if code.level is Level.WORK_GROUP:
        return kernel.global_size[d] // kernel.local_size[d]
    return kernel.global_size[d]


def _counter(run: Run) -> str:
    """The name of the variable that counts a run's iterations."""
    if len(run.loops) == 1:
        return run.loops[0].variable.name
    return f"f_{run.loops[0].map_id}"


def _vector_registers(body: tuple[Scheduled, ...], registers: frozenset[str]) -> dict[str, int]:
    """Register arrays whose accesses are whole vectors or single lanes of them, with the width."""
    widths: dict[str, int] = {}
    mixed: set[str] = set()

    def note(buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if buffer.name not in registers:
            return
        width = buffer.dimensions[-1].constant if buffer.dimensions else None
        if indices and str(indices[-1]) == LANE and width in VECTOR_WIDTHS:
            assert width is not None
            widths[buffer.name] = width
        elif not indices or indices[-1].constant is None:
            mixed.add(buffer.name)

    def visit(statements: tuple[Scheduled, ...]) -> None:
        for statement in statements:
            if isinstance(statement, Run | Ahead):
                visit(statement.body)
            elif isinstance(statement, Store):
                note(statement.buffer, statement.indices)
                for load in loads(statement.value):
                    note(load.buffer, load.indices)

    visit(body)
    return {name: width for name, width in widths.items() if name not in mixed}
