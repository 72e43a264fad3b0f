"""Measurements with as many trials as a board may send, and artifacts that nobody reads."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from api.settings import Settings
from db.farm import artifacts
from db.farm.measurements import MOST_OF_A_PAGE
from db.farm.run_records import ArtifactContent
from mapper.measurement import Timed
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose
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
