"""Oclgrind must find what a lucky run hides: one bad kernel for each kind of fault."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mapper.errors import DeviceError
from tests.unit.worker.plans import (
    DOUBLE,
    ENDLESS,
    HEAD,
    input_data,
    one_kernel_plan,
    plan_of_source,
    two_kernel_plan,
)
from worker.oclgrind import FindingKind, OclgrindReport, Simulation, check, check_many

pytestmark = pytest.mark.needs("oclgrind", install="apt-get install oclgrind")

DATA = input_data()


def check_body(body: str, timeout_s: float = 120) -> OclgrindReport:
    return check(one_kernel_plan(body), {"a": DATA}, 2 * DATA, timeout_s=timeout_s)


def test_right_kernels_are_clean() -> None:
    report = check_body(DOUBLE)
    assert report.ok, report.messages
    report = check(two_kernel_plan(), {"a": DATA}, 2 * DATA)
    assert report.ok, report.messages
    tiled = (
        "__local float tile[16]; int l = get_local_id(0); tile[l] = a[i]; "
        "barrier(CLK_LOCAL_MEM_FENCE); float x = tile[15 - l]; barrier(CLK_LOCAL_MEM_FENCE); "
        "tile[15 - l] = 2 * x; barrier(CLK_LOCAL_MEM_FENCE); b[i] = tile[l];"
    )
    report = check_body(tiled)
    assert report.ok, report.messages


def test_data_race_in_global_memory() -> None:
    report = check_body("b[0] = a[i]; " + DOUBLE)
    assert FindingKind.DATA_RACE in report.kinds, report.messages


def test_data_race_in_local_memory_that_leaves_the_right_output() -> None:
    # In the simulator's order of work-items nothing goes wrong; only the race check sees it.
    report = check_body(
        "__local float last; if (get_local_id(0) == 0) last = 0; barrier(CLK_LOCAL_MEM_FENCE); "
        "last = a[i]; b[i] = 2 * last;"
    )
    assert FindingKind.DATA_RACE in report.kinds, report.messages
    assert FindingKind.WRONG_OUTPUT not in report.kinds


def test_read_of_private_memory_that_was_never_written() -> None:
    report = check_body("float t[4]; t[0] = 1; b[i] = 2 * a[i] + t[(i & 1) + 1];")
    assert FindingKind.UNINITIALIZED in report.kinds, report.messages
    assert "input.cl" in report.messages[0]


def test_read_of_an_intermediate_that_was_never_written() -> None:
    source = two_kernel_plan().source.replace("t[get_global_id(0) * 2] = a", "float x = a")
    plan = two_kernel_plan()
    report = check(type(plan)(source, plan.buffers, plan.launches), {"a": DATA}, 2 * DATA)
    assert FindingKind.UNINITIALIZED in report.kinds, report.messages


def test_barrier_that_not_all_work_items_reach() -> None:
    report = check_body("if (get_local_id(0) < 8) barrier(CLK_LOCAL_MEM_FENCE); " + DOUBLE)
    assert FindingKind.DIVERGENCE in report.kinds, report.messages


def test_read_and_write_out_of_bounds() -> None:
    report = check_body("b[i] = 2 * a[i] + 0 * a[i + 1];")
    assert FindingKind.INVALID_ACCESS in report.kinds, report.messages
    report = check_body("__local float t[4]; t[i % 16] = a[i]; b[i] = 2 * t[i % 16];")
    assert FindingKind.INVALID_ACCESS in report.kinds, report.messages
    report = check_body("float t[4]; t[i % 16] = a[i]; b[i] = 2 * t[i % 16];")
    assert FindingKind.INVALID_ACCESS in report.kinds, report.messages
    report = check_body("b[i == 63 ? 64 : i] = 2 * a[i];")
    assert FindingKind.INVALID_ACCESS in report.kinds, report.messages


def test_wrong_output_without_any_fault() -> None:
    report = check_body("b[i] = a[i];")
    assert report.kinds == {FindingKind.WRONG_OUTPUT}


def test_endless_kernel_ends_at_the_deadline() -> None:
    assert FindingKind.TIMEOUT in check_body(ENDLESS, timeout_s=3).kinds


def test_source_that_does_not_compile_is_a_finding() -> None:
    report = check(plan_of_source(HEAD), {"a": DATA}, 2 * DATA)
    assert FindingKind.FAILED in report.kinds
    assert "CompileError" in report.messages[-1]


def test_missing_simulator_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeviceError, match="apt-get install oclgrind"):
        check_body(DOUBLE)


def simulation(body: str) -> Simulation:
    return Simulation(one_kernel_plan(body), {"a": DATA}, 2 * DATA)


def test_plans_of_one_start_do_not_notice_each_others_faults() -> None:
    crash = "int z = get_global_id(0); b[i] = a[i] / (100 / (z - z));"
    bodies = (DOUBLE, ENDLESS, "b[0] = a[i]; " + DOUBLE, crash, "b[i] = a[i];", DOUBLE)
    reports = check_many([simulation(body) for body in bodies], timeout_s=5)
    assert reports[0].ok, reports[0].messages
    assert FindingKind.TIMEOUT in reports[1].kinds
    assert FindingKind.DATA_RACE in reports[2].kinds
    assert not reports[3].ok
    assert reports[4].kinds == {FindingKind.WRONG_OUTPUT}
    assert reports[5].ok, reports[5].messages


def test_a_plan_that_takes_the_simulator_down_loses_only_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its parent is killed each time that the second plan runs."""
    script = tmp_path / "oclgrind"
    real = shutil.which("oclgrind")
    script.write_text(
        f'#!/bin/sh\n{real} "$@" & server=$!\n'
        "for word; do folder=$last; last=$word; done\n"
        "while kill -0 $server 2>/dev/null; do\n"
        '  if [ -e "$folder/1/stderr.txt" ] && [ ! -e "$folder/1/exit.txt" ]; then\n'
        "    kill -9 $server\n"
        "  fi\n"
        "done\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reports = check_many([simulation(body) for body in (DOUBLE, ENDLESS, DOUBLE)], timeout_s=20)
    assert reports[0].ok and reports[2].ok
    assert reports[1].kinds == {FindingKind.FAILED}


def test_a_simulator_that_does_not_start_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "oclgrind"
    script.write_text("#!/bin/sh\necho no simulator here >&2; exit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DeviceError, match=r"exit code 3.*no simulator here"):
        check_many([simulation(DOUBLE)])


def test_no_plans_need_no_simulator() -> None:
    assert check_many(()) == ()
