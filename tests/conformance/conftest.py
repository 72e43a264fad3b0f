"""A measuring child for all conformance tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from worker.measuring import MeasuringChild


@pytest.fixture(scope="session")
def device() -> Iterator[MeasuringChild]:
    with MeasuringChild() as child:
        yield child
