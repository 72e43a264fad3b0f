"""Services that lie, stall or send too much: one error each, and the token stays a secret."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mapper.errors import InputError
from nestmap import AsyncClient, Client
from nestmap.client import Patience, ServiceError, transport
from nestmap.client.address import Token, base_url, token_of

URL = "http://service.invalid"
SECRET = "nm_abc.thisIsTheSecret"
ONCE = Patience(attempts=1)
JSON = {"content-type": "application/json"}
Handler = Callable[[httpx.Request], httpx.Response]


def answer(body: bytes, status: int = 200, kind: str = "application/json") -> httpx.Response:
    return httpx.Response(status, headers={"content-type": kind}, stream=httpx.ByteStream(body))


def json_answer(value: Any, status: int = 200) -> httpx.Response:
    return answer(json.dumps(value).encode(), status)


def asked(handler: Handler, ask: str = "version", patience: Patience = ONCE, *args: Any) -> Any:
    """What both clients answer, which is the same; or the error that both raise."""
    with Client(URL, SECRET, patience=patience, transport=httpx.MockTransport(handler)) as client:
        first = outcome_of(lambda: getattr(client, ask)(*args))

    async def the_other() -> Any:
        mock = httpx.MockTransport(handler)
        async with AsyncClient(URL, SECRET, patience=patience, transport=mock) as other:
            return await getattr(other, ask)(*args)

    second = outcome_of(lambda: asyncio.run(the_other()))
    assert (type(first), str(first)) == (type(second), str(second))
    if isinstance(first, BaseException):
        assert SECRET not in str(first) and SECRET not in repr(first)
        raise first
    return first


def outcome_of(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except ServiceError as error:
        return error


VERSION = {"nestmap": "1", "api": "v1", "lease_protocol": 1}
PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (200, "text/html", b"<h1>Welcome</h1>", "not JSON"),
        (200, "", b"{}", "no media type"),
        (200, "application/json", b"{", "not acceptable JSON"),
        (200, "application/json", b"[" * 100_000, "nested too deeply"),
        (200, "application/json", b'{"nestmap":NaN}', "not a number of JSON"),
        (200, "application/json", b'{"nestmap":"1","nestmap":"2"}', "twice"),
        (200, "application/json", b"\xff\xfe", "not UTF-8"),
        (200, "application/json", b"[]", "something else than promised"),
        (200, "application/json", json.dumps({**VERSION, "nestmap": 1}).encode(), "/nestmap"),
        (200, "application/json", json.dumps({**VERSION, "lease_protocol": "1"}).encode(),
         "/lease_protocol"),
        (200, "application/json", json.dumps({**VERSION, "lease_protocol": True}).encode(),
         "/lease_protocol"),
        (200, "application/json", b'{"nestmap":"1","api":"v1"}', "/lease_protocol"),
        (302, "text/plain", b"", "status 302"),
        (502, "text/html", b"<h1>Bad Gateway</h1>", "status 502"),
        (500, "application/json", b'{"type":"x"}', "status 500"),
        (500, PROBLEM, b"[]", "status 500"),
        (500, PROBLEM, b'{"type":"about:blank"}', "no known type"),
        (500, PROBLEM, b"nonsense", "not acceptable JSON"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_as_promised_is_an_error(
    status: int, kind: str, body: bytes, said: str
):
    with pytest.raises(ServiceError, match=said) as caught:
        asked(lambda _: answer(body, status, kind))
    assert caught.value.kind == "bad-answer"


def test_a_compressed_answer_is_not_unpacked():
    headers = {**JSON, "content-encoding": "gzip"}
    with pytest.raises(ServiceError, match="compressed"):
        asked(lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"\x1f\x8b")))


def test_a_redirect_is_not_followed():
    hosts: list[str] = []

    def redirect(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(
            307, headers={"location": "http://elsewhere.invalid/"}, stream=httpx.ByteStream(b"")
        )

    with pytest.raises(ServiceError, match="status 307"):
        asked(redirect)
    assert set(hosts) == {"service.invalid"}


def test_a_refusal_names_each_field_with_what_was_found_and_what_is_allowed():
    body = {
        "type": "/problems/invalid-input", "title": "t", "status": 422, "detail": "d",
        "instance": "req_1", "extra": [1],
        "errors": [{"pointer": "/limit", "message": "too small", "found": "0", "allowed": "ge 1",
                    "remedy": 7}, "nonsense"],
    }  # fmt: skip
    text = json.dumps(body).encode()
    with pytest.raises(ServiceError) as caught:
        asked(lambda _: answer(text, 422, f"{PROBLEM}; charset=utf-8"))
    error = caught.value
    assert (error.kind, error.status, error.instance) == ("invalid-input", 422, "req_1")
    assert (error.path, error.found, error.allowed) == ("/limit", "0", "ge 1")
    assert str(error) == "/limit: too small; found 0; allowed: ge 1"
    assert error.more == {"extra": [1]}


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that never ends."""

    def __init__(self, piece: bytes) -> None:
        self.piece = piece

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield self.piece


def test_an_answer_without_end_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch):
    def endless(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=JSON, stream=Endless(b" " * 2**20))

    with pytest.raises(ServiceError, match="too large"):
        asked(endless)
    clock = iter(range(0, 10**9, 60))
    monkeypatch.setattr(transport.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(ServiceError, match="takes too long"):
        asked(lambda _: httpx.Response(200, headers=JSON, stream=Endless(b" ")))


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.RemoteProtocolError, httpx.ReadTimeout])
def test_a_lost_connection_is_tried_again_with_the_same_request(error: type[httpx.TransportError]):
    sent: list[httpx.Request] = []

    def lossy(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if len(sent) % 3:
            raise error("lost", request=request)
        return json_answer(VERSION)

    patience = Patience(attempts=3, first_s=0.001)
    assert asked(lossy, "version", patience)["api"] == "v1"
    assert len(sent) == 6
    with pytest.raises(ServiceError) as caught:
        asked(lossy, "version", ONCE)
    assert (caught.value.kind, caught.value.status) == ("unreachable", 0)


def test_a_list_of_something_else_is_an_error():
    def pages(request: httpx.Request) -> httpx.Response:
        return json_answer({"items": [{"id": "run_1"}], "next": None})

    with (
        Client(URL, transport=httpx.MockTransport(pages)) as client,
        pytest.raises(ServiceError, match="/device: the service answers something else"),
    ):
        next(iter(client.runs()))


def test_ctrl_c_while_an_operation_is_waited_for_cancels_it(monkeypatch: pytest.MonkeyPatch):
    paths: list[str] = []
    operation = {"id": "job_" + "1" * 26, "kind": "count", "state": "running", "ended_at": None,
                 "created_at": "2026-01-01T00:00:00Z", "result": None, "problem": None}  # fmt: skip

    def service(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return json_answer(operation, 202 if request.url.path.endswith("count") else 200)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    mock = httpx.MockTransport(service)
    with Client(URL, transport=mock) as client, pytest.raises(KeyboardInterrupt):
        client.count("vgg16/7")
    assert paths == ["/v1/mappings/count", f"/v1/operations/{operation['id']}/cancel"]
    paths.clear()

    async def cancelled() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(service)) as client:
            await asyncio.wait_for(client.count("vgg16/7"), 0.5)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert paths[0] == "/v1/mappings/count" and paths[-1].endswith("/cancel")


def test_the_token_is_in_the_header_and_nowhere_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("NESTMAP_TOKEN", SECRET)
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return answer(request.headers["authorization"].encode(), 401, "text/plain")

    with Client(URL, transport=httpx.MockTransport(refuse)) as client:
        assert SECRET not in repr(client)
        with pytest.raises(ServiceError) as caught:
            client.version()
    assert [request.headers["authorization"] for request in sent] == [f"Bearer {SECRET}"]
    assert SECRET not in str(caught.value) and SECRET not in caplog.text
    token = Token(SECRET)
    assert SECRET not in repr(token) and SECRET not in f"{token}"
    with pytest.raises(TypeError):
        pickle.dumps(token)


def test_a_token_comes_from_the_argument_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("NESTMAP_TOKEN", "NESTMAP_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert token_of() is None
    path = tmp_path / "token"
    path.write_text("nm_file.x\n")
    monkeypatch.setenv("NESTMAP_TOKEN_FILE", str(path))
    assert header(token_of()) == "Bearer nm_file.x"
    monkeypatch.setenv("NESTMAP_TOKEN", "nm_environment.x")
    assert header(token_of()) == "Bearer nm_environment.x"
    assert header(token_of(None, path)) == "Bearer nm_file.x"
    assert header(token_of("nm_argument.x")) == "Bearer nm_argument.x"
    with pytest.raises(InputError):
        token_of("nm_argument.x", path)
    with pytest.raises(InputError, match="cannot be read"):
        token_of(None, tmp_path / "absent")
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not a token"):
        token_of(None, path)
    for bad in ("", "a b", "a\nb", "é", "x" * 1001):
        with pytest.raises(InputError) as caught:
            token_of(bad)
        assert bad == "" or bad not in str(caught.value)


def header(token: Token | None) -> str:
    assert token is not None
    return token.header()


@pytest.mark.parametrize(
    "url",
    ["", "service", "ftp://host", "http://", "http://u:hidden@host", "http://host?q=1", "http://h#f",
     "http://host:99999", "http://host:0", "http://[::1", "http://ho\nst", "http://" + "h" * 3_000],
)  # fmt: skip
def test_what_is_no_url_of_a_service_is_refused(url: str):
    with pytest.raises(InputError) as caught:
        base_url(url)
    assert "hidden" not in str(caught.value)
    assert base_url("https://host:1/prefix/") == "https://host:1/prefix"
