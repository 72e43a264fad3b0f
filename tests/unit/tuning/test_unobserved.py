"""Launches without events: the same kernels, in order, and the same errors."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from worker.measuring.loaded_plan import Session, open_session
from worker.measuring.unobserved import launch_unobserved

pytestmark = pytest.mark.kernels

_SOURCE = """
__kernel void doubled(__global int *x) { x[get_global_id(0)] *= 2; }
__kernel void raised(__global int *x) { x[get_global_id(0)] += get_local_size(0); }
"""


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session("pocl")


def test_kernels_launched_without_events_run_in_the_queue_s_order(session: Session):
    program = cl.Program(session.context, _SOURCE).build()
    values = np.arange(64, dtype=np.int32)
    buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, values.nbytes)
    cl.enqueue_copy(session.queue, buffer, values)
    for name in ("doubled", "raised", "doubled"):
        kernel = cl.Kernel(program, name)
        kernel.set_args(buffer)
        launch_unobserved(session.queue, kernel, (64, 1, 1), (16, 1, 1))
    found = np.empty_like(values)
    cl.enqueue_copy(session.queue, found, buffer)
    assert found.tolist() == [2 * (2 * x + 16) for x in range(64)]


def test_a_launch_that_the_driver_refuses_raises_its_error(session: Session):
    program = cl.Program(session.context, _SOURCE).build()
    buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 256)
    kernel = cl.Kernel(program, "doubled")
    kernel.set_args(buffer)
    with pytest.raises(cl.Error, match="INVALID_WORK_GROUP_SIZE"):
        launch_unobserved(session.queue, kernel, (63, 1, 1), (16, 1, 1))
    session.queue.finish()
