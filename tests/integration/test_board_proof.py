"""The script that proves the worker on Arm talks to the service that it starts.

What it does inside the emulated user land takes a quarter of an hour and stays out of CI.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "scripts" / "board_proof.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("board_proof", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_proof_enrols_a_board_at_the_service_that_it_started(tmp_path: Path) -> None:
    proof = script()
    service, api = proof.start_service(tmp_path)
    try:
        assert api("POST", "/v1/enrolments", {})["code"]
        assert api("GET", "/v1/devices")["items"] == []
    finally:
        proof.end(service)
    assert service.returncode == 0
