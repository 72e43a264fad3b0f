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


@pytest.fixture(scope="session")
def plain_device() -> Iterator[MeasuringChild]:
    """As ``device``, with kernels that are compiled sooner: PoCL does not optimise them.

    For many cases of what programs mean; what PoCL's optimiser makes of kernels is tried with
    ``device`` on random layers and on one of each kind.
    """
    unoptimised = {"POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable"}
    with MeasuringChild("host+half", environment=unoptimised) as child:
        yield child
