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


def test_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("plan.json", "inputs.npz", "out.npy")]
    Path(paths[0]).write_text(json.dumps(one_kernel_plan(DOUBLE).to_json()))
    np.savez(paths[1], a=DATA)
    assert main([*paths, "--device", "pocl"]) == 0
    assert np.array_equal(np.load(paths[2]), 2 * DATA)
    assert capfd.readouterr() == ("", "")
    assert main([*paths, "--device", "nothing"]) == 1
    assert "no OpenCL device fits 'nothing'" in capfd.readouterr().err
