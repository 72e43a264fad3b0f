"""Running a plan once in this process, and the module's command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import DeviceError, InputError
from tests.unit.worker.plans import DOUBLE, input_data, one_kernel_plan, two_kernel_plan
from worker.run_plan import main, run_once

pytestmark = pytest.mark.kernels(alone=True)

DATA = input_data()


def test_running_once_returns_the_output() -> None:
    assert np.array_equal(run_once(two_kernel_plan(), {"a": DATA}), 2 * DATA)


def test_what_cannot_run_raises() -> None:
    with pytest.raises(DeviceError, match="undeclared"):
        run_once(one_kernel_plan("b[i] = undeclared;"), {"a": DATA})
    with pytest.raises(InputError, match="no such input"):
        run_once(one_kernel_plan(DOUBLE), {})


def test_a_kernel_that_writes_outside_or_leaves_elements_out_is_found() -> None:
    for body, said in (
        ("b[i] = 2*a[i]; if (i == 0) b[-1] = 1.0f;", "before its array b: element -1"),
        ("b[i] = 2*a[i]; if (i == 0) ((__global float *)a)[3] = 9.0f;", "into its input a"),
    ):
        with pytest.raises(DeviceError, match=f"writes outside of its arrays.*{said}"):
            run_once(one_kernel_plan(body), {"a": DATA})
    # What was left out is no 0 of fresh memory; a simulator finds that, and this, by itself.
    plan = one_kernel_plan("if (i != 5) b[i] = 2*a[i];")
    assert np.flatnonzero(np.isnan(run_once(plan, {"a": DATA}))).tolist() == [5]
    outside = one_kernel_plan("b[i] = 2*a[i]; if (i == 0) ((__global float *)a)[3] = 9.0f;")
    assert np.array_equal(run_once(outside, {"a": DATA}, guarded=False)[4:], 2 * DATA[4:])


def test_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("plan.json", "inputs.npz", "out.npy")]
    Path(paths[0]).write_text(json.dumps(one_kernel_plan(DOUBLE).to_json()))
    np.savez(paths[1], a=DATA)
    assert main([*paths, "--device", "pocl"]) == 0
    assert np.array_equal(np.load(paths[2]), 2 * DATA)
    assert capfd.readouterr() == ("", "")
    assert main([*paths, "--device", "nothing"]) == 1
    assert "no OpenCL device fits 'nothing'" in capfd.readouterr().err
