"""What strangers and broken clients send is refused with a 4xx, in bounded time and memory."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.integration.api_server import running_service

MIB = 2**20
#: Above what the process has after its first requests; a body of a mebibyte costs far less.
ALLOWED_GROWTH = 96 * MIB
BODY_TIMEOUT_S = 1.5
GUESSES = 20

BODIES = {
    "nothing": b"",
    "no json": b"hello",
    "not utf-8": b'{"subject": {"name": "\xff\xfe"}}',
    "utf-16": '{"subject": {"name": "vgg16/7"}}'.encode("utf-16"),
    "a nul": rb'{"subject": {"name": "a\u0000b"}}',
    "half a surrogate pair": rb'{"subject": {"name": "\ud800"}}',
    "half a pair as a key": rb'{"\udfff": 1}',
    "nan": b'{"time_limit_s": NaN, "subject": {"name": "vgg16/7"}}',
    "infinity": b'{"time_limit_s": 1e999, "subject": {"name": "vgg16/7"}}',
    "an integer of 31 digits": b'{"limit": 1%s, "subject": {"name": "vgg16/7"}}' % (b"0" * 30),
    "an integer of a megabyte": b'{"limit": 1%s}' % (b"0" * 900_000),
    "a fraction of a megabyte": b'{"limit": 0.%s}' % (b"1" * 900_000),
    "a key twice": b'{"subject": {"name": "vgg16/7"}, "subject": {"name": "vgg16/7"}}',
    "lists 500,000 deep": b"[" * 500_000 + b"]" * 500_000,
    "objects 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a document 300 deep": b'{"subject": {"document": %s1%s}}' % (b'{"a":' * 300, b"}" * 300),
    "half a million values": b'{"pin": [%s0]}' % (b"0," * 500_000),
    "a hundred thousand keys": json.dumps({str(n): n for n in range(60_000)}).encode(),
    "a text of a megabyte": json.dumps({"subject": {"name": "x" * 1_000_000}}).encode(),
    "a program text of brackets": json.dumps({"subject": {"text": "(" * 400_000}}).encode(),
    "a list": b"[]",
    "a number": b"7",
    "an empty object": b"{}",
    "sizes beyond any device": json.dumps(
        {"subject": {"document": {"channels": 2**40, "height": 1, "width": 1, "filters": 1}}}
    ).encode(),
    "a profile beyond any device": json.dumps(
        {"subject": {"name": "vgg16/7"}, "device": {"max_work_group_size": 2**62}}
    ).encode(),
    "a thousand pins": json.dumps(
        {"subject": {"name": "vgg16/7"}, "pin": [f"x{n}=1" for n in range(1_000)]}
    ).encode(),
    "a file's name": b'{"subject": {"name": "/etc/passwd"}}',
    "a url": b'{"subject": {"name": "http://169.254.169.254/latest"}}',
}
ROUTES = ("/v1/mappings", "/v1/mappings/check", "/v1/layers", "/v1/programs", "/v1/runs",
          "/v1/kernels")  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("farm")
    limits = {
        "body_timeout_s": BODY_TIMEOUT_S,
        "solve_time_s": 10,
        "failed_logins_per_minute": GUESSES,
    }
    with running_service(folder, **limits) as running, running.client() as client:
        client.get("/openapi.json")
        client.post("/v1/mappings", json={"subject": {"name": "vgg16/24"}, "variant": "high-level"})
        yield running


@pytest.fixture(autouse=True)
def bounded(service):
    """Nothing that a test sends makes the process grow, or end."""
    before = service.memory_bytes()
    yield
    assert service.memory_bytes() - before < ALLOWED_GROWTH
    with service.client() as client:
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", BODIES)
def test_hostile_bodies_are_refused_by_problems(service, name):
    headers = {"Content-Type": "application/json"}
    with service.client() as client:
        for route in ROUTES:
            answer = client.post(route, content=BODIES[name], headers=headers)
            assert 400 <= answer.status_code < 500, (route, answer.text[:300])
            assert answer.headers["content-type"] == "application/problem+json"
            assert len(answer.content) < 64 * 1024


def exchange(service, *parts, wait=30.0):
    """All that comes back on one line for what is sent; parts are sent one by one."""
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=wait) as line:
        received = b""
        try:
            for part in parts:
                line.sendall(part)
            while chunk := line.recv(65536):
                received += chunk
        except (ConnectionError, TimeoutError):
            pass  # cut off in the middle: what came until then is looked at
    return received


def head(service, path="/v1/layers", *more, method="POST"):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {service.user}",
             "Content-Type: application/json", *more, "", ""]  # fmt: skip
    return "\r\n".join(lines).encode("latin-1")


@pytest.mark.parametrize("size", [MIB + 1, 64 * MIB])
def test_a_body_that_is_too_large_is_refused_unread(service, size):
    answer = exchange(service, head(service, "/v1/layers", f"Content-Length: {size}"))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"/problems/body-too-large" in answer


def test_a_chunked_body_without_end_is_cut_off_at_the_limit(service):
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = exchange(service, head(service, "/v1/layers", "Transfer-Encoding: chunked"),
                      *[chunk] * 200)  # fmt: skip
    assert answer.startswith(b"HTTP/1.1 413") or answer == b""


def test_a_body_that_never_comes_is_given_up(service):
    answer = exchange(service, head(service, "/v1/layers", "Content-Length: 100"), b"{", wait=20)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"took longer" in answer


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["X-Padding: " + "x" * 20_000], (431, 400)),
        ([f"X-{n}: y" for n in range(100)], (431, 400)),
        (["Content-Length: 5", "Content-Length: 6"], (400,)),
        (["Content-Length: -1"], (400,)),
        (["Content-Length: " + "9" * 30], (400, 413)),
        (["Idempotency-Key: a", "Idempotency-Key: b", "Content-Length: 0"], (400,)),
        (["Authorization: Bearer x", "Content-Length: 0"], (400,)),
        (["Content-Encoding: gzip", "Content-Length: 2"], (415,)),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_odd_headers_are_refused(service, lines, status):
    answer = exchange(service, head(service, "/v1/layers", *lines, "Connection: close"), b"{}")
    assert int(answer.split(b" ", 2)[1]) in status, answer[:300]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/runs/" + "x" * 9_000, (414, 400)), ("/v1/runs?label=%00", (400,)),
        ("/v1/runs?label=%ff%fe", (400,)), ("/v1/runs/%00", (400,)),
        ("/v1/runs?limit=" + "9" * 5_000, (422,)), ("/v1/runs?cursor=" + "A" * 1_900, (422,)),
        ("/v1/layers/../../etc/passwd", (404,)), ("/docs/..%2f..%2f..%2fetc%2fpasswd", (404,)),
        ("//v1/runs", (404,)), ("/v1/runs/", (404,)), ("/v1/artifacts/" + "g" * 64, (422,)),
        ("/v1/measurements/" + "9" * 40, (422,)), ("/v1/measurements?study=" + "9" * 40, (422,)),
        ("/v1/fronts?max_time_ms=nan", (422,)), ("/v1/fronts?since=" + "9" * 60, (422,)),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_odd_paths_are_refused(service, path, status):
    answer = exchange(service, head(service, path, "Connection: close", method="GET"))
    assert int(answer.split(b" ", 2)[1]) in status, answer[:300]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "BREW"])
def test_methods_that_are_not_there_are_refused(service, method):
    answer = exchange(service, head(service, "/v1/runs", "Connection: close", method=method))
    assert answer.startswith((b"HTTP/1.1 405", b"HTTP/1.1 400"))


@pytest.mark.parametrize(
    "media_type", ["", "text/plain", "application/xml", "multipart/form-data; boundary=x",
                   "application/x-www-form-urlencoded"],
)  # fmt: skip
def test_bodies_of_other_media_types_are_refused(service, media_type):
    with service.client() as client:
        headers = {"Content-Type": media_type} if media_type else {}
        answer = client.post("/v1/layers", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "/problems/unsupported-media-type")


def test_guessing_tokens_is_slowed_down_and_shuts_nobody_else_out(service):
    with service.client() as good:
        assert good.get("/v1/session").status_code == 200
        with httpx.Client(base_url=service.url) as stranger:
            guesses = [
                stranger.get("/v1/session", headers={"Authorization": f"Bearer nm_x.{n:040}"})
                for n in range(GUESSES + 5)
            ]
        found = [answer.status_code for answer in guesses]
        assert found == [401] * GUESSES + [429] * 5
        assert 0 < int(guesses[-1].headers["retry-after"]) <= 61
        assert good.get("/v1/session").status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(
        st.sampled_from(["subject", "name", "document", "text", "id", "mapping", "pin", "device",
                         "channels", "kernels", "schema", "tree", "limit"]) | st.text(),
        inner, max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@settings(max_examples=cases(25, 60))
@given(value=JSON, route=st.sampled_from(ROUTES))
def test_no_json_value_makes_a_fault(service, value, route):
    body = json.dumps(value).encode()
    with service.client() as client:
        answer = client.post(route, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, answer.text
