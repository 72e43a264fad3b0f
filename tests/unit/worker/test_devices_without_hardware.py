"""What holds for every measuring device, and what only the null and recorded ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mapper.errors import DeviceError, InputError
from mapper.measurement import Timed, Timeout
from tests.unit.worker.plans import DOUBLE, input_data, one_kernel_plan
from worker.devices.interface import MeasuringDevice
from worker.devices.null import NULL_PROFILE, NullDevice, plan_digest
from worker.devices.recorded import RecordedDevice
from worker.measuring import MeasuringChild, Protocol

DATA = input_data()
PLAN = one_kernel_plan(DOUBLE)


def recorded() -> RecordedDevice:
    return RecordedDevice({"first": Timed((5,), 0.0, 1.0)}, NULL_PROFILE, {"driver.version": "9"})


@pytest.mark.kernels
@pytest.mark.parametrize("make", [MeasuringChild, NullDevice, recorded])
def test_every_device_profiles_names_and_measures(make: Callable[[], MeasuringDevice]) -> None:
    with make() as device:
        assert isinstance(device, MeasuringDevice)
        assert device.profile().max_work_group_size > 0
        assert device.facts()["device.kind"]
        device.upload_workload("double", {"a": DATA}, 2 * DATA)
        outcome = device.measure(PLAN, workload="double", candidate="first")
        assert isinstance(outcome, Timed)
        assert outcome.time_ms > 0
        with pytest.raises(InputError):
            device.upload_workload("bad", {"a": DATA.astype(int)}, DATA)


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
