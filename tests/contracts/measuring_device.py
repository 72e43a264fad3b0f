"""What holds for every measuring device: checks, each of them a function of a subject.

``cases(subjects)`` are the pairs that apply. A device that cannot fail in a certain way has no case
for it: nothing is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from mapper.elements import Element
from mapper.errors import DeviceError, InputError
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed, Timeout, outcome_kind
from tests.unit.worker.plans import byte_plan, byte_workload
from worker.devices.interface import MeasuringDevice
from worker.measuring import Deadlines, MeasureRequest, Protocol, Tolerance

Array = np.ndarray

KEY = "the workload"
QUICK = Protocol(warmup=0, repetitions=2, max_repetitions=2)
#: For one candidate, on a machine that does something else as well.
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Subject:
    """A kind of device, with plans that come to a kind of outcome on it.

    ``plans[kind]`` is measured under the id ``kind`` on ``inputs`` and ``expected``; one that is
    ``hanging`` does not end by itself. ``broken`` makes one that fails as a device.
    """

    name: str
    make: Callable[[], MeasuringDevice]
    plans: dict[str, HostPlan]
    inputs: dict[str, Array]
    expected: Array
    broken: Callable[[], MeasuringDevice]
    checks_plans: bool = True
    hanging: HostPlan | None = None
    processes: Callable[[MeasuringDevice], Iterable[int]] = field(default=lambda device: ())

    def ready(self) -> MeasuringDevice:
        """A device that knows the workload; the caller closes it."""
        device = self.make()
        device.upload_workload(KEY, self.inputs, self.expected)
        return device

    def request(
        self,
        kind: str = "timed",
        candidate: str | None = None,
        timeout_s: float = PATIENCE_S,
        deadlines: Deadlines | None = None,
    ) -> MeasureRequest:
        """A request for the plan of a kind, under the kind's name unless told otherwise."""
        return MeasureRequest(
            self.plans[kind],
            KEY,
            kind if candidate is None else candidate,
            protocol=QUICK,
            timeout_s=timeout_s,
            deadlines=deadlines or Deadlines(),
        )


def taken(device: MeasuringDevice, count: int) -> list[tuple[str, Outcome]]:
    """So many results."""
    found: list[tuple[str, Outcome]] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count:
        one = device.result(end - time.monotonic())
        assert one is not None, f"{count - len(found)} results have not come"
        found.append(one)
    return found


# Every device


def says_what_it_is(subject: Subject) -> None:
    with subject.make() as device:
        assert isinstance(device, MeasuringDevice)
        assert device.profile().max_work_group_size > 0
        assert device.facts()["device.kind"]
        assert device.size >= 1
        assert device.waiting == 0


def measures_while_the_caller_waits(subject: Subject) -> None:
    with subject.ready() as device:
        for kind, plan in subject.plans.items():
            outcome = device.measure(
                plan, workload=KEY, candidate=kind, protocol=QUICK, timeout_s=PATIENCE_S
            )
            assert outcome_kind(outcome) == kind, outcome
        assert device.waiting == 0


def gives_back_what_was_handed_over_by_its_id(subject: Subject) -> None:
    """Outcomes of all kinds, each under its own id; a bad one takes no other along."""
    with subject.ready() as device:
        wanted = [*subject.plans, *subject.plans]
        for kind in wanted:
            device.submit(subject.request(kind))
        assert device.waiting == len(wanted)
        found = [(name, outcome_kind(outcome)) for name, outcome in taken(device, len(wanted))]
        assert sorted(found) == sorted((kind, kind) for kind in wanted)
        if device.size == 1:
            assert [name for name, _ in found] == wanted
        assert device.waiting == 0


def takes_integers_of_all_sizes(subject: Subject) -> None:
    data, expected = byte_workload()
    with subject.make() as device:
        device.upload_workload(KEY, {"a": data}, expected)
        tolerance = Tolerance(dtype=Element.INT32)
        outcome = device.measure(
            byte_plan(), workload=KEY, tolerance=tolerance, protocol=QUICK, timeout_s=PATIENCE_S
        )
        assert outcome_kind(outcome) == "timed", outcome


def a_time_is_of_as_many_spans_as_trials(subject: Subject) -> None:
    with subject.ready() as device:
        device.submit(subject.request())
        ((_, outcome),) = taken(device, 1)
        assert isinstance(outcome, Timed) and outcome.trials_ns
        assert len(outcome.spans_ns) in (0, len(outcome.trials_ns))
        assert outcome.kernel_ms > 0 and outcome.time_ms == outcome.span_ms > 0


def nothing_is_waited_for_where_nothing_is_waiting(subject: Subject) -> None:
    with subject.ready() as device:
        started = time.monotonic()
        assert device.result(PATIENCE_S) is None
        assert device.drop_queued() == []
        assert time.monotonic() - started < PATIENCE_S / 2


def what_nobody_has_begun_can_be_taken_back(subject: Subject) -> None:
    kind = "timed"
    with subject.ready() as device:
        for _ in range(20):
            device.submit(subject.request(kind))
        dropped = device.drop_queued()
        assert dropped == [kind] * len(dropped) and len(dropped) >= 20 - 2 * device.size
        assert device.waiting == 20 - len(dropped)
        assert len(taken(device, device.waiting)) == 20 - len(dropped)
        assert device.result(0.01) is None
        # And it goes on.
        device.submit(subject.request(kind))
        assert [name for name, _ in taken(device, 1)] == [kind]


def refuses_arrays_that_are_no_floats(subject: Subject) -> None:
    with subject.make() as device:
        for inputs, expected in (
            ({"a": np.arange(4)}, np.ones(4, np.float32)),
            ({"a": np.ones(4, np.float32)}, np.full(4, np.nan, np.float32)),
        ):
            with pytest.raises(InputError):
                device.upload_workload("bad", inputs, expected)


def a_device_that_fails_raises(subject: Subject) -> None:
    with subject.broken() as device:
        device.upload_workload(KEY, subject.inputs, subject.expected)
        request = subject.request(candidate="nobody has it")
        with pytest.raises(DeviceError):
            device.measure(request.plan, workload=KEY, candidate=request.candidate)
        with pytest.raises(DeviceError):
            device.submit(request)
            device.result(PATIENCE_S)
        assert device.waiting == 0 and device.result(0.01) is None


EVERY_DEVICE = (
    says_what_it_is,
    measures_while_the_caller_waits,
    gives_back_what_was_handed_over_by_its_id,
    a_time_is_of_as_many_spans_as_trials,
    nothing_is_waited_for_where_nothing_is_waiting,
    what_nobody_has_begun_can_be_taken_back,
    refuses_arrays_that_are_no_floats,
    a_device_that_fails_raises,
)


# Devices that look at plans


def refuses_contradictions_when_they_are_handed_over(subject: Subject) -> None:
    with subject.ready() as device:
        unknown = MeasureRequest(subject.plans["timed"], "never uploaded", "x")
        other = {name: np.ones(3, np.float32) for name in subject.inputs}
        device.upload_workload("other", other, subject.expected)
        for request in (unknown, MeasureRequest(subject.plans["timed"], "other", "x")):
            with pytest.raises(InputError):
                device.submit(request)
            with pytest.raises(InputError):
                device.measure(request.plan, workload=request.workload)
        assert device.waiting == 0


# Devices on which something runs


def ends_what_hangs_and_goes_on(subject: Subject) -> None:
    hanging = subject.hanging
    assert hanging is not None
    with subject.ready() as device:
        device.measure(subject.plans["timed"], workload=KEY)  # it has been started
        for name, timeout_s, deadlines in (
            ("whole", 1.5, Deadlines()),
            ("stage", PATIENCE_S, Deadlines(running_s=0.6)),
        ):
            device.submit(
                MeasureRequest(
                    hanging, KEY, name, protocol=QUICK, timeout_s=timeout_s, deadlines=deadlines
                )
            )
        device.submit(subject.request(candidate="fine"))
        found = dict(taken(device, 3))
        assert found["whole"] == Timeout(1.5) and found["stage"] == Timeout(0.6)
        assert isinstance(found["fine"], Timed)


def a_result_that_does_not_come_is_waited_for_no_longer_than_asked(subject: Subject) -> None:
    hanging = subject.hanging
    assert hanging is not None
    with subject.ready() as device:
        device.profile()
        device.submit(MeasureRequest(hanging, KEY, "hangs"))
        started = time.monotonic()
        assert device.result(0.3) is None
        assert 0.2 < time.monotonic() - started < 5
        assert device.waiting == 1


def closes_at_once_whatever_runs(subject: Subject) -> None:
    hanging = subject.hanging
    assert hanging is not None
    device = subject.ready()
    with device:
        device.profile()
        for number in range(3 * device.size):
            device.submit(MeasureRequest(hanging, KEY, str(number)))
        assert device.result(0.8) is None
        processes = list(subject.processes(device))
        assert processes
        started = time.monotonic()
    # A second, and as much again for a machine that does something else as well.
    assert time.monotonic() - started < 2.0
    assert not [pid for pid in processes if _runs(pid)]
    with pytest.raises(DeviceError):
        device.measure(subject.plans["timed"], workload=KEY)


def closes_while_it_opens(subject: Subject) -> None:
    device = subject.ready()
    with device:
        for number in range(device.size):
            device.submit(subject.request(candidate=str(number)))
        started = time.monotonic()
    assert time.monotonic() - started < 2.0
    assert not [pid for pid in subject.processes(device) if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cases(subjects: Iterable[Subject]) -> Iterator[tuple[Subject, Callable[[Subject], None]]]:
    """Each subject with each check that applies to it."""
    for subject in subjects:
        for check in EVERY_DEVICE:
            yield subject, check
        if subject.checks_plans:
            yield subject, refuses_contradictions_when_they_are_handed_over
            yield subject, takes_integers_of_all_sizes
        if subject.hanging is not None:
            yield subject, ends_what_hangs_and_goes_on
            yield subject, a_result_that_does_not_come_is_waited_for_no_longer_than_asked
            yield subject, closes_at_once_whatever_runs
            yield subject, closes_while_it_opens
