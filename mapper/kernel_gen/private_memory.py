"""Private memory of one work-item: what is alive at once, in the worst place."""

from __future__ import annotations

from mapper.ast_model.loop_nest import Declare, Loop, Statement
from mapper.ast_model.types import Memory
from mapper.kernel_gen.scheduled import element_count


def private_elements(statements: tuple[Statement, ...]) -> int:
    """Floats of private buffers in scope at once, at most, below these statements."""
    own = sum(
        element_count(s.buffer)
        for s in statements
        if isinstance(s, Declare) and s.buffer.memory is Memory.PRIVATE
    )
    inner = max((private_elements(s.body) for s in statements if isinstance(s, Loop)), default=0)
    return own + inner
