"""A board that was taken out of service stops at its next heartbeat and brings nothing more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.farm.states import JobState
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import new_run, propose

TIMED = {
    "kind": "timed",
    "trials_ns": [5],
    "detail": {"max_relative_error": 0.0, "compile_ms": 1.0, "facts": {}},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


def claimed(service: Service) -> dict[str, Any]:
    new_run(service.farm, service.device_id)
    propose(service.farm, 100, exhausted=True)
    hello = {"protocol": 1, "agent_version": "0.1.0"}
    path = f"/v1/devices/{service.device_id}/lease?wait=0"
    return service.device.post(path, json=hello).json()


def test_a_disabled_board_is_told_to_stop_and_its_result_is_refused(service: Service) -> None:
    claim = claimed(service)
    held = {"attempt": claim["attempt"], "lease_token": claim["lease_token"]}
    path = f"/v1/jobs/{claim['job']}"
    assert service.device.post(f"{path}/heartbeat", json=held).json()["cancel"] is False
    service.farm.boards.disable(service.device_id, "in the wrong hands", by="admin")
    assert service.farm.jobs.job(claim["job"]).state is JobState.QUEUED
    assert service.device.post(f"{path}/heartbeat", json=held).json()["cancel"] is True
    result = {**held, "outcome": TIMED, "facts": {}, "started_at": "2026-11-21T10:00:00Z"}
    refused = service.device.post(f"{path}/result", json=result)
    assert refused.status_code == 409 and "disabled" in refused.text
    assert service.user.get("/v1/measurements").json()["items"] == []
    # However often it calls, the job is not the board's again.
    assert service.farm.jobs.job(claim["job"]).state is JobState.QUEUED
    # The job is nobody's yet: it waits for the board, or for another of its run.
    assert service.device.post(f"{path}/release", json=held).json()["state"] == "queued"


def test_a_lease_that_ran_out_is_taken_back_with_the_same_answer(service: Service) -> None:
    new_run(service.farm, service.device_id)
    propose(service.farm, 100, exhausted=True)
    claim = service.farm.jobs.claim_for_board(service.device_id, lease_s=0.01)
    assert claim is not None
    lease = claim.lease
    time.sleep(0.05)
    assert service.farm.jobs.expire().expired == (lease.job_id,)
    held = {"attempt": lease.attempt, "lease_token": lease.token}
    path = f"/v1/jobs/{lease.job_id}/heartbeat"
    service.farm.boards.disable(service.device_id, "burnt", by="admin")
    assert service.device.post(path, json=held).json()["cancel"] is True
