"""What one token has stored is bounded for good, and what nobody uses is dropped and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.settings import Settings
from api.solver_pool import Answer
from db.farm.errors import ConflictError
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.owners import ROW_BYTES, Owner
from db.farm.retention import RetentionPolicy
from db.farm.run_records import ArtifactContent
from db.farm.states import JobKind, RunState
from tests.unit.api.conftest import Service
from tests.unit.db.farm_values import (
    PROGRAM_HASH,
    SOURCE,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_run,
)

LAYER = {"channels": 3, "height": 8, "width": 8, "filters": 4}
PROGRAM_TYPE = "nestmap/program/1"
DAY_S = 86_400.0


@pytest.fixture
def clock() -> Clock:
    """The farm's time."""
    return Clock()


@pytest.fixture
def farm(tmp_path: Path, clock: Clock) -> Iterator[Farm]:
    """An empty farm, with a clock that is set by hand."""
    with Farm.open(tmp_path / "farm.db", now=clock) as farm:
        yield farm


def described(number: int) -> Answer:
    """A program of 300 kB, as a child describes it."""
    document = {"schema": PROGRAM_TYPE, "text": "x" * 300_000, "number": number}
    return Answer([], {"schema": PROGRAM_TYPE, "document": document, "layer": None})


def test_layers_and_programs_of_one_token_are_bounded_for_good(tmp_path: Path) -> None:
    """The bound was of a day, and forgotten at a restart."""
    service = Service(tmp_path, Settings(max_stored_mb_each=1))
    user, admin = service.client("user"), service.client("admin")
    answers: list[Any] = []
    for number in range(5):
        service.solver.answers["describe"] = described(number)
        answers.append(user.post("/v1/programs", json={"text": f"program {number}"}))
    assert [answer.status_code for answer in answers] == [201] * 3 + [409] * 2
    assert answers[-1].json()["errors"][0]["allowed"] == "1048576 of a token"
    # What is there costs nothing, and others have room of their own.
    service.solver.answers["describe"] = described(0)
    assert user.post("/v1/programs", json={"text": "program 0"}).status_code == 200
    assert user.post("/v1/layers", json=LAYER).status_code == 201
    assert admin.post("/v1/layers", json=LAYER).status_code == 200
    service.solver.answers["describe"] = described(9)
    assert admin.post("/v1/programs", json={"text": "program 9"}).status_code == 201
    owner = service.tokens["user"].partition(".")[0].removeprefix("nm_")
    service.close()
    with Farm.open(service.path) as farm:
        assert farm.owners.stored_bytes(owner) > 900_000
        with pytest.raises(ConflictError, match="too many bytes"):
            farm.documents.put(PROGRAM_TYPE, '"' + "y" * 300_000 + '"', Owner(owner, 2**20))


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/kernels", "/v1/mappings/count"])
def test_whoever_is_full_stores_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    service = Service(tmp_path, Settings(max_stored_mb_each=1, default_wait_s=0))
    owner = service.tokens["user"].partition(".")[0].removeprefix("nm_")
    service.farm.artifacts.put(ArtifactContent(b"x" * (2**20 - ROW_BYTES)), Owner(owner, 2**20))
    service.solver.answers["kernel"] = Answer([], {"source": "kernel void f() {}"})
    if path == "/v1/mappings/count":  # it takes longer than the client waits

        async def asked(*given: Any, **named: Any) -> Answer:
            del given, named
            await asyncio.sleep(20)
            raise AssertionError("it was stopped")

        monkeypatch.setattr(service.solver, "ask", asked)
    subject = {"subject": {"name": "vgg16/7"}}
    body = subject | ({"device": service.device_id} if path == "/v1/runs" else {})
    answer = service.client("user").post(path, json=body, headers={"Prefer": "wait=0"})
    assert answer.status_code == 409, answer.text
    assert service.farm.owners.stored_bytes(owner) == 2**20
    assert service.farm.runs.page() == ()
    service.close()


def test_what_runs_bring_is_counted_and_ends_them(farm: Farm) -> None:
    """Arrays of cancelled runs, a year of them, were nobody's."""
    board = some_board(farm)
    run = some_run(farm, board, principal="hostile")
    before = farm.owners.stored_bytes("hostile")
    inputs = ArtifactContent(b"i" * 100_000)
    propose(farm, [1], artifacts=(SOURCE, inputs))
    brought = farm.owners.stored_bytes("hostile") - before
    assert brought >= 100_000 + len(SOURCE.data) + 3 * ROW_BYTES
    # Another's run of the same adds nothing to anybody.
    finish(farm, claim(farm, board))
    some_run(farm, board, principal="other")
    farm.runs.cancel(run.id)
    propose(farm, [2], artifacts=(SOURCE, inputs))
    assert farm.owners.stored_bytes("other") < 2 * ROW_BYTES
    again = some_run(farm, board, principal="hostile")
    assert farm.runs.end_beyond(10**6, 200_000) == ()
    assert farm.runs.end_beyond(10**6, 100_000) == (again.id,)
    ended = farm.runs.run(again.id)
    assert (ended.state, ended.reason) == (RunState.FINISHED, "bytes of its owner")


def test_operations_are_kept_for_days_and_then_given_back(farm: Farm, clock: Clock) -> None:
    payload = {"request": {"kind": "count"}, "é": "x" * 5_000}
    job = farm.jobs.enqueue(NewJob(payload, "hostile", most_bytes=20_000)).value
    with pytest.raises(ConflictError, match="too many bytes"):
        farm.jobs.enqueue(NewJob(payload, "hostile", most_bytes=15_000))
    asked = farm.owners.stored_bytes("hostile")
    found = farm.jobs.claim_work((JobKind.SOLVE,), "test", lease_s=30, job_id=job.id)
    assert found is not None
    farm.results.finish_solve(found.lease, {"items": ["a" * 30_000], "end": {}})
    assert farm.owners.stored_bytes("hostile") > asked + 30_000
    with pytest.raises(ConflictError):  # the answer was longer than there was room for
        farm.jobs.enqueue(NewJob({}, "hostile", most_bytes=20_000))
    clock.advance(DAY_S)
    assert farm.retention.prune(RetentionPolicy()).jobs == 0
    clock.advance(2 * DAY_S)
    assert farm.retention.prune(RetentionPolicy()).jobs == 1
    assert farm.owners.stored_bytes("hostile") == 0


def test_documents_and_kernels_that_nobody_uses_are_given_back(farm: Farm, clock: Clock) -> None:
    owner = Owner("somebody", 2**20)
    farm.artifacts.put(ArtifactContent(b"kernel void f() {}"), owner)
    unused, _ = farm.documents.put(PROGRAM_TYPE, '{"n":1}', owner)
    used, _ = farm.documents.put(PROGRAM_TYPE, '{"n":2}', owner)
    tuned, is_new = farm.documents.put(PROGRAM_TYPE, '{"kernels":[]}', owner)
    assert is_new and tuned == PROGRAM_HASH
    nobodys = farm.store.add_program(PROGRAM_TYPE, '{"n":3}')
    board = some_board(farm)
    some_run(farm, board, principal="other")
    propose(farm, [1])
    finish(farm, claim(farm, board))
    clock.advance(60 * DAY_S)
    assert farm.documents.used(used).schema == PROGRAM_TYPE
    assert farm.documents.put(PROGRAM_TYPE, '{"n":2}', owner) == (used, False)
    clock.advance(60 * DAY_S)
    pruned = farm.retention.prune(RetentionPolicy(programs_days=90))
    assert (pruned.programs, pruned.artifacts) == (1, 1)
    kept = farm.catalogue.documents([PROGRAM_TYPE])
    assert {item.hash for item in kept} == {used, tuned, nobodys}
    assert farm.owners.stored_bytes("somebody") == 2 * ROW_BYTES + 7 + len('{"kernels":[]}')
    assert farm.documents.put(PROGRAM_TYPE, '{"n":1}', owner) == (unused, True)
