"""What only the null and recorded devices do; test_device_contract.py has what all do."""

from __future__ import annotations

import pytest

from mapper.errors import DeviceError, InputError
from mapper.measurement import Timed, Timeout
from tests.unit.worker.plans import DOUBLE, input_data, one_kernel_plan
from worker.devices.null import NULL_PROFILE, NullDevice, plan_digest
from worker.devices.recorded import RecordedDevice
from worker.measuring import Protocol

DATA = input_data()
PLAN = one_kernel_plan(DOUBLE)


def test_null_times_depend_on_the_plan_alone() -> None:
    def time_of(body: str) -> Timed:
        with NullDevice() as device:
            device.upload_workload("double", {"a": DATA}, 2 * DATA)
            outcome = device.measure(
                one_kernel_plan(body), workload="double", protocol=Protocol(repetitions=4)
            )
        assert isinstance(outcome, Timed)
        return outcome

    assert time_of(DOUBLE) == time_of(DOUBLE)
    assert time_of(DOUBLE).trials_ns != time_of("b[i] = a[i];").trials_ns
    assert len(time_of(DOUBLE).trials_ns) == 4
    assert 1 <= time_of(DOUBLE).time_ms <= 101
    assert len(plan_digest(PLAN)) == 64


def test_null_refuses_what_a_real_device_refuses() -> None:
    with NullDevice() as device, pytest.raises(InputError, match="never uploaded"):
        device.measure(PLAN, workload="unknown")


def test_recorded_replays_and_names_what_it_does_not_know() -> None:
    with RecordedDevice({"slow": Timeout(3.0)}, NULL_PROFILE) as device:
        assert device.measure(PLAN, workload="any", candidate="slow") == Timeout(3.0)
        with pytest.raises(DeviceError, match="nothing was recorded"):
            device.measure(PLAN, workload="any", candidate="fast")
