"""A reference that knows some outputs only: these are compared, all must be finite."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.errors import InputError
from worker.measuring.checks import LEAST_KNOWN, check_workload
from worker.measuring.comparison import Reference
from worker.measuring.settings import Tolerance

RIGHT = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
PLACES = np.random.default_rng(1).permutation(RIGHT.size)[:LEAST_KNOWN]


def partly() -> np.ndarray:
    expected = np.full(RIGHT.shape, np.nan)
    expected.reshape(-1)[PLACES] = RIGHT.reshape(-1)[PLACES]
    return expected


def changed(place: int, value: float) -> np.ndarray:
    output = RIGHT.copy()
    output.reshape(-1)[place] = value
    return output


def test_what_is_known_is_compared():
    reference = Reference(partly())
    assert reference.checked == "4,096 of 10,000 outputs"
    assert reference.glance(RIGHT, Tolerance())
    found = reference.compare(RIGHT, Tolerance())
    assert found.wrong is None and found.max_relative_error == found.relative_error == 0.0
    output = changed(int(PLACES[7]), 9.0)
    assert not reference.glance(output, Tolerance())
    wrong = reference.compare(output, Tolerance()).wrong
    assert wrong is not None and wrong.first_bad_index == divmod(int(PLACES[7]), 100)
    assert wrong.message.startswith("1 of 10000 elements are wrong")
    assert "compared were 4,096 of 10,000 outputs" in wrong.message


def test_what_is_not_known_must_be_finite():
    place = next(p for p in range(RIGHT.size) if p not in set(PLACES.tolist()))
    reference = Reference(partly())
    assert reference.compare(changed(place, 9.0), Tolerance()).wrong is None
    wrong = reference.compare(changed(place, np.nan), Tolerance()).wrong
    assert wrong is not None and wrong.first_bad_index == divmod(place, 100)
    assert "nan where the reference is not known" in wrong.message


def test_whole_reference_says_nothing():
    assert Reference(RIGHT).checked == ""


def test_too_little_that_is_known_is_refused():
    check_workload({"x": RIGHT}, partly())
    expected = partly()
    expected.reshape(-1)[PLACES[0]] = np.nan
    with pytest.raises(InputError, match="NaN"):
        check_workload({"x": RIGHT}, expected)
    expected = partly()
    expected.reshape(-1)[PLACES[0]] = np.inf
    with pytest.raises(InputError, match="infinity"):
        check_workload({"x": RIGHT}, expected)
