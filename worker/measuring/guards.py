"""Guards around buffers: what a kernel writes beside its arrays is seen, by bits.

A buffer lies inside a larger one. What is before and behind it is filled with NaNs that count on
from guard to guard, so that one copied over another shows too; around arrays of integers with the
same bits, and around 8-bit ones with 251 numbers in turns, which no two near elements share.
Of 32-bit floats no two are alike in the guards of 4,096 buffers. There are only 1,022 of 16-bit
floats (without the two of which a conversion makes its NaNs): two are alike only where a multiple
of 1,022 elements lies between them, one or two in the 2,048 elements of a guard. What a kernel
reads there is NaN, which no right result of floats holds (but fmax and fmin pass it by; that
indices stay inside is proven where kernels are made, :mod:`mapper.kernel_gen.bounds_proof`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mapper.host_plan import PlannedBuffer

if TYPE_CHECKING:
    from worker.measuring.loaded_plan import Session

#: Before and behind a buffer; a page, so that the buffer is aligned as well as without.
GUARD_BYTES = 4096
_BITS = 8
#: The largest of 8 bits: no power of two is a multiple of it.
_PRIME = 251
#: The first bits of a quiet NaN of 32 and of 16 bits, how many payloads are left, and the sign.
_NANS = {
    4: (np.uint32(0x7FC0_0000), 0x3F_FFFF, 31),
    2: (np.uint16(0x7E00), 0x1FF, 15),
}


@dataclass(frozen=True, slots=True)
class Guards:
    """A guarded buffer (pyopencl's objects): ``buffer`` lies in ``whole``, between the guards."""

    name: str
    whole: Any
    buffer: Any
    before: NDArray[np.uint8]
    behind: NDArray[np.uint8]
    start: int
    end: int
    element_bytes: int

    def set(self, queue: Any) -> None:
        """Fill both guards; raises pyopencl's errors."""
        import pyopencl as cl

        cl.enqueue_copy(queue, self.whole, self.before, dst_offset=self.start - self.before.size)
        cl.enqueue_copy(queue, self.whole, self.behind, dst_offset=self.end)

    def changed(self, queue: Any) -> str:
        """Where a guard is not as it was set; empty if it is. Raises pyopencl's errors."""
        import pyopencl as cl

        for side, guard, offset in (
            ("before", self.before, self.start - self.before.size),
            ("behind", self.behind, self.end),
        ):
            now = np.empty_like(guard)
            cl.enqueue_copy(queue, now, self.whole, src_offset=offset, is_blocking=True)
            wrong = np.flatnonzero(now != guard)
            if wrong.size:
                element = (offset + int(wrong[0]) - self.start) // self.element_bytes
                count = (self.end - self.start) // self.element_bytes
                return (
                    f"the kernel wrote {side} its array {self.name}: element {element} of {count}"
                )
        return ""


def guarded(session: Session, planned: PlannedBuffer, number: int) -> Guards | None:
    """A buffer with guards; None where the device has no parts of buffers, or none so large."""
    import pyopencl as cl

    handle = session.device.handle
    edge = max(GUARD_BYTES, int(handle.mem_base_addr_align) // _BITS)
    size = edge + planned.bytes + GUARD_BYTES
    if size > handle.max_mem_alloc_size:
        return None
    whole = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, size)
    try:
        buffer = whole.get_sub_region(edge, planned.bytes)
    except cl.Error:
        whole.release()
        return None
    element = planned.dtype.bytes
    count = GUARD_BYTES // element
    before = _marks(2 * number * count, count, element)
    behind = _marks((2 * number + 1) * count, count, element)
    return Guards(planned.name, whole, buffer, before, behind, edge, edge + planned.bytes, element)


def _marks(first: int, count: int, element_bytes: int) -> NDArray[np.uint8]:
    """What so many elements of a guard hold, from number ``first`` on."""
    if element_bytes == 1:
        return (np.arange(first, first + count) % _PRIME).astype(np.uint8)
    return _nans(first, count, element_bytes)


def _nans(first: int, count: int, element_bytes: int) -> NDArray[np.uint8]:
    """So many NaNs that go on from number ``first``: all payloads, then all with the sign set."""
    head, most, sign = _NANS[element_bytes]
    turn, payload = np.divmod(np.arange(first, first + count), most)
    bits = (payload + 1 + ((turn % 2) << sign)).astype(head.dtype)
    return (head | bits).view(np.uint8)
