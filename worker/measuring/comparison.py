"""Comparing an output with the reference."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from mapper.measurement import Wrong
from worker.measuring.settings import Tolerance

#: Stands for the error of an output that holds NaN or infinity. A finite number, because
#: neither JSON nor PostgreSQL's jsonb knows infinity; larger than any error of real numbers.
NOT_FINITE_ERROR = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Comparison:
    """What :func:`compare` found; ``wrong`` is None when the output is right."""

    max_relative_error: float
    wrong: Wrong | None


def compare(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], tolerance: Tolerance
) -> Comparison:
    """Compare element by element under ``tolerance``; NaN and infinity are never right.

    The error of an element is ``|out - ref| / scale`` (see :class:`Tolerance`), without unit.
    Expects equal shapes and a finite reference.
    """
    reference = expected.astype(np.float64)
    output = actual.astype(np.float64)
    # A reference of zeros only leaves no scale of its own: errors are then absolute.
    root_mean_square = float(np.sqrt(np.mean(np.square(reference)))) or 1.0
    scale = np.maximum(np.abs(reference), root_mean_square)
    finite = np.isfinite(output)
    errors = np.full(reference.shape, NOT_FINITE_ERROR)
    np.divide(np.abs(output - reference), scale, out=errors, where=finite)
    largest = float(errors.max())
    bad = errors > tolerance.relative
    if not bad.any():
        return Comparison(largest, None)
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    message = (
        f"{int(bad.sum())} of {bad.size} elements are wrong; first at {list(first)}: "
        f"{float(output[first])!r} where the reference is {float(reference[first])!r}; "
        f"allowed relative error {tolerance.relative:.3g}"
    )
    not_finite = int((~finite).sum())
    if not_finite:
        message += (
            f"; {not_finite} are NaN or infinite (buffers are poisoned with NaN before the "
            "verified run, so an element that was never written shows as NaN)"
        )
    return Comparison(largest, Wrong(largest, first, message))
