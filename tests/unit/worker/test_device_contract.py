"""Every measuring device keeps the contract of :mod:`tests.contracts.measuring_device`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from mapper.errors import DeviceError
from mapper.host_plan import HostPlan
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
    outcome_kind,
)
from tests.contracts.farm_board import FarmBoard
from tests.contracts.measuring_device import Subject, cases
from tests.unit.worker.plans import DOUBLE, ENDLESS, SEGFAULT, input_data, one_kernel_plan
from worker.devices.null import NULL_PROFILE, NullDevice, plan_digest
from worker.devices.recorded import RecordedDevice
from worker.measuring import MeasuringChild
from worker.pool import Pool

DATA = input_data()
PLAN = one_kernel_plan(DOUBLE)
#: What no device is found by.
ABSENT = "opencl:no such platform/x"
#: Plans by what they come to where they run.
PLANS = {
    "timed": PLAN,
    "wrong": one_kernel_plan("b[i] = a[i];"),
    "compile-error": one_kernel_plan("b[i] = undeclared;"),
    "resource-error": one_kernel_plan(DOUBLE, local_bytes=2**30),
    "crash": one_kernel_plan(SEGFAULT),
}
RECORDED: tuple[Outcome, ...] = (
    Timed((5, 7), 0.0, 1.0, {}, (6, 7)),
    Wrong(1.0, (0,), "wrong"),
    CompileError("no"),
    ResourceError("too much"),
    Timeout(2.0),
    Crash(-11, "SIGSEGV"),
)


def recorded(*outcomes: Outcome) -> RecordedDevice:
    return RecordedDevice({outcome_kind(o): o for o in outcomes}, NULL_PROFILE)


#: A board replays outcomes by plan.
BOARD_PLANS = {kind: one_kernel_plan(f"/* {kind} */") for kind in map(outcome_kind, RECORDED)}


def farm_board() -> FarmBoard:
    """A board whose device has an outcome of every kind."""
    outcomes = {plan_digest(BOARD_PLANS[outcome_kind(o)]): o for o in RECORDED}
    return FarmBoard(RecordedDevice(outcomes, NULL_PROFILE))


class BrokenNull(NullDevice):
    """A null device that has been unplugged."""

    def measure(self, plan: HostPlan, **options: object) -> Outcome:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise DeviceError("it is unplugged")


def _one_process(device: object) -> list[int]:
    pid = cast("MeasuringChild", device).child_pid
    return [] if pid is None else [pid]


INPUTS, EXPECTED = {"a": DATA}, 2 * DATA
SUBJECTS = (
    Subject(
        "child", MeasuringChild, PLANS, INPUTS, EXPECTED, lambda: MeasuringChild(ABSENT),
        hanging=one_kernel_plan(ENDLESS), processes=_one_process,
    ),
    Subject(
        "pool", lambda: Pool(size=2), PLANS, INPUTS, EXPECTED, lambda: Pool(ABSENT, 2),
        hanging=one_kernel_plan(ENDLESS),
        processes=lambda device: cast("Pool", device).child_pids,
    ),
    Subject(
        "quiet pool", lambda: Pool(size=2, quiet=True), PLANS, INPUTS, EXPECTED,
        lambda: Pool(ABSENT, 2, quiet=True), hanging=one_kernel_plan(ENDLESS),
        processes=lambda device: cast("Pool", device).child_pids,
    ),
    Subject(
        "recorded", lambda: recorded(*RECORDED), {outcome_kind(o): PLAN for o in RECORDED},
        INPUTS, EXPECTED, recorded, checks_plans=False,
    ),
    Subject(
        "farm's board", farm_board, BOARD_PLANS, INPUTS, EXPECTED,
        lambda: FarmBoard(MeasuringChild(ABSENT)), checks_plans=False,
    ),
    Subject("null", NullDevice, {"timed": PLAN}, INPUTS, EXPECTED, BrokenNull),
)  # fmt: skip


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("subject", "check"),
    [pytest.param(s, check, id=f"{s.name}-{check.__name__}") for s, check in cases(SUBJECTS)],
)
def test_contract(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)
