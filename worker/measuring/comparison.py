"""Comparing an output with the reference."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from mapper.measurement import Wrong
from worker.measuring.settings import Tolerance

Array = np.ndarray[Any, Any]

#: Stands for the error of an output that holds NaN or infinity. A finite number, because
#: neither JSON nor PostgreSQL's jsonb knows infinity; larger than any error of real numbers.
NOT_FINITE_ERROR = sys.float_info.max
#: Elements that are compared at once: what is computed of them stays in a core's cache.
_BLOCK = 32_768
#: Elements that a glance looks at.
_GLANCE = 65_536


@dataclass(frozen=True, slots=True)
class Comparison:
    """``max_relative_error`` is the largest of all elements' errors; ``relative_error`` the norm
    of the difference over the norm of the reference, infinite unless the output is right, where
    ``wrong`` is None."""

    max_relative_error: float
    wrong: Wrong | None
    relative_error: float = float("inf")


class Reference:
    """What outputs are compared with (floats, finite), and what is computed of it once.

    Elements that are NaN are not known: outputs may have any finite number there.
    """

    def __init__(self, expected: Array) -> None:
        self._expected = expected
        self._flat = expected.reshape(-1)
        places = np.flatnonzero(~np.isnan(self._flat))
        self._places = None if places.size == self._flat.size else places
        if self._places is not None:
            self._flat = self._flat[self._places]
        reference = self._flat.astype(np.float64, copy=False)
        squares = float(np.mean(np.square(reference)))
        # A reference of zeros only leaves no scale of its own: errors are then absolute.
        self._root_mean_square = sqrt(squares) or 1.0
        self._norm = sqrt(squares * reference.size) or 1.0

    @property
    def checked(self) -> str:
        """What is compared, in words; empty if it is everything."""
        if self._places is None:
            return ""
        return f"{self._places.size:,} of {self._expected.size:,} outputs"

    def glance(self, output: Array, tolerance: Tolerance) -> bool:
        """False if the output is surely wrong: of some elements all over it, in under a ms."""
        # An odd step meets all columns of a power of two.
        flat = output.reshape(-1)
        flat = flat if self._places is None else flat[self._places]
        step = max(1, flat.size // _GLANCE) | 1
        errors, _ = self._errors(flat[::step], self._flat[::step])
        return bool(errors.max() <= tolerance.relative)

    def compare(self, output: Array, tolerance: Tolerance) -> Comparison:
        """Compare element by element under ``tolerance``; NaN and infinity are never right.

        The error of an element is ``|out - ref| / scale`` (see :class:`Tolerance`), without unit.
        Expects equal shapes.
        """
        flat = output.reshape(-1)
        if self._places is not None:
            if not np.isfinite(flat).all():
                return self._all_that_is_wrong(output, tolerance)
            flat = flat[self._places]
        largest = squares = 0.0
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            errors, more = self._errors(flat[block], self._flat[block])
            worst = float(errors.max())
            if not worst <= tolerance.relative:  # NaN is not
                return self._all_that_is_wrong(output, tolerance)
            largest, squares = max(largest, worst), squares + more
        return Comparison(largest, None, sqrt(squares) / self._norm)

    def _errors(self, output: Array, expected: Array) -> tuple[Array, float]:
        """The elements' errors, NaN or infinite where the output is, and the sum of the squared
        differences."""
        scale = expected.astype(np.float64)
        errors = output.astype(np.float64)
        errors -= scale
        np.abs(errors, out=errors)
        # Not by BLAS, which would start threads on all cores for it.
        squares = float(np.square(errors).sum())
        np.abs(scale, out=scale)
        np.maximum(scale, self._root_mean_square, out=scale)
        errors /= scale
        return errors, squares

    def _all_that_is_wrong(self, actual: Array, tolerance: Tolerance) -> Comparison:
        output = actual.astype(np.float64)
        finite = np.isfinite(output)
        errors = self._errors(actual.reshape(-1), self._expected.reshape(-1))[0]
        errors = errors.reshape(output.shape)
        errors[np.isnan(self._expected)] = 0.0
        errors[~finite] = NOT_FINITE_ERROR
        largest = float(errors.max())
        bad = errors > tolerance.relative
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        message = (
            f"{int(bad.sum())} of {bad.size} elements are wrong; first at {list(first)}: "
            f"{float(output[first])!r} where the reference is {_number(self._expected[first])}; "
            f"allowed relative error {tolerance.relative:.3g}"
        )
        if self._places is not None:
            message += f"; compared were {self.checked}, and all for being finite"
        not_finite = int((~finite).sum())
        if not_finite:
            message += (
                f"; {not_finite} are NaN or infinite (buffers are poisoned with NaN before the "
                "verified run, so an element that was never written shows as NaN)"
            )
        return Comparison(largest, Wrong(largest, first, message))


def _number(value: float) -> str:
    return "not known" if np.isnan(value) else repr(float(value))


def compare(actual: Array, expected: Array, tolerance: Tolerance) -> Comparison:
    """As :meth:`Reference.compare`, for a reference that is used once."""
    return Reference(expected).compare(actual, tolerance)
