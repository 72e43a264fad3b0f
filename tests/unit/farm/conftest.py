"""Requests that are answered in the test's own process leave its limits alone.

A test process is larger than a child: the address space that a request may have would be less
than it holds already. The limits themselves are tested on real children.
"""

from __future__ import annotations

import pytest

from nestmap.tasks import limits


@pytest.fixture(autouse=True)
def limits_of_this_process_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "begin", lambda limits: None)
    monkeypatch.setattr(limits, "end", lambda: None)
