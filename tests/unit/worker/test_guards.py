"""What a kernel writes beside its arrays, or into its inputs, is never timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from mapper.elements import Element
from mapper.host_plan import BufferRole, HostPlan, Launch, PlannedBuffer
from mapper.measurement import Timed, Wrong
from tests.unit.worker.plans import byte_plan, byte_workload
from worker.measuring import MeasuringChild, Protocol, Tolerance
from worker.measuring.guards import GUARD_BYTES, _marks, _nans

pytestmark = pytest.mark.kernels

SIZE = 64
QUICK = Protocol(warmup=0, repetitions=1, max_repetitions=1)
HEAD = "__kernel void k(__global const {t} *x, __global float *t, __global {t} *y) {{\n"
RIGHT = "int i = get_global_id(0); t[i] = 2.0f; y[i] = x[i]*t[i];\n"
RIGHT_HALF = "int i = get_global_id(0); t[i] = 2.0f; vstore_half(vload_half(i, x)*t[i], i, y);\n"
BITS = "(__global uint *)"


def plan(statements: str, half: bool = False) -> HostPlan:
    """Twice the input by way of an intermediate, and something more of the first work-item."""
    dtype = Element.FLOAT16 if half else Element.FLOAT32
    source = HEAD.format(t="half" if half else "float") + (RIGHT_HALF if half else RIGHT)
    source += f"if (i == 0) {{ {statements} }}\n}}\n"
    buffers = (
        PlannedBuffer("x", BufferRole.INPUT, dtype.bytes * SIZE, (SIZE,), 0, 0, dtype),
        PlannedBuffer("t", BufferRole.INTERMEDIATE, 4 * SIZE, (SIZE,), 0, 0),
        PlannedBuffer("y", BufferRole.OUTPUT, dtype.bytes * SIZE, (SIZE,), 0, 0, dtype),
    )
    return HostPlan(source, buffers, (Launch("k", (SIZE, 1, 1), (8, 1, 1), ("x", "t", "y")),))


@pytest.fixture(scope="module")
def child() -> Iterator[MeasuringChild]:
    data = np.arange(SIZE, dtype=np.float32)
    with MeasuringChild() as warm:
        warm.upload_workload("floats", {"x": data}, 2 * data)
        warm.upload_workload("halves", {"x": data.astype(np.float16)}, 2 * data)
        yield warm


def outcome_of(child: MeasuringChild, one: HostPlan, workload: str = "floats") -> Timed | Wrong:
    outcome = child.measure(one, workload=workload, protocol=QUICK)
    assert isinstance(outcome, Timed | Wrong), outcome
    return outcome


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (f"y[{SIZE}] = 0.0f;", f"behind its array y: element {SIZE} of {SIZE}"),
        ("y[-1] = 0.0f;", "before its array y: element -1 of"),
        (f"t[{SIZE + 3}] = 7.0f;", f"behind its array t: element {SIZE + 3} of"),
        ("t[-2] = 7.0f;", "before its array t: element -2 of"),
        (f"((__global float *)x)[{SIZE}] = 1.0f;", f"behind its array x: element {SIZE} of"),
        (f"y[{SIZE + GUARD_BYTES // 4 - 1}] = 0.0f;", "behind its array y"),
        # Other bits of a NaN, and a NaN of the guard itself at another place of it.
        (f"({BITS}y)[{SIZE}] = 0x7FC00000;", "behind its array y"),
        (f"({BITS}y)[{SIZE}] = ({BITS}y)[{SIZE + 1}];", "behind its array y"),
        (f"({BITS}y)[-1] = ({BITS}t)[-1];", "before its array y"),
        ("((__global float *)x)[0] = 5.5f;", "wrote into its input x, first into element 0"),
    ],
)
def test_a_kernel_that_writes_outside_is_wrong_though_its_result_is_right(
    child: MeasuringChild, statements: str, said: str
) -> None:
    outcome = outcome_of(child, plan(statements))
    assert isinstance(outcome, Wrong), statements
    assert said in outcome.message


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (f"vstore_half(0.0f, {SIZE}, y);", f"behind its array y: element {SIZE} of {SIZE}"),
        ("vstore_half(0.0f, -1, y);", "before its array y: element -1 of"),
    ],
)
def test_guards_of_halves_are_halves(child: MeasuringChild, statements: str, said: str) -> None:
    outcome = outcome_of(child, plan(statements, half=True), "halves")
    assert isinstance(outcome, Wrong)
    assert said in outcome.message


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", ""),
        (f"a[{SIZE}] = 1;", f"behind its array a: element {SIZE} of {SIZE}"),
        (f"a[-1] = a[-{GUARD_BYTES // 2}];", "before its array a: element -1 of"),
        (f"b[{SIZE}] = 3;", f"behind its array b: element {SIZE} of {SIZE}"),
    ],
)
def test_guards_stand_around_integers_too(child: MeasuringChild, more: str, said: str) -> None:
    data, expected = byte_workload()
    child.upload_workload("bytes", {"a": data}, expected)
    one = byte_plan(f"b[i] = 1000003 * (int)a[i]; if (i == 0) {{ {more} }}")
    one = replace(one, source=one.source.replace("const char", "char"))
    tolerance = Tolerance(dtype=Element.INT32)
    outcome = child.measure(one, workload="bytes", protocol=QUICK, tolerance=tolerance)
    assert said in outcome.message if isinstance(outcome, Wrong) else not said, outcome


def test_bytes_of_a_guard_are_alike_in_every_251st_place_only() -> None:
    guard = _marks(0, GUARD_BYTES, 1)
    for distance in range(1, 251):
        assert not (guard[distance:] == guard[:-distance]).any(), distance


def test_a_result_that_was_read_beside_an_array_is_nan(child: MeasuringChild) -> None:
    outcome = outcome_of(child, plan(f"y[0] = x[{SIZE}];"))
    assert isinstance(outcome, Wrong) and "NaN" in outcome.message


@pytest.mark.parametrize(("half", "workload"), [(False, "floats"), (True, "halves")])
def test_a_right_kernel_is_timed_and_says_that_it_was_guarded(
    child: MeasuringChild, half: bool, workload: str
) -> None:
    outcome = outcome_of(child, plan("", half), workload)
    assert isinstance(outcome, Timed), outcome
    assert outcome.facts["guards"] == "around every buffer"


@pytest.mark.parametrize(
    ("element", "bits", "floats", "apart"),
    [(2, np.uint16, np.float16, 1022), (4, np.uint32, np.float32, 2**22)],
)
@pytest.mark.parametrize("number", [0, 1, 7])
def test_no_two_nans_of_a_guard_are_alike_that_are_near(
    element: int, bits: type, floats: type, apart: int, number: int
) -> None:
    count = GUARD_BYTES // element
    guard = _nans(number * count, count, element)
    assert np.isnan(guard.view(floats)).all()
    values = guard.view(bits)
    for distance in range(1, min(apart, count)):
        assert not (values[distance:] == values[:-distance]).any(), distance
    # Two guards in a row count on.
    following = _nans((number + 1) * count, count, element).view(bits)
    assert len(
        set(np.concatenate([values, following])[count - apart // 2 : count + apart // 2])
    ) == (min(apart, 2 * count))
