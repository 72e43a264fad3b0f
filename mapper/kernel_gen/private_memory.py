"""Private memory of one work-item: what is alive at once, in the worst place."""

from __future__ import annotations

from mapper.ast_model.loop_nest import Declare
from mapper.ast_model.types import Memory
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled, element_count


def private_bytes(body: tuple[Scheduled, ...]) -> int:
    """Bytes of private buffers in scope at once, at most, below these statements."""
    own = sum(
        s.buffer.element_bytes * element_count(s.buffer)
        for s in body
        if isinstance(s, Declare) and s.buffer.memory is Memory.PRIVATE
    )
    return own + max((private_bytes(s.body) for s in body if isinstance(s, Run | Ahead)), default=0)
