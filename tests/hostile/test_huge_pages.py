"""Measurements with as many trials as a board may send, runs of programs as large as they may be,
and artifacts that nobody reads."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from api.settings import Settings
from db.canonical import canonical_json
from db.farm import artifacts, catalogue
from db.farm.measurements import MOST_OF_A_PAGE
from db.farm.owners import Owner
from db.farm.run_records import ArtifactContent, NewRun
from db.farm.runs import MOST_OF_A_PAGE as MOST_OF_A_PAGE_OF_RUNS
from mapper.measurement import Timed
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import UNBOUNDED, measure, new_run, propose
from tests.unit.api.live_server import serving

TRIALS = MOST_OF_A_PAGE // 8 // 2


def test_a_page_of_huge_measurements_ends_early_and_none_is_lost(tmp_path: Path) -> None:
    service = Service(tmp_path)
    new_run(service.farm, service.device_id)
    propose(service.farm, *(4096 + number for number in range(5)))
    outcomes = [Timed((1_000_000 + number,) * TRIALS, 1e-6, 1.0) for number in range(4)]
    measure(service.farm, service.device_id, *outcomes, Timed((1_000_000,), 1e-6, 1.0))
    client = service.client("user")
    for order in ("oldest", "newest"):
        found: list[int] = []
        cursor: dict[str, str] = {}
        while True:
            answer = client.get("/v1/measurements", params={"order": order, **cursor})
            assert answer.status_code == 200
            assert len(answer.content) < 2 * MOST_OF_A_PAGE
            page = answer.json()
            found += [item["id"] for item in page["items"]]
            assert page["items"]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert found == sorted(set(found), reverse=order == "newest")
        assert len(found) == 5
    lines = client.get("/v1/measurements/export?format=ndjson").text.splitlines()
    assert len(lines) == 5
    service.close()


def test_a_page_of_runs_of_huge_programs_ends_early_and_none_is_lost(tmp_path: Path) -> None:
    service = Service(tmp_path)
    text = "#" * (MOST_OF_A_PAGE_OF_RUNS // 2 - 1_000)
    for number in range(5):
        subject = {"text": text if number else "short"}
        service.farm.runs.create(
            NewRun(service.device_id, f"run {number}", "me", {"subject": subject}, **UNBOUNDED)
        )
    client = service.client("user")
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = client.get("/v1/runs", params={"limit": 500, **cursor})
        assert answer.status_code == 200
        assert len(answer.content) < 2 * MOST_OF_A_PAGE_OF_RUNS
        page = answer.json()
        found += [item["label"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == [f"run {number}" for number in (4, 3, 2, 1, 0)]
    assert len(service.farm.runs.page(limit=1_000)) == 2
    service.close()


def test_lists_of_programs_read_no_text_and_names_of_layers_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path)
    text = canonical_json({"schema": "nestmap/program/1", "name": "p"})
    name, _ = service.farm.documents.put("nestmap/program/1", text, Owner("me", 2**20))
    client = service.client("user")
    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "StoredProgram", None)
        assert [one["id"] for one in client.get("/v1/programs").json()["items"]] == [name]
    layer = {"channels": 8, "height": 8, "width": 8, "filters": 8, "name": "x" * 1_001}
    refused = client.post("/v1/layers", json=layer)
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/name"
    assert client.post("/v1/layers", json={**layer, "name": "x" * 1_000}).status_code == 201
    assert name in client.get("/layers").text
    service.close()


def test_artifacts_are_streams_like_others(tmp_path: Path) -> None:
    service = Service(tmp_path, Settings(max_streams=3, max_streams_each=2))
    content = ArtifactContent(bytes(64 * artifacts.CHUNK_BYTES), "application/octet-stream")
    name = service.farm.artifacts.put(content).hash
    token = service.tokens["user"]
    path = f"/v1/artifacts/{name}"
    with (
        serving(service.app) as url,
        httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as client,
        client.stream("GET", url + path) as first,
        client.stream("GET", url + path) as second,
    ):
        assert (first.status_code, second.status_code) == (200, 200)
        refused = client.get(url + path)
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-requests")
        service.farm.tokens.revoke(token.partition(".")[0].removeprefix("nm_"))
        time.sleep(2)
        try:
            read = sum(map(len, first.iter_raw()))
        except httpx.RemoteProtocolError:
            read = 0
        assert read < len(content.data)
    service.close()
