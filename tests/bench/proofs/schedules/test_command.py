"""``nestmap bench schedules`` counts what it tried and fails with what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.proofs.schedules import campaign
from bench.proofs.schedules.chains import Chain


def test_a_short_campaign(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    result = CliRunner().invoke(app, ["schedules", "--chains", "20", "--out", str(out)])
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert found["chains"] == 20 and found["failures"] == []
    assert sum(found["lengths"].values()) == 20
    assert sum(found["applied"].values()) > 20


def test_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(seed: int) -> Chain:
        raise AssertionError(f"of {seed}")

    monkeypatch.setattr(campaign, "check_chain", wrong)
    out = tmp_path / "found.json"
    result = CliRunner().invoke(app, ["schedules", "--chains", "3", "--out", str(out)])
    assert result.exit_code == 1
    assert [f["seed"] for f in json.loads(out.read_text())["failures"]] == [0, 1, 2]
