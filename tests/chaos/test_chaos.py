"""Accepted work is never lost and ends once, whatever is killed, frozen or stopped meanwhile."""

from __future__ import annotations

from pathlib import Path
from time import time_ns

import pytest

from tests.chaos.campaign import campaign
from tests.unit.db.postgres_server import INSTALL, NEEDS


@pytest.mark.needs(NEEDS, install=INSTALL)
def test_nothing_is_lost_while_everything_breaks(tmp_path: Path):
    seed = time_ns() % 2**31
    print(f"seed {seed}: python -m tests.chaos.campaign --no-cluster --seed {seed}")
    report = campaign(tmp_path, seconds=15, seed=seed)
    assert report.faults == []
    assert report.jobs > 10
    assert report.injected.total() > 2
