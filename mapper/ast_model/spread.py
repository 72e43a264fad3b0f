"""Private buffers that outlive the loops around which a work-group cooperates.

The outermost ``spread`` dimensions of such a buffer are indexed by maps which stand between
its declaration and its uses. If these maps are local ones with as many iterations as there
are work-items, each work-item uses its own elements only, and keeps nothing but them: the
dimensions vanish from its registers. An accumulator tile under a loop that refills local
memory is one ("Auto-Generation of Specialized Direct Convolutions for Mobile GPUs"
(GPGPU'20), section 4.2, keeps its accumulators this way in a kernel written by hand).
"""

from __future__ import annotations

from mapper.ast_model.index_expr import Expr, symbol
from mapper.ast_model.loop_nest import Buffer, Loop


def spread_dimension(buffer: Buffer, indices: tuple[Expr, ...], loop: Loop) -> int | None:
    """The spread dimension whose index is this loop's variable and nothing else."""
    variable = symbol(loop.variable.name, loop.variable.extent)
    for dimension, index in enumerate(indices[: buffer.spread]):
        if index == variable:
            return dimension
    return None


def spread_run(
    buffer: Buffer, indices: tuple[Expr, ...], run: tuple[Loop, ...]
) -> tuple[int, ...] | None:
    """The spread dimensions of a run of fused maps in its order; None if one has none."""
    found = [spread_dimension(buffer, indices, loop) for loop in run]
    dimensions = tuple(d for d in found if d is not None)
    return dimensions if len(dimensions) == len(run) else None
