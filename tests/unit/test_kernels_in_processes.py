"""A driver that dies fails the one test whose kernel it was, and names signal and kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INNER = """
import os

import numpy as np
import pytest

from tests.kernels import run_once
from tests.unit.worker.plans import DOUBLE, SEGFAULT, input_data, one_kernel_plan
from worker.measuring.loaded_plan import open_session


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
"""


def test_a_crash_is_one_failure_with_its_signal_and_the_next_test_passes(tmp_path: Path) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text(INNER)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
         "--import-mode=importlib", str(inner)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )  # fmt: skip
    assert "2 failed, 3 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "the driver died of SIGSEGV (Segmentation fault) while it built or ran k" in ended.stdout
    assert "the process of the test died of SIGABRT" in ended.stdout
