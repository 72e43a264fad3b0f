"""Local buffers of which a reduce has two, written and read in turns.

What an iteration reads may then be overwritten only two iterations later, and the barrier
between writing and reading in the iteration between them keeps the two apart: the one that
otherwise holds the next iteration's copies back is not needed.
"""

from __future__ import annotations

from mapper.ast_model.index_expr import Expr, modulo, symbol
from mapper.ast_model.loop_nest import Loop


def alternating(around: tuple[Loop, ...]) -> Loop | None:
    """The reduce that alternates between two of a local buffer declared under these loops."""
    if not around or around[-1].prefetch is None or around[-1].prefetch != 2:
        return None
    return None if around[-1].trip == 1 else around[-1]


def place(reduce: Loop) -> Expr:
    """Which of the two an iteration uses."""
    return modulo(symbol(reduce.variable.name, reduce.trip), 2)


def is_kept_apart(around: tuple[Loop, ...], position: int) -> bool:
    """Whether iterations of the loop at ``position`` need no barrier between them for a buffer.

    The loop is one of those around the declaration. Of the reduce itself they need none. A loop
    around that one starts it again at the first buffer, which is behind the last iteration's
    barrier only if that one used the second.
    """
    reduce = alternating(around)
    if reduce is None or position >= len(around):
        return False
    trips = reduce.trip.constant
    return around[position] is reduce or (trips is not None and trips % 2 == 0)
