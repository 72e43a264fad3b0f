"""What one token has stored is bounded for good, and what nobody uses is dropped and given back."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from api.settings import Settings
from api.solver_pool import Answer
from db.farm.errors import ConflictError
from db.farm.farm import Farm
from db.farm.owners import ROW_BYTES, Owner
from db.farm.run_records import ArtifactContent
from tests.unit.api.conftest import Service

LAYER = {"channels": 3, "height": 8, "width": 8, "filters": 4}
PROGRAM_TYPE = "nestmap/program/1"
DAY_S = 86_400.0


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


def test_a_key_does_not_keep_what_a_run_was_asked_once_more(tmp_path: Path) -> None:
    service = Service(tmp_path, Settings())
    layer = {"schema": "nestmap/layer/2", **LAYER, "name": "n" * 900}
    service.solver.answers["describe"] = Answer([], {"layer": layer})
    body = {"subject": {"document": layer}, "device": service.device_id, "label": "long"}
    user, headers = service.client("user"), {"Idempotency-Key": "once"}
    first = user.post("/v1/runs", json=body, headers=headers)
    assert first.status_code == 201, first.text
    again = user.post("/v1/runs", json=body, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == first.json()
    assert first.json()["request"]["subject"]["document"]["name"] == "n" * 900
    service.close()
    with sqlite3.connect(service.path) as store:
        ((kept,),) = store.execute("SELECT response FROM idempotency").fetchall()
    assert "long" in kept and "nnn" not in kept
