"""The supervised child on the host's PoCL: every outcome, and what follows a bad one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.errors import DeviceError, InputError
from mapper.host_plan import BufferRole, HostPlan
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
)
from tests.unit.worker.plans import (
    DOUBLE,
    ENDLESS,
    SEGFAULT,
    SIZE,
    input_data,
    one_kernel_plan,
    plan_of_source,
    prepared_plan,
    two_kernel_plan,
)
from worker.measuring import MeasuringChild, Protocol, measure
from worker.measuring.child_process import ChildProcess
from worker.measuring.comparison import NOT_FINITE_ERROR
from worker.measuring.golden import golden_kernel

pytestmark = pytest.mark.kernels

DATA = input_data()
QUICK = Protocol(warmup=1, repetitions=3, max_repetitions=3)


@pytest.fixture(scope="module")
def child() -> Iterator[MeasuringChild]:
    with MeasuringChild() as warm:
        warm.upload_workload("double", {"a": DATA}, 2 * DATA)
        yield warm


def run(child: MeasuringChild, plan: HostPlan, timeout_s: float = 60.0) -> Outcome:
    return child.measure(plan, workload="double", protocol=QUICK, timeout_s=timeout_s)


def test_right_kernel_is_timed_with_its_facts(child: MeasuringChild) -> None:
    outcome = run(child, one_kernel_plan(DOUBLE))
    assert isinstance(outcome, Timed)
    assert len(outcome.trials_ns) == 3
    assert all(trial > 0 for trial in outcome.trials_ns)
    assert outcome.max_relative_error == 0
    assert outcome.compile_ms > 0
    for fact in ("driver.version", "platform.version", "kernel.k.max_work_group_size", "stable"):
        assert outcome.facts[fact]
    assert outcome.facts["memory_bytes"] == str(8 * SIZE)


def test_launches_run_in_order_through_intermediates(child: MeasuringChild) -> None:
    outcome = run(child, two_kernel_plan())
    assert isinstance(outcome, Timed)
    # From the first start to the last end there is more than the launches themselves.
    assert len(outcome.spans_ns) == len(outcome.trials_ns) == 3
    assert all(s > k for s, k in zip(outcome.spans_ns, outcome.trials_ns, strict=True))
    assert outcome.time_ms == outcome.span_ms > outcome.kernel_ms


def test_one_launch_has_one_time(child: MeasuringChild) -> None:
    outcome = run(child, one_kernel_plan(DOUBLE))
    assert isinstance(outcome, Timed) and outcome.spans_ns == outcome.trials_ns


#: Right the first time after poison, wrong when it runs again.
ONCE = "t[i] = isnan(t[i]) ? a[i] : t[i] + 1;"


def test_prepared_launches_run_once_and_do_not_count(child: MeasuringChild) -> None:
    outcome = run(child, prepared_plan(ONCE, "b[i] = 2 * t[i];"))
    assert isinstance(outcome, Timed)
    assert outcome.spans_ns == outcome.trials_ns
    assert float(outcome.facts["prepared_ms"]) > 0
    again = run(child, prepared_plan(ONCE, "b[i] = 2 * t[i];", prepared=False))
    assert isinstance(again, Wrong)


def test_who_spoils_what_was_prepared_is_found(child: MeasuringChild) -> None:
    outcome = run(child, prepared_plan("t[i] = a[i];", "b[i] = 2 * t[i]; t[i] = 0;"))
    assert isinstance(outcome, Wrong)


def test_compile_time_is_not_shortened_by_a_cache(child: MeasuringChild) -> None:
    # The marker keeps the source apart from those of the other tests.
    plan = plan_of_source("/* twice */" + one_kernel_plan(DOUBLE).source)
    first, second = run(child, plan), run(child, plan)
    assert isinstance(first, Timed) and isinstance(second, Timed)
    # A cache makes the second build many times faster; noise does not.
    assert second.compile_ms > first.compile_ms / 4


def test_wrong_values_name_the_first_bad_element(child: MeasuringChild) -> None:
    outcome = run(child, one_kernel_plan("b[i] = i < 5 ? 2 * a[i] : a[i];"))
    assert isinstance(outcome, Wrong)
    assert outcome.first_bad_index == (5,)
    assert 0.1 < outcome.max_relative_error < 1


@pytest.mark.parametrize("value", ["NAN", "INFINITY"])
def test_not_finite_output_is_wrong(child: MeasuringChild, value: str) -> None:
    outcome = run(child, one_kernel_plan(f"b[i] = i == 7 ? {value} : 2 * a[i];"))
    assert isinstance(outcome, Wrong)
    assert outcome.first_bad_index == (7,)
    assert outcome.max_relative_error == NOT_FINITE_ERROR


def test_unwritten_output_shows_the_poison_even_after_a_right_kernel(
    child: MeasuringChild,
) -> None:
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)
    outcome = run(child, one_kernel_plan("if (i > 1000) b[i] = 2 * a[i];"))
    assert isinstance(outcome, Wrong)
    assert outcome.first_bad_index == (0,)
    assert "never written" in outcome.message


def test_wrong_only_in_later_runs_is_found(child: MeasuringChild) -> None:
    # Right on the fresh input, wrong once it has spoilt its own input.
    plan = plan_of_source(
        "__kernel void k(__global float *a, __global float *b)"
        "{ int i = get_global_id(0); b[i] = 2 * a[i]; a[i] = 0; }"
    )
    assert isinstance(run(child, plan), Wrong)


def test_source_that_does_not_compile(child: MeasuringChild) -> None:
    outcome = run(child, one_kernel_plan("b[i] = undeclared;"))
    assert isinstance(outcome, CompileError)
    assert "undeclared" in outcome.message
    assert "/" not in outcome.message.replace("kernel.cl", ""), "paths make messages differ"


def test_missing_kernel_and_missing_parameter(child: MeasuringChild) -> None:
    renamed = plan_of_source(one_kernel_plan(DOUBLE).source.replace("void k", "void other"))
    assert isinstance(run(child, renamed), CompileError)
    fewer = plan_of_source("__kernel void k(__global float *b) { b[get_global_id(0)] = 1; }")
    outcome = run(child, fewer)
    assert isinstance(outcome, CompileError)
    assert "1 parameters; the plan passes 2" in outcome.message


def test_too_large_work_group(child: MeasuringChild) -> None:
    # The driver takes 4096, more than the profile allows.
    group = 8192
    child.upload_workload("large", {"a": np.ones(group, np.float32)}, np.ones(group, np.float32))
    plan = one_kernel_plan("b[i] = a[i];", size=group, group=group)
    outcome = child.measure(plan, workload="large")
    assert isinstance(outcome, ResourceError)
    assert "INVALID_WORK_GROUP_SIZE" in outcome.message


def test_too_much_local_memory(child: MeasuringChild) -> None:
    local_bytes = 4 * child.profile().local_bytes
    outcome = run(child, one_kernel_plan(DOUBLE, local_bytes=local_bytes))
    assert isinstance(outcome, ResourceError)
    assert "local memory" in outcome.message


def test_too_large_buffer_and_too_much_memory(child: MeasuringChild) -> None:
    profile = child.profile()
    too_large = one_kernel_plan(DOUBLE, output_bytes=profile.max_alloc_bytes + 4096)
    assert isinstance(run(child, too_large), ResourceError)
    outcome = run(child, one_kernel_plan(DOUBLE, output_bytes=4 * profile.global_bytes))
    assert isinstance(outcome, ResourceError)
    assert "global memory" in outcome.message


def test_endless_kernel_is_killed_with_its_group_and_the_next_job_runs(
    child: MeasuringChild,
) -> None:
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)
    pid = child.child_pid
    assert pid is not None
    started = time.monotonic()
    assert run(child, one_kernel_plan(ENDLESS), timeout_s=2.0) == Timeout(2.0)
    assert time.monotonic() - started < 4
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)


def test_crashing_kernel_is_an_outcome_and_the_next_job_runs(child: MeasuringChild) -> None:
    outcome = run(child, one_kernel_plan(SEGFAULT))
    assert isinstance(outcome, Crash)
    assert outcome.exit_code == -signal.SIGSEGV
    assert "SIGSEGV" in outcome.message
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)


def test_kernel_output_does_not_disturb_the_pipe(child: MeasuringChild) -> None:
    outcome = run(child, one_kernel_plan('printf("noise %d\\n", i); ' + DOUBLE))
    assert isinstance(outcome, Timed)


def test_child_that_dies_between_jobs_is_replaced(child: MeasuringChild) -> None:
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)
    assert child.child_pid is not None
    os.killpg(child.child_pid, signal.SIGKILL)
    starts = child.starts
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)
    assert child.starts == starts + 1


@pytest.mark.parametrize("where", ["submitting", "before"])
def test_interrupted_before_the_child_has_the_request_is_not_begun_by_another(
    child: MeasuringChild, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run(child, one_kernel_plan(DOUBLE))
    starts = child.starts
    submit = ChildProcess.submit

    def interrupted(process: ChildProcess, *rest: Any) -> None:
        monkeypatch.undo()
        child.interrupt()
        while process.is_alive():
            time.sleep(0.005)
        submit(process, *rest)

    if where == "submitting":
        monkeypatch.setattr(ChildProcess, "submit", interrupted)
    else:
        child.interrupt()
    outcome = run(child, one_kernel_plan(ENDLESS))
    assert isinstance(outcome, Crash)
    assert outcome.exit_code == -signal.SIGKILL
    assert child.starts == starts + (where == "submitting")  # proven for the next, and not killed
    child.go_on()
    assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)


def test_interrupted_while_a_child_is_proven_keeps_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = ChildProcess.submit
    with MeasuringChild() as fresh:
        fresh.upload_workload("double", {"a": DATA}, 2 * DATA)

        def interrupted(process: ChildProcess, *rest: Any) -> None:
            fresh.interrupt()
            submit(process, *rest)

        monkeypatch.setattr(ChildProcess, "submit", interrupted)
        assert isinstance(run(fresh, one_kernel_plan(ENDLESS)), Crash)
        monkeypatch.undo()
        fresh.go_on()
        assert isinstance(run(fresh, one_kernel_plan(DOUBLE)), Timed)
        assert fresh.starts == 1


def test_child_dies_with_its_parent_even_while_a_kernel_runs_for_ever(tmp_path: Path) -> None:
    code = (
        "from tests.unit.worker.plans import *\n"
        "from worker.measuring import MeasuringChild\n"
        "child = MeasuringChild()\n"
        "child.upload_workload('w', {'a': input_data()}, input_data())\n"
        "child.profile()\n"
        "print(child.child_pid, flush=True)\n"
        "child.measure(one_kernel_plan(ENDLESS), workload='w', timeout_s=60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.getcwd()},
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        # Long enough for the endless kernel to be compiled and running.
        time.sleep(1.5)
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
        parent.wait()
    end = time.monotonic() + 10
    while running(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not running(pid)


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    # An orphan stays a zombie where nobody reaps it, as in some containers.
    return state not in "ZX"


def test_contradictory_arguments_raise(child: MeasuringChild) -> None:
    plan = one_kernel_plan(DOUBLE)
    with pytest.raises(InputError, match="never uploaded"):
        child.measure(plan, workload="unknown")
    with pytest.raises(InputError, match="timeout_s"):
        run(child, plan, timeout_s=0)
    with pytest.raises(InputError, match="reference's shape"):
        child.upload_workload("short", {"a": DATA}, DATA[:-1])
        child.measure(plan, workload="short")
    with pytest.raises(InputError, match="NaN"):
        child.upload_workload("bad", {"a": DATA}, DATA * np.float32(np.nan))
    with pytest.raises(InputError, match="float32"):
        child.upload_workload("bad", {"a": DATA.astype(np.float64)}, DATA)
    other_role = replace(plan.buffers[1], role=BufferRole.INTERMEDIATE)
    with pytest.raises(InputError, match="output"):
        run(child, replace(plan, buffers=(plan.buffers[0], other_role)))


def test_device_that_is_not_there_raises_and_lists_what_is() -> None:
    with MeasuringChild("opencl:no such platform/x") as child:
        with pytest.raises(DeviceError, match="no OpenCL device fits") as caught:
            child.profile()
        assert "0: " in str(caught.value)
        assert not child.quarantine_reason


def test_failing_probe_recovers_once_and_then_quarantines() -> None:
    golden = golden_kernel()
    calls: list[str] = []
    with MeasuringChild(
        golden=replace(golden, expected=golden.expected + 1),
        recovery=lambda: calls.append("recovery"),
    ) as child:
        child.upload_workload("double", {"a": DATA}, 2 * DATA)
        with pytest.raises(DeviceError, match="golden kernel fails"):
            run(child, one_kernel_plan(DOUBLE))
        assert calls == ["recovery"]
        assert child.starts == 2
        assert child.child_pid is None
        with pytest.raises(DeviceError, match="quarantined"):
            run(child, one_kernel_plan(DOUBLE))
        assert child.starts == 2


def test_golden_kernel_is_sensitive_to_its_inputs() -> None:
    assert len(np.unique(golden_kernel().expected)) > 10_000


def test_closing_leaves_neither_process_nor_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with MeasuringChild() as child:
        child.upload_workload("double", {"a": DATA}, 2 * DATA)
        assert isinstance(run(child, one_kernel_plan(DOUBLE)), Timed)
        pid = child.child_pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(tmp_path.iterdir()) == []


def test_measuring_once() -> None:
    outcome = measure(one_kernel_plan(DOUBLE), {"a": DATA}, 2 * DATA, protocol=QUICK)
    assert isinstance(outcome, Timed)
