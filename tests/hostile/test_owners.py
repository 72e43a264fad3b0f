"""A run is steered by the token that made it and by admins; a token has so many of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from api.settings import Settings
from db.farm.run_records import NewRun
from db.farm.states import Scope
from db.farm.tables import RunRow
from mapper.measurement import Timed
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose

RUN = {"subject": {"name": "vgg16/7"}, "variants": ["direct"], "budget": {"candidates": 10}}


@pytest.fixture
def service(tmp_path: Path):
    service = Service(tmp_path, Settings(max_open_runs_each=2, max_candidates_each=100))
    yield service
    service.close()


def create(client, service: Service, **changes):
    return client.post("/v1/runs", json={**RUN, "device": service.device_id, **changes})


def test_only_its_owner_and_admins_steer_a_run(service: Service) -> None:
    run = create(service.user, service).json()
    assert run["owner"] == service.tokens["user"].partition(".")[0].removeprefix("nm_")
    service.tokens["another"] = service.farm.tokens.create(Scope.USER, label="another").text
    other = service.client("another")
    path = f"/v1/runs/{run['id']}"
    for step in ("pause", "resume", "cancel"):
        refused = other.post(f"{path}/{step}")
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/forbidden"), step
        assert run["owner"] in refused.json()["detail"]
    assert other.get(path).json()["state"] == "queued"  # everybody reads
    page = other.get(f"/runs/{run['id']}").text
    assert "Only its owner and admins steer it" in page and "Cancel run" not in page
    assert "Cancel run" in service.user.get(f"/runs/{run['id']}").text
    assert service.user.post(f"{path}/pause").json()["state"] == "paused"
    assert service.admin.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert other.post("/v1/runs/run_00000000000000000000000000/cancel").status_code == 404


def test_a_token_has_so_many_open_runs(service: Service) -> None:
    first = create(service.user, service).json()
    assert create(service.user, service).status_code == 201
    refused = create(service.user, service)
    assert refused.status_code == 409
    assert "too many runs that have not ended" in refused.json()["detail"]
    assert create(service.admin, service).status_code == 201  # others go on
    service.user.post(f"/v1/runs/{first['id']}/cancel")
    assert create(service.user, service).status_code == 201


def test_only_admins_put_a_run_before_those_of_others(service: Service) -> None:
    for priority in (1, 100):
        refused = create(service.user, service, priority=priority)
        assert refused.status_code == 403
        assert refused.json()["errors"][0]["pointer"] == "/priority"
    assert create(service.user, service, priority=-1).json()["priority"] == -1
    assert create(service.admin, service, priority=100).json()["priority"] == 100


def test_pages_make_no_more_runs_than_the_api(service: Service) -> None:
    run = new_run(service.farm, service.device_id)
    propose(service.farm, 100, exhausted=True)
    measure(service.farm, service.device_id, Timed((1_000_000,), 0.0, 1.0))
    candidate = service.user.get("/v1/measurements").json()["items"][0]["candidate"]
    forms = {
        f"/candidates/{candidate}/re-measure": {"device": service.device_id},
        f"/runs/{run.id}/baselines": {"variant": "high-level"},
    }
    for path, form in forms.items():
        assert service.user.post(path, data=form).status_code == 303, path
    made = [one for one in service.farm.runs.page() if one.principal != run.principal]
    assert [one.priority for one in made] == [0, 0]
    for path, form in forms.items():
        refused = service.user.post(path, data=form)
        assert refused.status_code == 409, path
        assert "too many runs that have not ended" in refused.text
        assert service.admin.post(path, data=form).status_code == 303  # others go on


def test_runs_that_pages_make_count_as_requests_for_solvers(tmp_path: Path) -> None:
    service = Service(tmp_path, Settings(solver_requests_per_minute=2))
    try:
        paths = (f"/candidates/{'0' * 64}/re-measure", f"/runs/run_{'0' * 26}/baselines")
        for path in paths:
            form = {"device": service.device_id}
            assert service.user.post(path, data=form).status_code == 404, path
        for path in paths:
            assert service.user.post(path, data={}).status_code == 429, path
    finally:
        service.close()


def test_no_run_is_made_without_bounds(service: Service) -> None:
    with pytest.raises(TypeError, match="most_open"):
        NewRun(service.device_id, "x", "me", {})  # pyright: ignore[reportCallIssue]


def test_a_repeated_request_is_answered_even_so(service: Service) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {**RUN, "device": service.device_id}
    first = service.user.post("/v1/runs", json=body, headers=headers)
    create(service.user, service)
    again = service.user.post("/v1/runs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])


def test_a_token_has_so_many_candidates(service: Service) -> None:
    refused = create(service.user, service, budget={"candidates": 101})
    assert refused.status_code == 409
    assert "too many candidates" in refused.json()["detail"]
    run = create(service.user, service, budget={}).json()
    assert service.farm.runs.end_beyond(100, 2**30) == ()
    with service.farm._transactions.write() as session:
        session.execute(update(RunRow).where(RunRow.id == run["id"]).values(proposed=101))
    assert service.farm.runs.end_beyond(100, 2**30) == (run["id"],)
    ended = service.user.get(f"/v1/runs/{run['id']}").json()
    assert (ended["state"], ended["reason"]) == ("finished", "candidates of its owner")
    assert create(service.user, service).status_code == 409
