"""The analytic prediction with everything open: what a kernel's time is a sum of.

:mod:`mapper.cost.analytic` predicts the time of a plan. Here is the same sum before anything is
chosen: each term is a constant of the device times trip counts, which are polynomials over tuning
parameters, times what codes and local sizes make of it. Logarithms of these factors add up, and
where one trip count divides by what the next one multiplies with, they cancel.

Never above the prediction, and equal to it but for two things: private bytes leave out what is
loaded ahead, and where an index divides the variable of a map with one iteration, its neighbours
share what they fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from mapper.ast_model.dependence import runs_from
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.index_expr import Expr, Quotient, as_they_are, const
from mapper.ast_model.loop_nest import Buffer, Declare, Loop, LoopKernel, Store, walk
from mapper.ast_model.nodes import Program, Relation
from mapper.ast_model.polynomial import atom_expr
from mapper.ast_model.types import Memory
from mapper.constraint_rules.limits import expanded_bytes, lengths_in_a_thread, private_buffers
from mapper.constraint_rules.predicate import (
    FALSE,
    TRUE,
    CodeVariable,
    IntTerm,
    LocalSizeVariable,
    Predicate,
    Variable,
    add,
    all_of,
    any_of,
    compare,
    maximum,
    member,
    multiply,
    negate,
    select,
    term_of,
)
from mapper.constraint_rules.runs import map_id, owns, run_trip
from mapper.cost.analytic import DeviceConstants
from mapper.cost.traffic import FETCH_BYTES, accesses_of, fetched_bytes, operations_of
from mapper.errors import InputError
from mapper.schedule import DIMENSIONS, VECTOR_CODES, Level, ScheduleCode, parallel_code

Domains = Mapping[Variable, tuple[int, ...]]
#: A logarithm that is added where a condition holds.
Addend = tuple[Predicate, float]
_NEIGHBOURS = (ScheduleCode.LOCAL_0, ScheduleCode.GLOBAL_0)
_FUSED = int(ScheduleCode.FUSED)


@dataclass(frozen=True, slots=True)
class TimeTerm:
    """A part of a kernel's time: ``log_ns`` and all ``addends`` that hold, and for each of the
    ``factors`` its logarithm times a number, make the logarithm of nanoseconds, before they are
    shared out among compute units.

    ``idle``: lanes without work lengthen it. ``spills``: only that part of it counts of which
    private arrays are too large for registers.
    """

    log_ns: float
    factors: tuple[tuple[Expr, int], ...]
    addends: tuple[Addend, ...]
    idle: bool = False
    spills: bool = False


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel's terms, and what they are shared out by.

    By dimension, ``work_groups`` are trips of work-group maps, ``global_trips`` of global maps, 1
    where there are none, and ``sizes`` the local sizes. ``private_bytes`` a work-item has
    somewhere, at least, ``local_bytes`` a work-group.
    """

    terms: tuple[TimeTerm, ...]
    work_groups: tuple[IntTerm, ...]
    global_trips: tuple[IntTerm, ...]
    sizes: tuple[LocalSizeVariable, ...]
    private_bytes: tuple[IntTerm, ...]
    local_bytes: IntTerm


def program_time(
    program: Program, domains: Domains, constants: DeviceConstants
) -> tuple[KernelTime, ...]:
    """The kernels of a program in order, its sizes put in and its parameters symbols."""
    with as_they_are():
        written = elaborate(program).kernels
    return tuple(
        _kernel_time(kernel, as_written, domains, constants)
        for kernel, as_written in zip(elaborate(program).kernels, written, strict=True)
    )


def _kernel_time(
    kernel: LoopKernel, written: LoopKernel, domains: Domains, constants: DeviceConstants
) -> KernelTime:
    merged: dict[TimeTerm, float] = {}
    pairs = zip(walk(kernel.statements), walk(written.statements), strict=True)
    for (statement, loops), (as_written, _) in pairs:
        if isinstance(statement, Store) and isinstance(as_written, Store):
            divided = [_divided(indices) for _, indices in accesses_of(as_written)]
            for term, ns in _store_terms(statement, loops, divided, domains, constants):
                merged[term] = merged.get(term, 0.0) + ns
    return KernelTime(
        tuple(
            TimeTerm(term.log_ns + log(ns), term.factors, term.addends, term.idle, term.spills)
            for term, ns in merged.items()
            if ns > 0
        ),
        tuple(_largest_trip(kernel, domains, Level.WORK_GROUP, d) for d in DIMENSIONS),
        tuple(_largest_trip(kernel, domains, Level.GLOBAL, d) for d in DIMENSIONS),
        tuple(LocalSizeVariable(kernel.name, d) for d in DIMENSIONS),
        _private_bytes(kernel),
        _local_bytes(kernel),
    )


def _divided(indices: tuple[Expr, ...]) -> frozenset[str]:
    """Names of what stands within quotients and remainders: there a variable without a choice may
    be folded away as soon as numbers are put in, elsewhere it stays."""
    return frozenset(
        symbol.name
        for index in indices
        for symbol in index.symbols()
        if index.coefficient(symbol) is None
    )


def _store_terms(
    store: Store,
    loops: tuple[Loop, ...],
    divided: Sequence[frozenset[str]],
    domains: Domains,
    constants: DeviceConstants,
) -> Iterator[tuple[TimeTerm, float]]:
    """Terms with how many nanoseconds one execution of the store adds to each; ``divided`` by
    access."""
    scale, factors = _factors_of([loop.trip for loop in loops])
    if scale is None:
        return

    def term(addends: Sequence[Addend] = (), idle: bool = False, spills: bool = False) -> TimeTerm:
        return TimeTerm(scale, factors, tuple(addends), idle, spills)

    yield term(idle=True), constants.operations * operations_of(store.value)
    accesses = accesses_of(store)
    private = sum(buffer.memory is Memory.PRIVATE for buffer, _ in accesses)
    if private:
        widths = tuple(_widths(loops, domains))
        yield term(widths, idle=True), constants.private_accesses * private
        yield term(widths, spills=True), constants.spilled * private
    for (buffer, indices), names in zip(accesses, divided, strict=True):
        if buffer.memory is Memory.LOCAL:
            yield term(), constants.local_bytes * buffer.element_bytes
        elif buffer.memory is Memory.GLOBAL:
            alone = fetched_bytes(None, buffer.element_bytes)
            addends = tuple(_fetches(buffer, indices, loops, names, domains))
            yield term(addends), constants.global_bytes * alone


def _factors_of(trips: Sequence[Expr]) -> tuple[float | None, tuple[tuple[Expr, int], ...]]:
    """The product of trip counts as the logarithm of a number and powers of expressions; None
    for a product of zero."""
    scale = 0.0
    powers: dict[Expr, int] = {}

    def put(expression: Expr, power: int) -> bool:
        nonlocal scale
        number = expression.constant
        if number is not None:
            if number > 0:
                scale += power * log(number)
            return number > 0
        if len(expression.terms) == 1 and expression.terms[0][1] > 0:
            monomial, coefficient = expression.terms[0]
            scale += power * log(coefficient)
            for atom in monomial:
                if isinstance(atom, Quotient) and atom.exact:
                    put(atom.numerator, power)
                    put(atom.denominator, -power)
                else:
                    powers[atom_expr(atom)] = powers.get(atom_expr(atom), 0) + power
        else:
            powers[expression] = powers.get(expression, 0) + power
        return True

    if not all([put(trip, 1) for trip in trips]):
        return None, ()
    kept = sorted(((e, p) for e, p in powers.items() if p), key=lambda pair: str(pair[0]))
    return scale, tuple(kept)


def _widths(loops: tuple[Loop, ...], domains: Domains) -> Iterator[Addend]:
    """A store of a vector is one access: the innermost map with lanes says of how many."""
    own = [CodeVariable(loop.map_id) for loop in loops if loop.map_id is not None]
    for place, code in enumerate(own):
        inside = [negate(member(later, VECTOR_CODES)) for later in own[place + 1 :]]
        for width in sorted(VECTOR_CODES.intersection(domains[code])):
            yield all_of(member(code, (width,)), *inside), -log(width)


def _fetches(
    buffer: Buffer,
    indices: tuple[Expr, ...],
    loops: tuple[Loop, ...],
    divided: frozenset[str],
    domains: Domains,
) -> Iterator[Addend]:
    """What neighbours fetch together, relative to what each would fetch alone."""
    size = buffer.element_bytes
    alone = log(fetched_bytes(None, size))
    shared = log(fetched_bytes(0, size)) - alone
    inside: list[Predicate] = []
    for loop in reversed(loops):
        if loop.map_id is None:
            continue
        code = CodeVariable(loop.map_id)
        if not set(_NEIGHBOURS).isdisjoint(domains[code]):
            neighbour = all_of(member(code, _NEIGHBOURS), *inside)
            stride = _stride(buffer, indices, loop)
            if stride is None:
                yield neighbour, shared
            else:
                folded = loop.variable.name in divided
                one = compare(Relation.EQ, term_of(loop.trip, {}), 1) if folded else FALSE
                yield from (
                    (all_of(neighbour, where), ratio)
                    for where, ratio in _shares(stride, one, size, alone)
                )
        inside.append(negate(member(code, _NEIGHBOURS)))


def _shares(stride: Expr, none: Predicate, size: int, alone: float) -> Iterator[Addend]:
    """The logarithm of what is fetched by the distance of neighbours, in steps from far to near;
    where ``none`` holds it may be none."""
    elements = term_of(stride, {})

    def share(distance: int) -> float:
        return log(fetched_bytes(distance, size)) - alone

    farthest = 1
    while farthest * size < FETCH_BYTES:
        farthest *= 2
    yield TRUE, share(farthest)
    beyond = share(farthest)
    while farthest > 1:
        # Distances below this one are at least half of it.
        near = all_of(
            compare(Relation.LT, elements, farthest), compare(Relation.GT, elements, -farthest)
        )
        farthest //= 2
        yield near, share(farthest) - beyond
        beyond = share(farthest)
    yield any_of(none, compare(Relation.EQ, elements, 0)), share(0) - beyond


def _stride(buffer: Buffer, indices: tuple[Expr, ...], neighbour: Loop) -> Expr | None:
    """Elements between what neighbours access, over the parameters; None if it is not known."""
    places: list[Expr] = []
    for value in (0, 1):
        position = const(0)
        try:
            for index, dimension in zip(indices, buffer.dimensions, strict=True):
                start = {
                    symbol.name: value if symbol.name == neighbour.variable.name else 0
                    for symbol in index.symbols()
                    if symbol.extent is not None or symbol.name == neighbour.variable.name
                }
                position = position * dimension + index.substitute(start)
        except (InputError, ZeroDivisionError):
            return None
        places.append(position)
    return places[1] - places[0]


def _largest_trip(kernel: LoopKernel, domains: Domains, level: Level, dimension: int) -> IntTerm:
    """The largest trip count of the maps that use a dimension, fused ones included; at least 1."""
    code = int(parallel_code(level, dimension))
    found: dict[tuple[int, int], IntTerm] = {}
    for _, loops in walk(kernel.statements):
        for position, run in runs_from(loops, 0):
            head, *rest = (domains[CodeVariable(map_id(loop))] for loop in run)
            if code in head and all(_FUSED in domain for domain in rest):
                chosen = owns(loops, position, run, code)
                found.setdefault((id(run[0]), len(run)), select(chosen, run_trip(run), 1))
    return maximum(1, *found.values())


def _private_bytes(kernel: LoopKernel) -> tuple[IntTerm, ...]:
    """Bytes of private buffers that are alive at once, by place."""
    declared = private_buffers(kernel)
    sums: list[IntTerm] = []
    for _, loops in declared:
        alive = [
            multiply(buffer.element_bytes, *lengths_in_a_thread(kernel, buffer))
            for buffer, scope in declared
            if [id(loop) for loop in scope] == [id(loop) for loop in loops[: len(scope)]]
        ]
        sums.append(add(*alive))
    return tuple(dict.fromkeys(sums))


def _local_bytes(kernel: LoopKernel) -> IntTerm:
    """Bytes of local buffers with all their copies."""
    return add(
        *(
            expanded_bytes(statement.buffer, loops)
            for statement, loops in walk(kernel.statements)
            if isinstance(statement, Declare) and statement.buffer.memory is Memory.LOCAL
        )
    )
