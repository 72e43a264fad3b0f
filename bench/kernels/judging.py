"""Whether an output is right, and how far it is from a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.measurement import Wrong
from worker.measuring.comparison import Reference
from worker.measuring.settings import Tolerance

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``relative_error`` is ‖output − reference‖ / ‖reference‖ in the 2-norm, in float64, also of
    an output that is wrong: libraries are held against a tolerance of their own."""

    relative_error: float
    wrong: Wrong | None


class Judge:
    """Holds outputs against one reference (float64, the output's logical shape)."""

    def __init__(self, expected: Array, tolerance: Tolerance) -> None:
        self._expected = expected.astype(np.float64, copy=False)
        self._tolerance = tolerance
        self._reference = Reference(expected)
        self._norm = float(np.linalg.norm(self._expected)) or 1.0

    def verdict(self, output: Array) -> Verdict:
        """The exact comparison, with the error's norm; another shape is wrong."""
        if output.shape != self._expected.shape:
            return Verdict(float("inf"), self._other_shape(output))
        error = float(np.linalg.norm(output.astype(np.float64) - self._expected)) / self._norm
        return Verdict(error, self._reference.compare(output, self._tolerance).wrong)

    def _other_shape(self, output: Array) -> Wrong:
        message = f"the output's shape is {output.shape}; the reference's is {self._expected.shape}"
        return Wrong(float(np.finfo(np.float64).max), (), message)
