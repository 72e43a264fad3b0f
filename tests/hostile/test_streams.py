"""Streams: each token has so many, and one that is revoked hears nothing more."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api import exports
from api.settings import Settings
from api.solving import Solving
from api.streaming import Stream
from db.farm.states import Scope
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
        assert time.monotonic() - began < 2
    service.close()


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_an_export_is_cut_off_within_two_seconds_of_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    async def endless(*_: object) -> AsyncIterator[list[Any]]:
        while True:
            await asyncio.sleep(0.1)
            yield []

    monkeypatch.setattr(exports, "_pages", endless)
    service = Service(tmp_path)
    token = service.tokens["user"]
    headers = {"Authorization": f"Bearer {token}"}
    path = f"/v1/measurements/export?format={format_}"
    with (
        serving(service.app) as url,
        httpx.Client(headers=headers, timeout=30) as client,
        client.stream("GET", url + path) as stream,
    ):
        assert stream.status_code == 200
        service.farm.tokens.revoke(token.partition(".")[0].removeprefix("nm_"))
        began = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):  # it is not taken for a whole file
            stream.read()
        assert time.monotonic() - began < 2
    service.close()


def test_a_stream_of_mappings_ends_with_its_token_while_nothing_is_found() -> None:
    """The last mapping may be minutes away."""
    closed: list[bool] = []

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"{}"
            await asyncio.sleep(300)
        finally:
            closed.append(True)

    async def main() -> list[Any]:
        answers = iter([True, False])
        sent: list[Any] = []

        async def admitted() -> bool:
            return next(answers)

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            await asyncio.sleep(300)

        stream = Stream(pieces(), "application/x-ndjson", admitted=admitted)
        async with asyncio.timeout(2):
            await stream({"type": "http"}, receive, send)
        return sent

    sent = asyncio.run(main())
    assert closed == [True]
    assert [message.get("more_body") for message in sent] == [None, True]


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_wait_for_the_first_mapping_ends_within_two_seconds_of_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked, closed = threading.Event(), threading.Event()

    async def nothing_found(*_: object) -> AsyncIterator[Any]:
        try:
            asked.set()
            await asyncio.sleep(300)
            yield "item", {}
        finally:
            closed.set()

    service = Service(tmp_path)
    monkeypatch.setattr(Solving, "mappings", nothing_found)
    life_s = 2.0 if how == "expired" else None
    made = time.monotonic()
    token = service.farm.tokens.create(Scope.USER, lifetime_s=life_s)
    body = {"subject": {"name": "vgg16/7"}, "variant": "high-level"}
    ended: list[float] = []

    def end() -> None:
        assert asked.wait(20)
        if how == "revoked":
            service.farm.tokens.revoke(token.token.id)
            ended.append(time.monotonic())
        else:
            ended.append(made + 2.0)

    with (
        serving(service.app) as url,
        httpx.Client(headers={"Authorization": f"Bearer {token.text}"}, timeout=30) as client,
    ):
        ending = threading.Thread(target=end)
        ending.start()
        answer = client.post(f"{url}/v1/mappings/stream", json=body)
        at = time.monotonic()
        ending.join()
        assert at - ended[0] < 2
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert closed.wait(2)
    service.close()
