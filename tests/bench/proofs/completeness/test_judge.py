"""The judge tells right kernels, races and wrong kernels apart, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bench.proofs.completeness.judge import Case, Judge, Verdict
from mapper.host_plan import BufferRole, HostPlan, Launch, PlannedBuffer

pytestmark = pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
COPY = "g_out[get_local_id(0)] = g_x[get_local_id(0)];"
KERNELS = {
    COPY: Verdict.RIGHT,
    "g_out[3 - get_local_id(0)] = g_x[get_local_id(0)];": Verdict.WRONG,
    "for (int i = 0; i < 4; ++i) g_out[i] = g_x[i];": Verdict.SAME_VALUE_RACE,
    COPY + " __local float t[1]; t[0] = get_local_id(0);": Verdict.RACE,
    COPY + " __local float t[4]; t[0] = g_x[0]; g_out[4 + get_local_id(0)] = t[1];": Verdict.WRONG,
    COPY + " if (get_local_id(0) < 2) barrier(CLK_LOCAL_MEM_FENCE);": Verdict.WRONG,
    "this is no C": Verdict.WRONG,
    COPY + " ": Verdict.RIGHT,
}


def plan(body: str) -> HostPlan:
    source = (
        "__attribute__((reqd_work_group_size(4, 1, 1))) __kernel void k("
        f"__global const float *g_x, __global float *g_out) {{ {body} }}"
    )
    buffers = (
        PlannedBuffer("x", BufferRole.INPUT, 16, (4,), 0, 0),
        PlannedBuffer("out", BufferRole.OUTPUT, 16, (4,), 0, 0),
    )
    return HostPlan(source, buffers, (Launch("k", (4, 1, 1), (4, 1, 1), ("x", "out")),))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    values = np.array([1, 2, 3, 4], dtype=np.float32)
    with Judge(Case({"x": values}, values.astype(np.float64))) as opened:
        yield opened


def test_verdicts_one_after_the_other(judge: Judge) -> None:
    """In one process: no kernel's fault is laid at the door of the next."""
    assert {body: judge.verdict(plan(body)) for body in KERNELS} == KERNELS


@pytest.mark.kernels
def test_pocl_has_a_say(judge: Judge) -> None:
    assert judge.device_agrees(plan(COPY))
    assert not judge.device_agrees(plan("g_out[get_local_id(0)] = 0.0f;"))


def test_a_kernel_that_never_ends_is_ended_and_the_next_one_runs() -> None:
    values = np.array([1, 2, 3, 4], dtype=np.float32)
    with Judge(Case({"x": values}, values.astype(np.float64)), timeout_s=4.0) as judge:
        assert judge.verdict(plan(COPY)) is Verdict.RIGHT
        endless = "volatile int i = 0; while (i < 1) { i = 0; }" + COPY
        assert judge.verdict(plan(endless)) is Verdict.CRASH
        assert judge.verdict(plan(COPY)) is Verdict.RIGHT
