"""What one token has stored is bounded, and what nobody reads again is dropped within days."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.auth import ByteLimit
from api.problems import ProblemError
from api.settings import Settings
from api.solver_pool import Answer
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.retention import RetentionPolicy
from db.farm.states import JobKind
from tests.unit.api.conftest import Service

LAYER = {"channels": 3, "height": 8, "width": 8, "filters": 4}


def test_a_token_has_so_many_bytes_a_day() -> None:
    now = [0.0]
    limit = ByteLimit(1000, lambda: now[0])
    limit.require("a", 900)
    with pytest.raises(ProblemError, match="stored in a day") as refused:
        limit.require("a", 200)
    assert int((refused.value.headers or {})["Retry-After"]) == 8640
    limit.require("b", 1000)
    limit.count("a", 600)  # an answer that was longer than there was room for
    now[0] += 43_200
    with pytest.raises(ProblemError):
        limit.require("a", 1)
    now[0] += 86_400
    limit.require("a", 1000)


def test_layers_and_programs_of_one_token_are_bounded(tmp_path: Path) -> None:
    """They are kept for good."""
    service = Service(tmp_path, Settings(max_stored_mb_each=1))
    document = {"schema": "nestmap/program/1", "text": "x" * 300_000}
    user, admin = service.client("user"), service.client("admin")
    statuses: list[int] = []
    for number in range(5):
        end = {
            "schema": "nestmap/program/1", "document": document | {"number": number}, "layer": None,
        }  # fmt: skip
        service.solver.answers["describe"] = Answer([], end)
        statuses.append(user.post("/v1/programs", json={"text": f"program {number}"}).status_code)
    assert statuses == [201] * 3 + [429] * 2
    # What is there costs nothing, and others have room of their own.
    service.solver.answers["describe"] = Answer(
        [], {"schema": "nestmap/program/1", "document": document | {"number": 0}, "layer": None}
    )
    assert user.post("/v1/programs", json={"text": "program 0"}).status_code == 200
    assert user.post("/v1/layers", json=LAYER).status_code == 201
    assert admin.post("/v1/layers", json=LAYER).status_code == 200
    service.close()


def test_requests_of_runs_count(tmp_path: Path) -> None:
    service = Service(tmp_path, Settings(max_stored_mb_each=1))
    user = service.tokens["user"].partition(".")[0].removeprefix("nm_")
    service.app.state.services.stored_bytes.count(user, 2**20)
    device = {"device": service.device_id, "subject": {"name": "vgg16/7"}}
    answer = service.client("user").post("/v1/runs", json=device)
    assert answer.status_code == 429, json.dumps(answer.json())
    service.close()


def test_operations_are_kept_for_days(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with Farm.open(tmp_path / "farm.db", now=lambda: now[0]) as farm:
        job = farm.jobs.enqueue(NewJob({"request": {"kind": "count"}}, "hostile")).value
        claim = farm.jobs.claim_work((JobKind.SOLVE,), "test", lease_s=30, job_id=job.id)
        assert claim is not None
        farm.results.finish_solve(claim.lease, {"items": [], "end": {}})
        now[0] += timedelta(days=1)
        assert farm.retention.prune(RetentionPolicy()).jobs == 0
        now[0] += timedelta(days=2)
        assert farm.retention.prune(RetentionPolicy()).jobs == 1
