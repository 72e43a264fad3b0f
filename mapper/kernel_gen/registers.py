"""Private arrays into registers: unroll the serial loops that index them, within a budget.

An array whose every index is a constant after unrolling becomes one variable an element,
which a compiler keeps in registers. An array that would need too much unrolling stays an
array; the kernel is the same, only slower. Such an array is declared once, in front of the copies
of a loop around it that was unrolled: PoCL has every declaration on the stack for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mapper.ast_model.index_expr import Expr, const
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Loop,
    Store,
    loads,
    substitute_store,
)
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.constraint_rules.limits import MAX_REGISTERS
from mapper.kernel_gen.barriers import Barrier
from mapper.kernel_gen.private_memory import private_bytes
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled, element_count, trip_count
from mapper.schedule import ScheduleCode

MAX_STATEMENTS = 2048


def into_registers(body: tuple[Scheduled, ...]) -> tuple[tuple[Scheduled, ...], frozenset[str]]:
    """The body with loops unrolled, and the names of the buffers that became registers."""
    rolled: frozenset[str] = frozenset()
    while True:
        chosen, unrolled = _choice(body, rolled)
        moved = _arrays_in_front(body, unrolled, chosen)
        if private_bytes(moved) <= private_bytes(body):
            return _unroll(moved, unrolled, {}), chosen
        # Arrays of different scopes would be alive at once, which the plan does not say.
        rolled |= unrolled & _loops_around_arrays(body, chosen)


def _choice(
    body: tuple[Scheduled, ...], rolled: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Buffers that become registers, and the loops to unroll for them, none of them ``rolled``."""
    chosen: set[str] = set()
    unrolled: set[str] = set()
    for buffer, scope in _declarations(body):
        wanted = _indexing_loops(buffer, scope)
        if wanted is None or wanted & rolled or element_count(buffer) > MAX_REGISTERS:
            continue
        if _statements(body, unrolled | wanted) > MAX_STATEMENTS + _statements(body, set()):
            continue
        unrolled |= wanted
        chosen.add(buffer.name)
    return frozenset(chosen), frozenset(unrolled)


def _arrays_in_front(
    body: tuple[Scheduled, ...], unrolled: frozenset[str], chosen: frozenset[str]
) -> tuple[Scheduled, ...]:
    """The body with arrays declared in front of the outermost unrolled loop around them."""
    result: list[Scheduled] = []
    for statement in body:
        if not isinstance(statement, Run | Ahead):
            result.append(statement)
            continue
        inside = statement.body
        if isinstance(statement, Run) and _is_copied(statement, unrolled):
            result += _arrays(inside, chosen)
            inside = _without_arrays(inside, chosen)
        result.append(replace(statement, body=_arrays_in_front(inside, unrolled, chosen)))
    return tuple(result)


def _is_copied(run: Run, unrolled: frozenset[str]) -> bool:
    return (
        run.is_serial and run.trip > 1 and any(loop.variable.name in unrolled for loop in run.loops)
    )


def _is_array(statement: Scheduled, chosen: frozenset[str]) -> bool:
    return (
        isinstance(statement, Declare)
        and statement.buffer.memory is Memory.PRIVATE
        and statement.buffer.name not in chosen
    )


def _arrays(body: tuple[Scheduled, ...], chosen: frozenset[str]) -> Iterator[Scheduled]:
    for statement in body:
        if _is_array(statement, chosen):
            yield statement
        elif isinstance(statement, Run | Ahead):
            yield from _arrays(statement.body, chosen)


def _without_arrays(body: tuple[Scheduled, ...], chosen: frozenset[str]) -> tuple[Scheduled, ...]:
    return tuple(
        replace(statement, body=_without_arrays(statement.body, chosen))
        if isinstance(statement, Run | Ahead)
        else statement
        for statement in body
        if not _is_array(statement, chosen)
    )


def _loops_around_arrays(body: tuple[Scheduled, ...], chosen: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, Run | Ahead):
            found |= _loops_around_arrays(statement.body, chosen)
        if isinstance(statement, Run) and any(_arrays(statement.body, chosen)):
            found.update(loop.variable.name for loop in statement.loops)
    return frozenset(found)


def _declarations(
    body: tuple[Scheduled, ...],
) -> Iterator[tuple[Buffer, tuple[Scheduled, ...]]]:
    for statement in body:
        if isinstance(statement, Declare) and statement.buffer.memory is Memory.PRIVATE:
            yield statement.buffer, body
        elif isinstance(statement, Run | Ahead):
            yield from _declarations(statement.body)


def _indexing_loops(buffer: Buffer, scope: tuple[Scheduled, ...]) -> set[str] | None:
    """Variables of the serial loops that index the buffer; None if something else does."""
    serial: set[str] = set()
    blocked: set[str] = set()
    used: set[str] = set()

    def visit(body: tuple[Scheduled, ...]) -> bool:
        for statement in body:
            if isinstance(statement, Ahead):
                blocked.add(statement.following.name)
                if not visit(statement.body):
                    return False
            elif isinstance(statement, Run):
                names = {loop.variable.name for loop in statement.loops}
                plain = statement.is_serial and not _has_barrier(statement.body)
                (serial if plain else blocked).update(names)
                if not visit(statement.body):
                    return False
            elif isinstance(statement, Store):
                accesses = [
                    load.indices
                    for load in loads(statement.value)
                    if load.buffer.name == buffer.name
                ]
                if statement.buffer.name == buffer.name:
                    accesses.append(statement.indices)
                for indices in accesses:
                    if not _lane_last(indices):
                        return False
                    for index in indices:
                        used.update(index.names() - {LANE})
        return True

    if not visit(scope) or used & blocked or not used <= serial:
        return None
    return used


def _lane_last(indices: tuple[Expr, ...]) -> bool:
    """A lane may only be the whole last index."""
    if any(LANE in index.names() for index in indices[:-1]):
        return False
    return not indices or LANE not in indices[-1].names() or str(indices[-1]) == LANE


def _has_barrier(body: tuple[Scheduled, ...]) -> bool:
    return any(
        isinstance(s, Barrier) or (isinstance(s, Run) and _has_barrier(s.body)) for s in body
    )


def _statements(body: tuple[Scheduled, ...], unrolled: set[str]) -> int:
    """Stores that are printed if these loops are unrolled."""
    total = 0
    for statement in body:
        if isinstance(statement, Store):
            total += 1
        elif isinstance(statement, Ahead):
            total += _statements(statement.body, unrolled)
        elif isinstance(statement, Run):
            inner = _statements(statement.body, unrolled)
            factor = 1
            for loop in statement.loops:
                if statement.is_serial and loop.variable.name in unrolled:
                    factor *= trip_count(loop)
            total += factor * inner
    return total


def _unroll(
    body: tuple[Scheduled, ...], unrolled: frozenset[str], values: dict[str, Expr]
) -> tuple[Scheduled, ...]:
    result: list[Scheduled] = []
    for statement in body:
        match statement:
            case Declare() | Barrier():
                result.append(statement)
            case Store():
                result.append(substitute_store(statement, values) if values else statement)
            case Ahead():
                body_ahead = _unroll(statement.body, unrolled, values)
                result.append(replace(statement, body=body_ahead))
            case Run():
                result.extend(_unroll_run(statement, unrolled, values))
    return tuple(result)


def _unroll_run(run: Run, unrolled: frozenset[str], values: dict[str, Expr]) -> Iterator[Scheduled]:
    names = {loop.variable.name for loop in run.loops}
    if run.is_serial and run.trip == 1 and run.loops:
        yield from _expand(run.loops, run.body, unrolled, values)
        return
    if not run.is_serial or not names & unrolled:
        moved = None if run.round is None else run.round.substitute(values)
        yield replace(run, body=_unroll(run.body, unrolled, values), round=moved)
        return
    kept = tuple(loop for loop in run.loops if loop.variable.name not in unrolled)
    gone = tuple(loop for loop in run.loops if loop.variable.name in unrolled)
    if kept:
        # Only the outermost kept loops stay a loop; what is unrolled stands inside it.
        inner = Run(gone, ScheduleCode.SEQUENTIAL, 1, run.body)
        trip = 1
        for loop in kept:
            trip *= trip_count(loop)
        body = tuple(_unroll_run(inner, unrolled, values))
        yield replace(run, loops=kept, trip=trip, body=body)
        return
    yield from _expand(gone, run.body, unrolled, values)


def _expand(
    loops: tuple[Loop, ...],
    body: tuple[Scheduled, ...],
    unrolled: frozenset[str],
    values: dict[str, Expr],
) -> Iterator[Scheduled]:
    if loops:
        for k in range(trip_count(loops[0])):
            inner = {**values, loops[0].variable.name: const(k)}
            yield from _expand(loops[1:], body, unrolled, inner)
        return
    statements = _unroll(body, unrolled, values)
    if any(isinstance(s, Declare) for s in statements):
        # A block of its own, so that each copy may declare the same names.
        yield Run((), ScheduleCode.SEQUENTIAL, 1, statements)
    else:
        yield from statements
