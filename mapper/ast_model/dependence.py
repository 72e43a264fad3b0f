"""Who writes and who reads shared memory: conflicts, and when two loops mean one thread.

Two accesses of a buffer *conflict* if one writes and they may touch one element. They are
harmless under a mapping if, in every parallel dimension, one thread makes both: then the
loops that own the dimension must index the buffer by the same function with the same trip
count. That is decided by *digits*: loop variable v of trip n is a digit of an element's
position in its buffer if (position div a) mod n = v for some a; equal elements then have equal
digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.digits import combine_digits
from mapper.ast_model.index_expr import Expr, ExprLike, Symbol, const, floor_div, modulo, symbol
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Loop,
    LoopKernel,
    Statement,
    Store,
    loads,
)
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a buffer: ``path`` are statement positions, one a nesting level."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    loops: tuple[Loop, ...]
    path: tuple[int, ...]


Digit = tuple[Expr, Expr]
"""(stride within the buffer, in elements of its row-major order; trip count)."""

Signature = tuple[Digit, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses in program order; ``scope`` and ``common`` count loops from outside.

    The buffer lives under the first ``scope`` loops; both accesses stand under the first
    ``common`` loops.
    """

    buffer: Buffer
    first: Access
    second: Access
    scope: int
    common: int


def shared_accesses(kernel: LoopKernel) -> tuple[tuple[Access, ...], dict[str, int]]:
    """Accesses of local and global buffers that this kernel writes, and their scopes."""
    scopes = {kernel.output.name: 0}
    found: list[Access] = []
    for statement, loops, path in _walk_paths(kernel.statements, (), ()):
        if isinstance(statement, Declare):
            scopes[statement.buffer.name] = len(loops)
            continue
        found.append(Access(statement.buffer, statement.indices, True, loops, path))
        found.extend(
            Access(load.buffer, load.indices, False, loops, path) for load in loads(statement.value)
        )
    kept = [a for a in found if a.buffer.name in scopes and a.buffer.memory is not Memory.PRIVATE]
    return tuple(kept), scopes


def _walk_paths(
    statements: tuple[Statement, ...], loops: tuple[Loop, ...], path: tuple[int, ...]
) -> Iterator[tuple[Declare | Store, tuple[Loop, ...], tuple[int, ...]]]:
    for position, statement in enumerate(statements):
        if isinstance(statement, Loop):
            yield from _walk_paths(statement.body, (*loops, statement), (*path, position))
        else:
            yield statement, loops, (*path, position)


def conflicts(kernel: LoopKernel) -> tuple[Conflict, ...]:
    """Every pair of accesses in different statements, at least one of them a write.

    Accesses in one statement are not listed: elaboration has made sure that an
    accumulator's element depends on no other element.
    """
    accesses, scopes = shared_accesses(kernel)
    found: dict[tuple[object, ...], Conflict] = {}
    for position, first in enumerate(accesses):
        for second in accesses[position + 1 :]:
            if first.buffer.name != second.buffer.name or first.path == second.path:
                continue
            if not (first.is_write or second.is_write):
                continue
            common = 0
            for a, b in zip(first.path[:-1], second.path[:-1], strict=False):
                if a != b:
                    break
                common += 1
            conflict = Conflict(first.buffer, first, second, scopes[first.buffer.name], common)
            key = (first.path, second.path, first.indices, second.indices)
            found.setdefault(key, conflict)
    return tuple(found.values())


def digit_of(access: Access, variable: Symbol, trip: Expr) -> Digit | None:
    """The digit that a loop variable is in an access, or None if that cannot be shown."""
    # A loop of one iteration adds nothing, but would hide that its neighbour is a digit.
    zeros: dict[str, ExprLike] = {loop.variable.name: 0 for loop in access.loops if loop.trip == 1}
    indices = tuple(index.substitute(zeros) for index in access.indices)
    places = [d for d, index in enumerate(indices) if variable.name in index.names()]
    if not places:
        return None
    if len(places) == 1:
        # An index is within its dimension, so that the dimensions inside do not carry over.
        index, inner = indices[places[0]], access.buffer.dimensions[places[0] + 1 :]
    else:
        index, inner = combine_digits(_position(access.buffer, indices)), ()
    stride = _stride(index, variable, trip)
    if stride is None:
        return None
    for length in inner:
        stride = stride * length
    return stride, trip


def _position(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """Row-major, with sizes that may be symbols."""
    position = const(0)
    for length, index in zip(buffer.dimensions, indices, strict=True):
        position = position * length + index
    return position


def _stride(index: Expr, variable: Symbol, trip: Expr) -> Expr | None:
    """The a for which (index div a) mod trip is the variable, or None if that is not shown."""
    parts = index.coefficient(variable)
    if parts is None:
        return None
    stride, _ = parts
    if len(stride.terms) != 1 or stride.terms[0][1] <= 0:
        return None
    if modulo(floor_div(index, stride), trip) != symbol(variable.name, trip):
        return None
    return stride


def run_signature(access: Access, run: tuple[Loop, ...]) -> Signature | None:
    """The digits of a run of fused maps, outermost first; loops of trip 1 have none.

    Neighbouring digits are one: a run of n times m iterations over ``split(m, x)`` goes through
    x as one loop of n*m does.
    """
    digits: list[Digit] = []
    for loop in run:
        if loop.trip == 1:
            continue
        digit = digit_of(access, loop.variable, loop.trip)
        if digit is None:
            return None
        stride, trip = digit
        if digits and digits[-1][0] == stride * trip:
            digits[-1] = (stride, digits[-1][1] * trip)
        else:
            digits.append(digit)
    return tuple(digits)


def runs_from(loops: tuple[Loop, ...], start: int) -> Iterator[tuple[int, tuple[Loop, ...]]]:
    """Every run of maps that may be fused together, beginning at ``start`` or deeper.

    Yields (position of the owner, loops of the run). A run continues through maps that are
    perfectly nested in the one before.
    """
    for position in range(start, len(loops)):
        if loops[position].map_id is None:
            continue
        run = (loops[position],)
        yield position, run
        for inner in loops[position + 1 :]:
            if inner.map_id is None or not inner.perfectly_nested:
                break
            run = (*run, inner)
            yield position, run


def map_ids(loops: tuple[Loop, ...]) -> tuple[MapId, ...]:
    """Ids of the maps among loops."""
    return tuple(loop.map_id for loop in loops if loop.map_id is not None)
