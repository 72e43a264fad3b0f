"""The units that boards run: systemd accepts them, and little of the machine is open to them."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.agent.running import ROOT
from worker.agent.command import parser

UNITS = ROOT / "deploy/systemd"
needs_systemd = pytest.mark.needs("systemd-analyze", install="apt-get install systemd")


@needs_systemd
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    # Its own folder: verify looks for what a unit names beside it.
    for unit in UNITS.glob("nestmap-*"):
        shutil.copy(unit, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Unknown" not in done.stderr


@needs_systemd
def test_little_of_the_machine_is_open_to_the_worker() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager",
         str(UNITS / "nestmap-worker.service")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    exposure = re.search(r"Overall exposure level.*: ([\d.]+)", done.stdout)
    assert exposure is not None
    # What is left open: devices, the network, namespaces for the sandbox, code that is written and
    # run.
    assert float(exposure.group(1)) < 2.6


def test_unit_starts_the_worker_with_options_that_it_has() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read(UNITS / "nestmap-worker.service")
    command = unit["Service"]["ExecStart"].split()
    assert command[1].endswith("nestmap-worker.pyz")
    options = parser().parse_args(command[2:])
    assert options.enrol_file
    grace_s = int(unit["Service"]["TimeoutStopSec"])
    assert grace_s > options.stop_grace, "systemd would kill the job before its grace ends"
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
