"""Comments and constants at the top of a kernel's text: what it is and what it takes.

What is said of the mapping are its facts: nothing here has been measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.loop_nest import Buffer, Declare, Loop, LoopKernel, LoopProgram, Statement
from mapper.ast_model.nodes import MapId, Program
from mapper.ast_model.types import Memory
from mapper.host_plan import HostPlan, Launch, PlannedBuffer
from mapper.kernel_gen.barriers import Barrier
from mapper.kernel_gen.identifiers import INDEX, comment_text, constant_name
from mapper.kernel_gen.printer import PrintedKernel
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled, ScheduledKernel, element_count
from mapper.layer_spec import Activation, LayerSpec
from mapper.schedule import ScheduleCode

#: A trip count that is longer in words than this reads better as a number.
_LONGEST_TRIP = 40
_WIDTH = 96


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a program comes from, for the text above its kernels.

    ``symbolic`` are its loops with sizes and tuning parameters as names; ``checked`` says in
    words what was found to hold of the mapping before (empty: nobody looked).
    """

    layer: LayerSpec | None = None
    variant: str = ""
    description: str = ""
    symbolic: LoopProgram | None = None
    checked: tuple[str, ...] = ()


NO_ORIGIN = Origin()


def layer_text(layer: LayerSpec) -> str:
    """A layer in a line: sizes, then whatever is not usual."""
    parts = [
        f"{layer.name}: {layer.channels} channels of {layer.height} x {layer.width}",
        f"{layer.filters} filters of {layer.kernel_height} x {layer.kernel_width}",
        f"result {layer.output_height} x {layer.output_width}",
    ]
    parts += [
        text
        for usual, text in (
            (layer.batch == 1, f"batch {layer.batch}"),
            (layer.groups == 1, f"{layer.groups} groups"),
            (
                layer.stride_y == layer.stride_x == 1,
                f"stride {layer.stride_y} x {layer.stride_x}",
            ),
            (
                layer.dilation_y == layer.dilation_x == 1,
                f"dilation {layer.dilation_y} x {layer.dilation_x}",
            ),
            (
                not (layer.pad_top or layer.pad_left or layer.pad_bottom or layer.pad_right),
                f"padding {layer.pad_top} top, {layer.pad_left} left, {layer.pad_bottom} bottom, "
                f"{layer.pad_right} right",
            ),
            (not layer.bias, "bias"),
            (layer.activation is Activation.NONE, str(layer.activation)),
        )
        if not usual
    ]
    return ", ".join([*parts, str(layer.layout), str(layer.dtype)])


def named_trips(symbolic: LoopProgram | None) -> dict[str, dict[str, Expr]]:
    """By kernel and loop variable: the trip count in sizes and parameters, where it is short."""
    found: dict[str, dict[str, Expr]] = {}
    for kernel in () if symbolic is None else symbolic.kernels:
        found[kernel.name] = {
            loop.variable.name: loop.trip
            for loop in _loops(kernel.statements)
            if loop.trip.constant is None and len(str(loop.trip)) <= _LONGEST_TRIP
        }
    return found


def _loops(statements: tuple[Statement, ...]) -> Iterator[Loop]:
    for statement in statements:
        if isinstance(statement, Loop):
            yield statement
            yield from _loops(statement.body)


#: A sum of ints that stays an int has to be extended where it becomes an address of 64 bits, which
#: takes a processor as many instructions as the arithmetic it feeds (docs/decisions/0017).
INDEX_TYPE = f"""/* As wide as a processor's addresses, so that no load has to extend an index. */
#if defined(__x86_64__) || defined(__aarch64__)
typedef long {INDEX};
#else
typedef int {INDEX};
#endif
"""


def constants(program: Program, parameters: Mapping[str, int]) -> str:
    """Sizes and tuning parameters as C constants; empty if there are none."""
    text = ""
    for what, values in (("sizes", program.sizes), ("tuning parameters", parameters.items())):
        pairs = [f"{constant_name(name)} = {value}" for name, value in values]
        if pairs:
            text += f"enum {{ /* {what} */\n"
            text += "".join(f"    {line}\n" for line in _filled(pairs, _WIDTH - 4))
            text += "};\n"
    return text


def _filled(items: list[str], width: int) -> Iterator[str]:
    """Lines of items with commas between."""
    line = ""
    for position, item in enumerate(items):
        piece = item + ("," if position + 1 < len(items) else "")
        if line and len(line) + 1 + len(piece) > width:
            yield line
            line = ""
        line = f"{line} {piece}" if line else piece
    yield line


def comment(lines: Iterator[str]) -> str:
    """A C comment of these lines."""
    return "/*\n" + "".join(f" * {comment_text(line)}".rstrip() + "\n" for line in lines) + " */\n"


def plan_lines(program: Program, origin: Origin, plan: HostPlan) -> Iterator[str]:
    """What is said once, above all kernels."""
    yield f"{program.name}, generated by nestmap"
    if origin.layer is not None:
        yield from _wrapped(f"layer: {layer_text(origin.layer)}")
    if origin.variant:
        yield from _wrapped(f"variant: {origin.variant}: {origin.description}")
    for line in origin.checked:
        yield from _wrapped(f"checked: {line}")
    yield f"global memory: {plan.memory_bytes} bytes, {plan.extra_bytes} of them intermediate"
    yield from _table([_buffer_row(buffer) for buffer in plan.buffers])
    yield f"launches: {len(plan.launches)}"
    yield from _table(
        [_launch_row(number, launch) for number, launch in enumerate(plan.launches, start=1)]
    )


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, subsequent_indent="  ")


def _buffer_row(buffer: PlannedBuffer) -> tuple[str, ...]:
    shape = "".join(f"[{length}]" for length in buffer.shape)
    kind = f"{buffer.dtype.text} {shape}"
    return (buffer.name, buffer.role.value, kind, f"{buffer.bytes} bytes")


def _launch_row(number: int, launch: Launch) -> tuple[str, ...]:
    once = ", once: it reads constants only" if launch.prepared else ""
    groups = (size // own for size, own in zip(launch.global_size, launch.local_size, strict=True))
    return (
        str(number),
        launch.kernel,
        f"{_sizes(launch.global_size)} work-items in {_sizes(groups)} groups of "
        f"{_sizes(launch.local_size)}{once}",
    )


def _sizes(sizes: Iterator[int] | tuple[int, int, int]) -> str:
    return " x ".join(map(str, sizes))


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


def kernel_lines(
    kernel: LoopKernel,
    scheduled: ScheduledKernel,
    printed: PrintedKernel,
    codes: Mapping[MapId, ScheduleCode],
    trips: Mapping[str, Expr],
    launch: Launch,
) -> Iterator[str]:
    """What is said above a kernel."""
    yield f"kernel {kernel.name}, in groups of {_sizes(scheduled.local_size)} work-items"
    rows = list(_map_rows(kernel.statements, codes, trips, 0))
    if rows:
        yield "mapping: iterations, schedule and the memory that is written, of each map and reduce"
        yield from _wrapped(_LEGEND)
        yield from _table(rows)
    names = printed.names
    shared = [f"{names.of(b)} {_bytes(b)}" for b in scheduled.local_buffers]
    if shared:
        yield f"local memory: {launch.local_bytes} bytes a work-group"
        yield from (f"  {line}" for line in _filled(shared, _WIDTH - 8))
    own = private_buffers(scheduled.body)
    if own:
        yield f"private memory: {launch.private_bytes} bytes a work-item at once, at most"
        for title, kept in (("variables", True), ("arrays", False)):
            texts = [
                f"{names.of(b)} {_bytes(b)}" for b in own if (b.name in printed.registers) is kept
            ]
            if texts:
                lines = _filled(texts, _WIDTH - 12)
                yield f"  {title}: {next(lines)}"
                yield from (f"    {line}" for line in lines)
    barriers = list(barriers_of(scheduled.body))
    yield f"barriers: {len(barriers) or 'none'}"
    reasons = (reason for barrier in barriers for reason in barrier.reasons)
    yield from (f"  {text}" for text in dict.fromkeys(r.text(names.of(r.buffer)) for r in reasons))


def _bytes(buffer: Buffer) -> str:
    return str(buffer.element_bytes * element_count(buffer))


def _map_rows(
    statements: tuple[Statement, ...],
    codes: Mapping[MapId, ScheduleCode],
    trips: Mapping[str, Expr],
    depth: int,
) -> Iterator[tuple[str, ...]]:
    for statement in statements:
        if not isinstance(statement, Loop):
            continue
        name = statement.variable.name
        number = str(statement.trip)
        trip = f"{trips[name]} = {number}" if name in trips else number
        indent = "  " * depth
        if statement.map_id is None:
            yield (f"{indent}reduce {name}", trip, "", "")
        else:
            code = codes[statement.map_id]
            yield (f"{indent}{statement.map_id}", trip, code.short_name, statement.writes.value)
        yield from _map_rows(statement.body, codes, trips, depth + 1)


_LEGEND = (
    "(S sequential, F fused with the map around it, V vectors; dimension 0 to 2 of: "
    "L work-items, W work-groups, G all work-items)"
)


def private_buffers(body: tuple[Scheduled, ...]) -> tuple[Buffer, ...]:
    """The private buffers that are declared in a body, each once."""
    return tuple(dict.fromkeys(_private(body)))


def _private(body: tuple[Scheduled, ...]) -> Iterator[Buffer]:
    for statement in body:
        if isinstance(statement, Declare) and statement.buffer.memory is Memory.PRIVATE:
            yield statement.buffer
        elif isinstance(statement, Run | Ahead):
            yield from _private(statement.body)


def barriers_of(body: tuple[Scheduled, ...]) -> Iterator[Barrier]:
    """The barriers of a body in the order of its text."""
    for statement in body:
        if isinstance(statement, Barrier):
            yield statement
        elif isinstance(statement, Run | Ahead):
            yield from barriers_of(statement.body)
