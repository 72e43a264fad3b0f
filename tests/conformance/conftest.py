"""A measuring child for all conformance tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from worker.measuring import MeasuringChild


@pytest.fixture(scope="session")
def device() -> Iterator[MeasuringChild]:
    # PoCL has no cl_khr_fp16: 16-bit floats are stored and converted.
    with MeasuringChild("host+half") as child:
        yield child
