"""The farm's bench as a whole, small: services up, boards at work, figures, everything down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = (sys.executable, "-m", "nestmap", "bench", "farm", "--small", "--store", "sqlite")
WITHIN_S = 90.0


def _processes_of(folder: Path) -> list[str]:
    """Who still has to do with a folder, by its name in their environment or arguments."""
    found: list[str] = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or process.name == str(os.getpid()):
            continue
        try:
            said = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in said:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_a_small_run_measures_everything_and_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    ended = subprocess.run(
        [*COMMAND, "--keep", str(tmp_path / "farm"), "--out", str(out)],
        capture_output=True, text=True, timeout=WITHIN_S, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(out.read_text())
    loop, closed = found["pick_up"]["open_loops"][0], found["pick_up"]["closed_loop"]
    assert loop["jobs"]["accepted"] == loop["jobs"]["measured"] == 20
    assert loop["pick_up_ms"]["count"] == 20
    assert closed["stored_a_second"] > 0
    for part in (loop, closed):
        assert part["jobs"]["lost"] == part["jobs"]["duplicated"] == []
        assert part["errors"] == {}
        assert part["faults"] == []
        assert part["services"]["api"]["cpu_s"] > 0
    assert found["fronts"]["measurements"] == 1_500
    assert found["fronts"]["one study through HTTP"]["points"] > 0
    assert found["first_mappings"]["warm_ms"]["count"] == 2
    assert found["enumeration"][0]["rounds"][0]["mappings"] > 0
    assert "pick-up p50" in ended.stderr
    assert not _processes_of(tmp_path)


def test_an_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*COMMAND, "--keep", str(tmp_path / "farm")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        assert running.stderr is not None
        for line in running.stderr:
            if "boards enrol" in line:
                break
        time.sleep(0.3)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=WITHIN_S)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 130
    assert not _processes_of(tmp_path)
