"""A driver that dies fails the one test whose kernel it was, and names signal and kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernels

ROOT = Path(__file__).parents[2]
INNER = """
import os

import numpy as np
import pytest

from tests.kernels import run_once
from tests.unit.worker.plans import DOUBLE, SEGFAULT, input_data, one_kernel_plan
from worker.measuring.loaded_plan import open_session
from worker.run_plan import run_once as run_here

pytestmark = pytest.mark.kernels


@pytest.fixture
def session():
    return open_session("pocl")


def test_before():
    assert np.array_equal(run_once(one_kernel_plan(DOUBLE), {"a": input_data()}), 2 * input_data())


def test_kernel_that_kills_its_process():
    run_once(one_kernel_plan(SEGFAULT), {"a": input_data()})


def test_after():
    assert np.array_equal(run_once(one_kernel_plan(DOUBLE), {"a": input_data()}), 2 * input_data())


def test_session_that_kills_its_process(session):
    os.abort()


def test_session_after(session):
    assert session.device.is_pocl


@pytest.mark.kernels(alone=True)
def test_kernel_that_kills_the_process_of_its_test():
    run_here(one_kernel_plan(SEGFAULT), {"a": input_data()})


def test_kernel_here():
    run_here(one_kernel_plan(DOUBLE), {"a": input_data()})
"""
HANGING = """
import numpy as np
import pytest

from tests import kernels
from tests.unit.worker.plans import DOUBLE, input_data, one_kernel_plan

pytestmark = pytest.mark.kernels
ENDLESS = "while (a[i] < 1e30f) b[i] += 1.0f; "


def test_before():
    kernels.run_once(one_kernel_plan(DOUBLE), {"a": input_data()})
    # The child is there and PoCL is loaded: what follows takes well under this.
    kernels._children[0]._timeout_s = 4.0


def test_kernel_that_hangs():
    kernels.run_once(one_kernel_plan(ENDLESS), {"a": input_data()})


def test_after():
    kernels._children[0]._timeout_s = kernels.TIMEOUT_S
    plan = one_kernel_plan(DOUBLE)
    assert np.array_equal(kernels.run_once(plan, {"a": input_data()}), 2 * input_data())
"""
#: Neither is marked: the second would have a process below it build a kernel.
UNMARKED = """
from tests.kernels import run_once
from tests.unit.worker.plans import DOUBLE, input_data, one_kernel_plan


def test_that_needs_no_kernel():
    pass


def test_of_a_kernel():
    run_once(one_kernel_plan(DOUBLE), {"a": input_data()})
"""


def inner_run(folder: Path, text: str) -> str:
    """What pytest says of a file of tests."""
    inner = folder / "test_inner.py"
    inner.write_text(text)
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder),
         "--import-mode=importlib", str(inner)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )  # fmt: skip
    return ended.stdout + ended.stderr


def test_a_crash_is_one_failure_with_its_signal_and_the_next_test_passes(tmp_path: Path) -> None:
    said = inner_run(tmp_path, INNER)
    assert "4 failed, 3 passed" in said
    assert "the driver died of SIGSEGV (Segmentation fault) while it built or ran k" in said
    assert "the process of the test died of SIGABRT" in said
    assert "the process of the test died of SIGSEGV" in said
    assert "a kernel would run in the process of the tests" in said


def test_a_kernel_that_hangs_is_one_failure_with_its_name_and_the_next_test_passes(
    tmp_path: Path,
) -> None:
    said = inner_run(tmp_path, HANGING)
    assert "1 failed, 2 passed" in said
    assert "the driver took over 4 s to build and run k" in said


def test_a_test_of_kernels_that_is_not_marked_fails(tmp_path: Path) -> None:
    said = inner_run(tmp_path, UNMARKED)
    assert "1 failed, 1 passed" in said
    assert "no mark `kernels`" in said
