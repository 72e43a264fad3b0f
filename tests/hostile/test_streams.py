"""Streams: each token has so many, and one that is revoked hears nothing more."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from api.settings import Settings
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import new_run
from tests.unit.api.live_server import serving


def test_one_token_cannot_take_all_streams(tmp_path: Path) -> None:
    service = Service(tmp_path, Settings(max_streams=3, max_streams_each=2))
    run = new_run(service.farm, service.device_id)
    headers = {"Authorization": f"Bearer {service.tokens['user']}"}
    path = f"/v1/runs/{run.id}/events"
    with (
        serving(service.app) as url,
        httpx.Client(headers=headers, timeout=30) as client,
        client.stream("GET", url + path) as first,
        client.stream("GET", url + path) as second,
    ):
        assert (first.status_code, second.status_code) == (200, 200)
        refused = client.get(url + path)
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-requests")
        assert "2 streams of this token" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        exported = {"Authorization": f"Bearer {service.tokens['admin']}"}
        assert client.get(f"{url}/v1/measurements/export", headers=exported).status_code == 200
    service.close()


@pytest.mark.parametrize("poll_s", [0.05, 30.0])
def test_a_stream_ends_within_two_seconds_of_its_token(tmp_path: Path, poll_s: float) -> None:
    service = Service(tmp_path, Settings(event_poll_s=poll_s, event_heartbeat_s=60))
    run = new_run(service.farm, service.device_id)
    token = service.tokens["user"]
    with (
        serving(service.app) as url,
        httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as client,
        client.stream("GET", f"{url}/v1/runs/{run.id}/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        service.farm.tokens.revoke(token.partition(".")[0].removeprefix("nm_"))
        began = time.monotonic()
        assert not [line for line in lines if line.startswith("event: end")]
        assert time.monotonic() - began < 4  # two where nothing else is at work
    service.close()
