"""Boards get each job once, keep it while they live, and cannot write when it is not theirs."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from db.codecs import encode_outcome
from db.farm.farm import Farm
from db.farm.run_records import ArtifactContent
from mapper.measurement import (
    CompileError,
    Crash,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
)
from tests.unit.api.farm_data import SOURCE, new_run, propose
from tests.unit.api.live_server import serving

HELLO = {"protocol": 1, "agent_version": "0.1.0"}
TIMED = {
    "kind": "timed", "trials_ns": [3, 1, 2],
    "detail": {"max_relative_error": 1e-6, "compile_ms": 1.5, "facts": {"clock": "1 GHz"}},
}  # fmt: skip


@pytest.fixture
def run(service):
    """A run with three candidates that wait for the board."""
    made = new_run(service.farm, service.device_id)
    propose(service.farm, 100, 200, 300)
    return made


def lease(service, wait=0, who="own device"):
    return service.client(who).post(
        f"/v1/devices/{service.device_id}/lease?wait={wait}", json=HELLO
    )


def result_of(claim, outcome=TIMED, **more):
    return {"attempt": claim["attempt"], "lease_token": claim["lease_token"], "outcome": outcome,
            "facts": {"temperature": 60}, "started_at": "2026-11-21T10:00:00Z",
            "agent_log": "a line", **more}  # fmt: skip


def test_a_lease_has_all_that_the_protocol_says_and_is_short_at_first(service, run):
    answer = lease(service).json()
    assert set(answer) == {"job", "attempt", "lease_token", "lease_s", "deadline_s", "payload"}
    assert (answer["attempt"], answer["lease_s"]) == (1, 10.0)
    assert answer["deadline_s"] > answer["payload"]["timeout_s"]
    beat = {"attempt": 1, "lease_token": answer["lease_token"], "stage": "compiling"}
    kept = service.device.post(f"/v1/jobs/{answer['job']}/heartbeat", json=beat)
    assert kept.json() == {"lease_s": 30.0, "cancel": False}


def test_a_board_holds_one_lease_at_a_time(service, run):
    assert lease(service).status_code == 200
    assert lease(service).status_code == 204


def test_a_result_is_stored_once_however_often_it_is_sent(service, run):
    claim = lease(service).json()
    send = [service.device.post(f"/v1/jobs/{claim['job']}/result", json=result_of(claim))
            for _ in range(3)]  # fmt: skip
    assert [(a.status_code, a.json()["stored"]) for a in send] == [
        (200, True), (200, False), (200, False),
    ]  # fmt: skip
    (item,) = service.user.get("/v1/measurements").json()["items"]
    assert (item["time_ms"], item["trials_ns"], item["outcome"]) == (2e-6, [3, 1, 2], "timed")
    assert (item["run"], item["device"]) == (run.id, service.device_id)


@pytest.mark.parametrize(
    "outcome",
    [
        Timed((1, 2), 0.0, 3.0, {"clock": "1"}), Wrong(float("inf"), (0, 2), "no"),
        CompileError("line 1"), ResourceError("CL_OUT_OF_RESOURCES"), Timeout(2.5),
        Crash(-11, "Segmentation fault"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)  # fmt: skip
def test_every_kind_of_outcome_arrives_as_it_was_sent(service, run, outcome):
    columns = encode_outcome(outcome)
    body = {"kind": columns.kind, "detail": columns.detail}
    if isinstance(outcome, Timed):
        body["trials_ns"] = list(outcome.trials_ns)
    claim = lease(service).json()
    answer = service.device.post(f"/v1/jobs/{claim['job']}/result", json=result_of(claim, body))
    assert answer.json() == {"stored": True}
    (item,) = service.user.get("/v1/measurements").json()["items"]
    assert (item["outcome"], item["detail"]) == (columns.kind, columns.detail)


@pytest.mark.parametrize(
    "outcome",
    [
        {}, {"kind": "fast"}, {**TIMED, "trials_ns": []}, {**TIMED, "trials_ns": [-1]},
        {**TIMED, "trials_ns": [1.5]}, {"kind": "timed"},
        {**TIMED, "detail": {**TIMED["detail"], "compile_ms": "quick"}},
        {"kind": "timeout", "detail": {"after_s": -1}},
        {"kind": "crash", "detail": {"exit_code": 2**40, "message": ""}},
        {"kind": "compile-error", "detail": {"message": "x" * 30_000}},
    ],
)  # fmt: skip
def test_what_is_no_outcome_is_refused_and_the_job_stays_open(service, run, outcome):
    claim = lease(service).json()
    answer = service.device.post(f"/v1/jobs/{claim['job']}/result", json=result_of(claim, outcome))
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-input")
    good = service.device.post(f"/v1/jobs/{claim['job']}/result", json=result_of(claim))
    assert good.json() == {"stored": True}


@pytest.mark.parametrize("route", ["heartbeat", "result"])
def test_only_the_newest_claim_can_write(service, run, route):
    claim = lease(service).json()
    body = result_of(claim) if route == "result" else {
        "attempt": 1, "lease_token": claim["lease_token"],
    }  # fmt: skip
    for change in ({"attempt": 2}, {"attempt": 0}, {"lease_token": "x" * 32}):
        answer = service.device.post(f"/v1/jobs/{claim['job']}/{route}", json={**body, **change})
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/stale-lease")


@pytest.mark.parametrize("route", ["heartbeat", "release", "result"])
def test_a_job_of_another_device_is_not_there(service, run, route):
    claim = lease(service).json()
    body = result_of(claim)
    answer = service.client("other device").post(f"/v1/jobs/{claim['job']}/{route}", json=body)
    assert answer.status_code == 404
    assert service.device.post(f"/v1/jobs/{claim['job']}/{route}", json=body).status_code == 200


def test_a_propose_job_is_no_board_s(service):
    run = new_run(service.farm, service.device_id)
    (job,) = service.farm.jobs.of_run(run.id)
    body = {"attempt": 0, "lease_token": "x"}
    assert service.device.post(f"/v1/jobs/{job.id}/heartbeat", json=body).status_code == 404


def test_a_cancelled_run_tells_the_board_with_its_next_heartbeat(service, run):
    claim = lease(service).json()
    service.admin.post(f"/v1/runs/{run.id}/cancel")
    beat = {"attempt": 1, "lease_token": claim["lease_token"]}
    assert service.device.post(f"/v1/jobs/{claim['job']}/heartbeat", json=beat).json()["cancel"]


def release_of(claim, reason="told to stop"):
    return {"attempt": claim["attempt"], "lease_token": claim["lease_token"], "reason": reason}


def test_a_cancelled_run_is_over_as_soon_as_the_board_drops_its_job(service, run):
    claim = lease(service).json()
    service.admin.post(f"/v1/runs/{run.id}/cancel")
    assert service.user.get(f"/v1/runs/{run.id}").json()["state"] == "cancelling"
    route = f"/v1/jobs/{claim['job']}/release"
    assert service.device.post(route, json=release_of(claim)).json() == {"state": "cancelled"}
    assert service.user.get(f"/v1/runs/{run.id}").json()["state"] == "cancelled"
    assert service.device.post(route, json=release_of(claim)).json() == {"state": "cancelled"}


def test_a_job_given_back_is_there_for_the_next_claim_at_once(service, run):
    claim = lease(service).json()
    route = f"/v1/jobs/{claim['job']}/release"
    assert service.device.post(route, json=release_of(claim)).json() == {"state": "queued"}
    assert service.farm.jobs.attempts(claim["job"])[0].reason == "told to stop"
    with service.running():
        again = lease(service, 10).json()
    assert again["job"] != claim["job"] or again["attempt"] == 2
    late = service.device.post(route, json=release_of(claim) | {"attempt": 7})
    assert (late.status_code, late.json()["type"]) == (409, "/problems/stale-lease")


def test_a_quarantined_board_gets_no_work_until_it_is_well(service, run):
    health = f"/v1/devices/{service.device_id}/health"
    sick = {"state": "quarantined", "reason": "golden kernel hangs", "temperature": 95}
    assert service.device.post(health, json=sick).json()["state"] == "quarantined"
    assert lease(service).status_code == 204
    assert service.device.post(health, json={"state": "healthy"}).json()["state"] == "active"
    assert lease(service).status_code == 200


def test_a_board_does_not_lift_what_a_person_has_set(service, run):
    base = f"/v1/devices/{service.device_id}"
    service.admin.post(f"{base}/quarantine", json={"reason": "wrong clocks"})
    answer = service.device.post(f"{base}/health", json={"state": "healthy"})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
    assert service.admin.post(f"{base}/release").json()["state"] == "active"
    assert service.admin.post(f"{base}/disable", json={"reason": "sold"}).json()["state"] == (
        "disabled"
    )
    assert service.user.post(
        "/v1/runs", json={"device": service.device_id, "subject": {"name": "vgg16/7"}}
    ).status_code == 409  # fmt: skip
    assert service.admin.post(f"{base}/enable").json()["state"] == "active"


def test_a_board_comes_in_once_with_a_code(service):
    code = service.admin.post("/v1/enrolments", json={"profile": "mali-g72"}).json()["code"]
    hello = {"code": code.lower(), "name": "hikey", "agent_version": "0.1.0", "facts": {"a": 1}}
    enrolled = service.client(None).post("/v1/enrol", json=hello)
    assert enrolled.status_code == 201
    again = service.client(None).post("/v1/enrol", json={**hello, "name": "thief"})
    assert (again.status_code, again.json()["type"]) == (410, "/problems/gone")
    service.tokens["hikey"] = enrolled.json()["token"]
    device = service.client("hikey").get(f"/v1/devices/{enrolled.json()['device']}").json()
    assert (device["name"], device["profile"], device["facts"]) == ("hikey", "mali-g72", {"a": 1})


def test_a_code_is_good_for_another_name_if_the_first_is_taken(service):
    code = service.admin.post("/v1/enrolments", json={}).json()["code"]
    hello = {"code": code, "name": "board", "agent_version": "0.1.0"}
    taken = service.client(None).post("/v1/enrol", json=hello)
    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/conflict")
    fresh = service.client(None).post("/v1/enrol", json={**hello, "name": "board 2"})
    assert fresh.status_code == 201


def test_artifacts_reach_the_device_whose_jobs_refer_to_them(service, run):
    claim = lease(service).json()
    path = f"/v1/artifacts/{claim['payload']['source']['artifact']}"
    answer = service.device.get(path)
    assert (answer.content, answer.headers["content-length"]) == (SOURCE, str(len(SOURCE)))
    assert service.user.get(path).content == SOURCE
    assert service.client("other device").get(path).status_code == 404
    tag = {"If-None-Match": answer.headers["etag"]}
    assert service.device.get(path, headers=tag).status_code == 304


# Waiting for work


def test_a_waiting_board_gets_a_job_as_soon_as_there_is_one(service):
    new_run(service.farm, service.device_id)
    with service.running(), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lease, service, 50)
        time.sleep(0.3)
        assert not waiting.done()
        propose(service.farm, 100)
        assert waiting.result(timeout=10).status_code == 200


def test_a_board_that_waits_in_vain_is_told_so(service):
    assert lease(service, 1).status_code == 204


def test_many_waiting_boards_share_one_look_into_the_queue(service, monkeypatch):
    looks, claims = [], []
    jobs = service.farm.jobs
    waiting_boards, claim_for_board = jobs.waiting_boards, jobs.claim_for_board

    def counted_looks(*arguments):
        looks.append(1)
        return waiting_boards(*arguments)

    def counted_claims(*arguments, **named):
        claims.append(1)
        return claim_for_board(*arguments, **named)

    monkeypatch.setattr(jobs, "waiting_boards", counted_looks)
    monkeypatch.setattr(jobs, "claim_for_board", counted_claims)
    started = time.monotonic()
    with service.running(), ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: lease(service, 1), range(20)))
    turns = (time.monotonic() - started) / service.settings.lease_poll_s
    assert {answer.status_code for answer in answers} == {204}
    assert len(claims) == 20
    assert 1 <= len(looks) <= turns + 1


def test_a_board_that_went_away_while_it_waited_keeps_no_job(service):
    new_run(service.farm, service.device_id)
    text = b'{"protocol": 1, "agent_version": "0.1.0"}'
    with serving(service.app) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port)) as line:
            line.sendall(
                f"POST /v1/devices/{service.device_id}/lease?wait=50 HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {service.tokens['own device']}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
                + text
            )
            deadline = time.monotonic() + 20
            while not service.app.state.services.bells.names and time.monotonic() < deadline:
                time.sleep(0.01)
            assert service.app.state.services.bells.names == (service.device_id,)
        while service.app.state.services.bells.names and time.monotonic() < deadline:
            time.sleep(0.01)
        propose(service.farm, 100)
        time.sleep(0.2)
        claim = service.farm.jobs.claim_for_board(service.device_id, lease_s=1)
        assert claim is not None and claim.lease.attempt == 1


def test_a_service_that_stops_lets_its_boards_go(service):
    with ThreadPoolExecutor(1) as threads, service.running():
        waiting = threads.submit(lease, service, 50)
        time.sleep(0.3)
        service.thread.loop.call_soon_threadsafe(service.app.state.services.stop)
        assert waiting.result(timeout=10).status_code == 204


def test_a_lease_that_ran_out_is_ended_by_the_sweeper(service, run):
    claim = service.farm.jobs.claim_for_board(service.device_id, lease_s=0.01)
    with service.running():
        deadline = time.monotonic() + 10
        # What was ended is counted when its transaction has been committed.
        while "nestmap_leases_expired_total 1.0" not in service.user.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert service.farm.jobs.job(claim.job.id).state != "leased"


def test_a_database_that_is_away_for_a_moment_stops_no_loop(service, run, monkeypatch):
    from mapper.errors import StoreError

    calls, expire = threading.Semaphore(0), service.farm.jobs.expire
    state = {"broken": True}

    def sometimes(*arguments):
        calls.release()
        if state["broken"]:
            raise StoreError("gone")
        return expire(*arguments)

    monkeypatch.setattr(service.farm.jobs, "expire", sometimes)
    with service.running():
        assert calls.acquire(timeout=10)
        state["broken"] = False
        assert calls.acquire(timeout=10)
    assert "sweeper" in service.log.getvalue()


def test_what_retention_no_longer_keeps_is_dropped_while_the_service_runs(service):
    from datetime import UTC, datetime, timedelta

    long_ago = datetime.now(UTC) - timedelta(days=400)
    past = Farm.open(service.path, now=lambda: long_ago)
    past.enrolments.create(lifetime_s=1)
    old = past.artifacts.put(ArtifactContent(b"nobody wants it")).hash
    past.close()
    kept = service.farm.artifacts.put(ArtifactContent(b"somebody does")).hash
    with service.running():
        deadline = time.monotonic() + 10
        while service.farm.artifacts.find(old) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert service.farm.artifacts.find(kept) is not None
