"""Rules device-limits and no-idle-threads: what a device has and what a launch is worth.

"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), section
5.2, lists the hardware constraints; "Mapping Parallelism in a Functional IR through
Constraint Satisfaction" (CC'22), section 5.3, loses 62 % of its candidates to memory. Here
they are part of the model. Local intermediates count once for every iteration of the local
maps around them, and twice where a reduce writes two of them in turns; global intermediates
count for every iteration of the parallel maps around them.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.dependence import runs_from
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Loop,
    LoopKernel,
    LoopProgram,
    Store,
    walk,
)
from mapper.ast_model.nodes import MapId, Relation
from mapper.ast_model.spread import spread_dimension
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import (
    IntTerm,
    LocalSizeVariable,
    Predicate,
    add,
    all_of,
    any_of,
    compare,
    multiply,
    negate,
    select,
    term_of,
)
from mapper.constraint_rules.prefetch_stages import local_copies, stages
from mapper.constraint_rules.rule import NESTMAP, Constraint, Provenance
from mapper.constraint_rules.runs import map_id, owner_in, owns, run_trip
from mapper.device_profile import DeviceProfile
from mapper.schedule import DIMENSIONS, LOCAL_CODES, PARALLEL_CODES, Level, parallel_code

RULE_ID = "device-limits"
IDLE = "no-idle-threads"
# Kernels compute element indices in 32-bit signed integers.
MAX_ELEMENTS = 2**31 - 1
#: Private buffers of so many elements may become one variable an element.
MAX_REGISTERS = 256
# PoCL 3.0-rc2 keeps a variable that is alive across barriers five times for each work-item, and
# once more for each further loop or sum (docs/decisions/0016); eight leave room for three.
_STACKED_COPIES = 8


def _limit(
    name: str,
    subjects: tuple[MapId, ...],
    predicate: Predicate,
    buffer: str | None,
    sentence: str,
    remedy: str,
) -> Constraint:
    return Constraint(
        id=f"{RULE_ID}/{name}",
        rule=RULE_ID,
        subjects=subjects,
        predicate=predicate,
        provenance=Provenance(NESTMAP, "", "device limits"),
        buffer=buffer,
        sentence=sentence,
        remedy=remedy,
    )


def kernel_limits(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Constraint]:
    """Work-group size, local bytes and private bytes of one kernel; no idle threads."""
    sizes = [LocalSizeVariable(kernel.name, d) for d in DIMENSIONS]
    yield _limit(
        f"work-group-size/{kernel.name}",
        (),
        compare(Relation.LE, multiply(*sizes), device.max_work_group_size),
        None,
        f"{device.name} runs at most {device.max_work_group_size} work-items in a work-group",
        "choose smaller local sizes",
    )
    for d in DIMENSIONS:
        yield _limit(
            f"work-item-size/{kernel.name}/{d}",
            (),
            compare(Relation.LE, sizes[d], device.max_work_item_sizes[d]),
            None,
            f"{device.name} allows {device.max_work_item_sizes[d]} work-items in dimension {d}",
            "choose a smaller local size",
        )
    yield from _local_bytes(kernel, device)
    yield from _private_bytes(kernel, device)
    if device.kernel_private_bytes is not None:
        yield from _stacked_bytes(kernel, device.name, device.kernel_private_bytes)
    yield from _idle_threads(kernel)


def _local_bytes(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Constraint]:
    terms: list[IntTerm] = []
    subjects: dict[MapId, None] = {}
    names: list[str] = []
    for statement, loops in walk(kernel.statements):
        if isinstance(statement, Declare) and statement.buffer.memory is Memory.LOCAL:
            terms.append(expanded_bytes(statement.buffer, loops))
            names.append(statement.buffer.name)
            subjects.update((map_id(loop), None) for loop in loops if loop.map_id is not None)
    if terms:
        yield _limit(
            f"local-bytes/{kernel.name}",
            tuple(subjects),
            compare(Relation.LE, add(*terms), device.local_bytes),
            ", ".join(names),
            f"{device.name} has {device.local_bytes} bytes of local memory for a work-group",
            "choose smaller tiles, or fewer local maps around the buffer",
        )


def expanded_bytes(buffer: Buffer, loops: tuple[Loop, ...]) -> IntTerm:
    """Bytes of a local buffer or global intermediate with a copy for each thread that needs one."""
    wanted = LOCAL_CODES if buffer.memory is Memory.LOCAL else PARALLEL_CODES
    factors: list[IntTerm] = [term_of(length, {}) for length in buffer.dimensions]
    for position, loop in enumerate(loops):
        if loop.map_id is not None:
            owned = owner_in(loops, position, frozenset(int(c) for c in wanted))
            factors.append(select(owned, term_of(loop.trip, {}), 1))
    if buffer.memory is Memory.LOCAL:
        factors.append(local_copies(loops))
    return multiply(buffer.element_bytes, *factors)


def _private_bytes(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Constraint]:
    live: dict[tuple[int, ...], tuple[list[IntTerm], list[str], tuple[Loop, ...]]] = {}
    declared = private_buffers(kernel)
    ahead = {tuple(id(loop) for loop in loops): (term, loops) for loops, term in stages(kernel)}
    for loops in (*(loops for _, loops in declared), *(loops for _, loops in ahead.values())):
        key = tuple(id(loop) for loop in loops)
        alive = [
            buffer
            for buffer, scope in declared
            if tuple(id(loop) for loop in scope) == key[: len(scope)]
        ]
        terms = [
            multiply(buffer.element_bytes, *lengths_in_a_thread(kernel, buffer)) for buffer in alive
        ]
        # What a reduce around it has loaded ahead is alive as well.
        depths = range(1, len(key) + 1)
        terms += [ahead[key[:d]][0] for d in depths if key[:d] in ahead]
        live[key] = (terms, [buffer.name for buffer in alive], loops)
    for position, (terms, names, loops) in enumerate(live.values()):
        ids = [loop.map_id for loop in loops if loop.map_id is not None]
        yield _limit(
            f"private-bytes/{kernel.name}/{position}",
            tuple(ids[-1:]),
            compare(Relation.LE, add(*terms), device.private_bytes),
            ", ".join(names),
            f"{device.name} is given {device.private_bytes} bytes of private memory a work-item",
            "let a thread keep fewer filters, windows or channels",
        )


def _stacked_bytes(kernel: LoopKernel, device: str, most: int) -> Iterator[Constraint]:
    """All private buffers, alive or not, where a device has each on a stack for itself."""
    terms: list[IntTerm] = []
    declared = private_buffers(kernel)
    for buffer, _ in declared:
        elements = multiply(*lengths_in_a_thread(kernel, buffer))
        few = compare(Relation.LE, elements, MAX_REGISTERS)
        copies = select(few, _STACKED_COPIES, 1)
        terms.append(multiply(buffer.element_bytes, copies, elements))
    terms += [multiply(_STACKED_COPIES, term) for _, term in stages(kernel)]
    if terms:
        yield _limit(
            f"stacked-bytes/{kernel.name}",
            (),
            compare(Relation.LE, add(*terms), most),
            ", ".join(dict.fromkeys(buffer.name for buffer, _ in declared)),
            f"{device} keeps all private memory of a kernel on the stack of a thread, and "
            f"{_STACKED_COPIES} copies of what fits into registers: {most} bytes a work-item",
            "let a thread keep fewer filters, windows or channels",
        )


def private_buffers(kernel: LoopKernel) -> list[tuple[Buffer, tuple[Loop, ...]]]:
    """The private buffers of a kernel, each with the loops around its declaration."""
    return [
        (statement.buffer, loops)
        for statement, loops in walk(kernel.statements)
        if isinstance(statement, Declare) and statement.buffer.memory is Memory.PRIVATE
    ]


def lengths_in_a_thread(kernel: LoopKernel, buffer: Buffer) -> list[IntTerm]:
    """The lengths of a private buffer's dimensions, 1 where it is spread over work-items."""
    lengths = [term_of(n, {}) for n in buffer.dimensions]
    if not buffer.spread:
        return lengths
    # Every use is spread alike (buffer_scoping), so that the first one tells.
    loops, indices = next(
        (loops, statement.indices)
        for statement, loops in walk(kernel.statements)
        if isinstance(statement, Store) and statement.buffer == buffer
    )
    for position, loop in enumerate(loops):
        dimension = spread_dimension(buffer, indices, loop)
        if dimension is not None and loop.map_id is not None:
            spread = owner_in(loops, position, frozenset(int(c) for c in LOCAL_CODES))
            lengths[dimension] = select(spread, 1, lengths[dimension])
    return lengths


def _idle_threads(kernel: LoopKernel) -> Iterator[Constraint]:
    """A local size larger than every trip count in its dimension leaves threads without work."""
    runs: list[tuple[tuple[Loop, ...], int, tuple[Loop, ...]]] = []
    seen: set[tuple[int, int]] = set()
    for _, loops in walk(kernel.statements):
        for position, run in runs_from(loops, 0):
            key = (id(run[0]), len(run))
            if key not in seen:
                seen.add(key)
                runs.append((loops, position, run))
    ids = tuple(dict.fromkeys(map_id(run[0]) for _, _, run in runs))
    trips = [run_trip(run) for _, _, run in runs]
    for dimension in DIMENSIONS:
        size = LocalSizeVariable(kernel.name, dimension)
        codes = [
            parallel_code(Level.LOCAL, dimension),
            parallel_code(Level.GLOBAL, dimension),
        ]
        filled = [
            all_of(
                any_of(*(owns(loops, position, run, code) for code in codes)),
                compare(Relation.LE, size, trip),
            )
            for (loops, position, run), trip in zip(runs, trips, strict=True)
        ]
        yield Constraint(
            id=f"{IDLE}/{kernel.name}/{dimension}",
            rule=IDLE,
            subjects=(),
            predicate=any_of(negate(used_in(ids, codes)), *filled),
            provenance=Provenance(NESTMAP, "", "a preference"),
            buffer=None,
            sentence=(
                f"the local size in dimension {dimension} of kernel {kernel.name} is larger than "
                "every trip count there, so that some threads never have work"
            ),
            remedy="choose a local size of at most the largest trip count",
        )


def memory_limits(loops: LoopProgram, device: DeviceProfile) -> Iterator[Constraint]:
    """Every global buffer fits in one allocation and all of them in the device."""
    terms: list[IntTerm] = []
    sized: list[tuple[Buffer, IntTerm, tuple[MapId, ...]]] = []
    for buffer in (*loops.inputs, *(kernel.output for kernel in loops.kernels)):
        sized.append((buffer, expanded_bytes(buffer, ()), ()))
    for kernel in loops.kernels:
        for statement, around in walk(kernel.statements):
            if isinstance(statement, Declare) and statement.buffer.memory is Memory.GLOBAL:
                ids = tuple(map_id(loop) for loop in around if loop.map_id is not None)
                sized.append((statement.buffer, expanded_bytes(statement.buffer, around), ids))
    for buffer, size, ids in sized:
        terms.append(size)
        limit = min(device.max_alloc_bytes, buffer.element_bytes * MAX_ELEMENTS)
        yield _limit(
            f"buffer-bytes/{buffer.name}",
            ids,
            compare(Relation.LE, size, limit),
            buffer.name,
            f"{device.name} allocates at most {limit} bytes at once",
            "use a smaller layer, tile or padding",
        )
    yield _limit(
        "global-bytes",
        (),
        compare(Relation.LE, add(*terms), device.global_bytes),
        None,
        f"{device.name} has {device.global_bytes} bytes of global memory",
        "use a smaller layer, or fewer intermediates",
    )
