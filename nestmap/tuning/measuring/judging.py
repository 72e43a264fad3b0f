"""Whether an output is right, and how far it is from a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.measurement import Wrong
from nestmap.tuning.reference import Workload
from worker.measuring.comparison import compare
from worker.measuring.settings import Tolerance

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``relative_error`` is ‖output − reference‖ / ‖reference‖ in the 2-norm, in float64."""

    relative_error: float
    wrong: Wrong | None


class Judge:
    """Holds outputs against one reference (float64, the output's logical shape)."""

    def __init__(self, expected: Array, tolerance: Tolerance) -> None:
        self._expected = expected.astype(np.float64, copy=False)
        self._tolerance = tolerance
        self._single = expected.astype(np.float32)
        norm = float(np.linalg.norm(self._expected))
        self._norm = norm or 1.0
        root_mean_square = norm / np.sqrt(expected.size) or 1.0
        # Half of what an element near zero may be off: room for rounding the reference.
        self._surely_right = 0.5 * tolerance.relative * root_mean_square

    def glance(self, output: Array) -> Wrong | None:
        """None if right. Quick where the output is right, as nearly all are."""
        if output.shape != self._expected.shape:
            return self._other_shape(output)
        # NaN compares false, so it goes on to the exact comparison.
        if float(np.abs(output - self._single).max()) <= self._surely_right:
            return None
        return compare(output, self._expected, self._tolerance).wrong

    def verdict(self, output: Array) -> Verdict:
        """The exact comparison, with the error's norm."""
        if output.shape != self._expected.shape:
            return Verdict(float("inf"), self._other_shape(output))
        difference = output.astype(np.float64) - self._expected
        error = float(np.linalg.norm(difference)) / self._norm
        return Verdict(error, compare(output, self._expected, self._tolerance).wrong)

    def _other_shape(self, output: Array) -> Wrong:
        message = f"the output's shape is {output.shape}; the reference's is {self._expected.shape}"
        return Wrong(float(np.finfo(np.float64).max), (), message)


def save_workload(workload: Workload, folder: Path) -> None:
    """Write a workload's arrays for the processes that measure with it."""
    folder.mkdir(parents=True)
    for name, array in workload.inputs.items():
        np.save(folder / f"input-{name}.npy", array, allow_pickle=False)
    np.save(folder / "expected.npy", workload.expected, allow_pickle=False)


def load_workload(folder: Path, tolerance: Tolerance) -> Workload:
    """Read what :func:`save_workload` wrote."""
    inputs = {
        path.stem.removeprefix("input-"): np.load(path, allow_pickle=False)
        for path in sorted(folder.glob("input-*.npy"))
    }
    return Workload(inputs, np.load(folder / "expected.npy", allow_pickle=False), tolerance)
