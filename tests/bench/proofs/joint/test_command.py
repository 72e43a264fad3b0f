"""``nestmap bench joint``: it resumes, answers in JSON, and its exit code says how it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nestmap.cli import app

FAST = ["--variants", "high-level", "--layers", "vgg16/24", "--devices", "pocl", "--jobs", "1"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results" / "joint.json"


def joint(out: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["bench", "joint", *FAST, "--out", str(out), *args])


def cells(out: Path) -> list[dict[str, Any]]:
    return json.loads(out.read_text(encoding="utf-8"))["cells"]


def test_a_campaign_without_failures_ends_well_and_is_written(out: Path):
    result = joint(out, "--samples", "3")
    assert result.exit_code == 0, result.output
    assert "| high-level | pocl | 3 | 3 | 3 |" in result.stdout
    assert "3 samples, 3 distinct, 0 failures" in result.stdout
    (cell,) = cells(out)
    assert (cell["passed"], cell["failed"]) == (3, 0)


def test_json_is_what_stands_in_the_file(out: Path):
    result = joint(out, "--samples", "2", "--json")
    assert json.loads(result.stdout) == json.loads(out.read_text(encoding="utf-8"))


def test_finished_cells_are_kept_and_their_failures_still_count(out: Path):
    assert joint(out, "--samples", "2").exit_code == 0
    value = json.loads(out.read_text(encoding="utf-8"))
    value["cells"][0] |= {"failed": 1, "drawing_s": 123.0}
    out.write_text(json.dumps(value), encoding="utf-8")
    assert joint(out, "--samples", "2").exit_code == 1
    assert cells(out)[0]["drawing_s"] == 123.0
    assert joint(out, "--samples", "2", "--fresh").exit_code == 0


def test_cells_of_other_campaigns_stay_in_the_file(out: Path):
    joint(out, "--samples", "1")
    joint(out, "--samples", "1", "--seed", "9")
    assert sorted(cell["seed"] for cell in cells(out)) == [0, 9]


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--devices", "abacus", 3),
        ("--layers", "vgg16/1", 2),
        ("--variants", "magic", 2),
        ("--samples", "0", 2),
        ("--jobs", "1000", 2),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    out: Path, option: str, value: str, code: int
):
    assert joint(out, option, value).exit_code == code
    assert not out.exists()


def test_a_file_of_something_else_is_not_overwritten(out: Path):
    out.parent.mkdir()
    out.write_text('{"schema": "nestmap/bench-layers/1", "cells": []}', encoding="utf-8")
    assert joint(out, "--samples", "1").exit_code == 2
    assert "bench-layers" in out.read_text(encoding="utf-8")


def test_an_interrupt_ends_the_workers_and_leaves_the_file_whole(out: Path):
    command = [sys.executable, "-m", "nestmap", "bench", "joint", *FAST, "--devices", "h200"]
    command += ["--samples", "1000000", "--jobs", "2", "--out", str(out)]
    campaign = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A shell lets its background jobs ignore interrupts, and so might what runs the tests.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    # The file is there before the first worker is.
    while not out.exists():
        assert campaign.poll() is None
        time.sleep(0.05)
    campaign.send_signal(signal.SIGINT)
    # Workers hold the other end of this pipe: it only ends with the last of them.
    campaign.communicate(timeout=120)
    assert campaign.returncode == 130
    assert cells(out) == []
