"""Agents against the real service: the promises that need both sides."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import api.routes.leases
from db.canonical import content_hash
from db.farm.job_records import Attempt, Job
from db.farm.run_records import ArtifactContent, Proposal, ProposedCandidate, StudySpec
from db.farm.states import AttemptEnd, JobKind, JobState
from tests.unit.agent.running import ROOT, RunningAgent
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import DEVICE, PROGRAM, SOURCE, candidate, new_run
from tests.unit.api.live_server import serving
from worker.agent.failures import AgentExit

LEASE_S = 3.0
GOLDEN_BODIES = ROOT / "tests/golden/lease_protocol_1.json"


class Farmed:
    """A served API over SQLite, a board of it, and a run whose jobs the test chooses."""

    def __init__(self, service: Service, url: str) -> None:
        self.service, self.url = service, url
        self.run = new_run(service.farm, service.device_id)

    def propose(self, *behaviours: str) -> None:
        """A job for each; the faulty executor reads them from the payload."""
        farm = self.service.farm
        claim = farm.jobs.claim_work((JobKind.PROPOSE,), "test", lease_s=30)
        assert claim is not None
        source = content_hash(SOURCE.decode())
        candidates = tuple(
            ProposedCandidate(
                0,
                candidate(number),
                {
                    "timeout_s": 60.0,
                    "candidate": behaviour,
                    "plan": {"source": {"artifact": source}},
                },
                (source,),
            )
            for number, behaviour in enumerate(behaviours)
        )
        study = StudySpec("nestmap/program/1", PROGRAM, "direct", "strict", 0)
        proposal = Proposal(DEVICE, (study,), candidates, (ArtifactContent(SOURCE),), True)
        farm.results.finish_propose(claim.lease, proposal)

    def agent(self, state: Path, *options: str) -> RunningAgent:
        token = self.service.tokens["own device"]
        identity = ("--id", self.service.device_id, "--token", token)
        return RunningAgent(self.url, state, *options, identity=identity, executor="obedient")

    def jobs(self) -> list[Job]:
        jobs = self.service.farm.jobs.of_run(self.run.id)
        return [job for job in jobs if job.kind is JobKind.MEASURE]

    def attempts(self, job: Job) -> tuple[Attempt, ...]:
        return self.service.farm.jobs.attempts(job.id)

    def measurements(self) -> list[dict[str, Any]]:
        return self.service.user.get("/v1/measurements").json()["items"]


@pytest.fixture
def farmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farmed]:
    monkeypatch.setattr(api.routes.leases, "LEASE_S", LEASE_S)
    service = Service(tmp_path)
    with serving(service.app) as url:
        yield Farmed(service, url)
    service.close()


def wait_until(condition: Any, timeout_s: float = 60.0) -> Any:
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, f"nothing came in {timeout_s} s"
        time.sleep(0.02)
    return found


def test_job_of_a_killed_board_starts_again_within_two_seconds_of_its_leases_end(
    farmed: Farmed, tmp_path: Path
) -> None:
    farmed.propose("endless")
    with farmed.agent(tmp_path / "dead") as dead:
        dead.wait_for("stage", job=farmed.jobs()[0].id)
        wait_until(lambda: farmed.jobs()[0].stage)  # a heartbeat: the long lease has begun
        dead.kill()
        lease_until = farmed.jobs()[0].lease_until
        assert lease_until is not None
        with farmed.agent(tmp_path / "next") as following:
            following.wait_for("leased", job=farmed.jobs()[0].id, attempt=2)
        first, second = farmed.attempts(farmed.jobs()[0])
    assert first.ending is AttemptEnd.EXPIRED
    assert 0 <= (second.claimed_at - lease_until).total_seconds() < 2.0


def test_frozen_board_cannot_write_over_the_one_that_took_its_job(
    farmed: Farmed, tmp_path: Path
) -> None:
    farmed.propose("short")
    with farmed.agent(tmp_path / "frozen") as frozen:
        frozen.wait_for("stage", job=farmed.jobs()[0].id)
        frozen.signal(signal.SIGSTOP)
        with farmed.agent(tmp_path / "other", "--max-jobs", "1") as other:
            assert other.exit_code() == AgentExit.OK
        assert len(farmed.measurements()) == 1
        frozen.signal(signal.SIGCONT)
        # Its executor finished meanwhile: whether it drops the job or tries to send the result,
        # the service says that the lease is stale.
        ended = frozen.wait_until(
            lambda: [e for e in frozen.events if e["event"] in ("given-up", "dropped")]
        )
        assert "409" in ended[0]["text"]
    (job,) = farmed.jobs()
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert len(farmed.measurements()) == 1


def test_job_that_takes_every_agent_along_stops_after_three_attempts_and_others_go_on(
    farmed: Farmed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.routes.leases, "LEASE_S", 0.7)
    monkeypatch.setattr(api.routes.leases, "FIRST_LEASE_S", 0.7)
    farmed.propose("endless", "quick")
    poison = farmed.jobs()[0].id
    for attempt in (1, 2, 3):
        with farmed.agent(tmp_path / str(attempt)) as agent:
            agent.wait_for("stage", job=poison)
            agent.kill()
    with farmed.agent(tmp_path / "last", "--max-jobs", "1") as agent:
        assert agent.exit_code() == AgentExit.OK
    states = {job.id: job.state for job in farmed.jobs()}
    assert states.pop(poison) is JobState.FAILED
    assert list(states.values()) == [JobState.DONE]
    assert [a.ending for a in farmed.attempts(farmed.jobs()[0])] == [AttemptEnd.EXPIRED] * 3


def test_result_of_a_lease_that_ran_out_counts_while_nobody_claimed_again(
    farmed: Farmed, tmp_path: Path
) -> None:
    farmed.propose("short")
    with farmed.agent(tmp_path / "s") as agent:
        agent.wait_for("stage", job=farmed.jobs()[0].id)
        agent.signal(signal.SIGSTOP)
        wait_until(lambda: farmed.jobs()[0].state is JobState.QUEUED)
        time.sleep(1.0)  # its executor, which nobody froze, is done by now
        agent.signal(signal.SIGCONT)
        agent.wait_for("delivered", job=farmed.jobs()[0].id, stored=True)
    (job,) = farmed.jobs()
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert len(farmed.measurements()) == 1


def test_service_takes_what_agents_of_protocol_1_send(farmed: Farmed) -> None:
    """The bodies of release 0.1, byte by byte; a board is not updated with its server.

    A right result whose error is no number was legal, but `compare` never gave one.
    """
    sent = json.loads(GOLDEN_BODIES.read_text())
    farmed.propose(*["quick"] * len(sent["outcomes"]))
    admin = {"Authorization": f"Bearer {farmed.service.tokens['admin']}"}
    device = {"Authorization": f"Bearer {farmed.service.tokens['own device']}"}
    with httpx.Client(base_url=farmed.url, timeout=30) as client:
        code = client.post("/v1/enrolments", json={}, headers=admin).json()["code"]
        assert client.post("/v1/enrol", json=sent["enrol"] | {"code": code}).status_code == 201
        client.headers.update(device)
        path = f"/v1/devices/{farmed.service.device_id}"
        for outcome in sent["outcomes"]:
            lease = client.post(f"{path}/lease?wait=0", json=sent["lease"]).json()
            held = {"attempt": lease["attempt"], "lease_token": lease["lease_token"]}
            beat = client.post(f"/v1/jobs/{lease['job']}/heartbeat", json=sent["heartbeat"] | held)
            assert beat.json().keys() >= {"lease_s", "cancel"}
            result = sent["result"] | held | {"outcome": outcome}
            answer = client.post(f"/v1/jobs/{lease['job']}/result", json=result)
            assert (answer.status_code, answer.json()["stored"]) == (200, True), outcome
        for health in sent["health"]:
            assert client.post(f"{path}/health", json=health).status_code == 200
    assert {item["outcome"] for item in farmed.measurements()} == {
        outcome["kind"] for outcome in sent["outcomes"]
    }
