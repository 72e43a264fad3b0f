"""Connections that say nothing, drip or do not read end, and are no more than there may be."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError

from api.addresses import customer_of
from api.auth import Authenticator
from api.connections import ConnectionBounds, OpenConnections, Seldom, bounded_config
from api.observing import service_logger
from api.problems import ProblemError
from api.settings import Settings
from tests.unit.api.conftest import Service
from tests.unit.api.live_server import serving

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"


@contextlib.contextmanager
def bounded(tmp_path: Path, **settings) -> Iterator[tuple[tuple[str, int], io.StringIO]]:
    """The address of a service with bounded connections, and its log."""
    log = io.StringIO()
    chosen = Settings(**settings)
    service = Service(tmp_path, chosen)
    config = bounded_config(
        service.app, chosen, service_logger("info", log), timeout_graceful_shutdown=2
    )
    with serving(service.app, config) as url:
        host, port = url.removeprefix("http://").split(":")
        yield (host, int(port)), log
    service.close()


def seconds_until_closed(connection: socket.socket, drip: bytes = b"") -> float:
    """How long the server lets the connection live; ``drip`` is sent byte by byte."""
    began = time.monotonic()
    connection.settimeout(0.1)
    left = iter(drip)
    while time.monotonic() - began < 20:
        with contextlib.suppress(OSError):
            for byte in left:
                connection.send(bytes([byte]))
                break
        try:
            if connection.recv(4096) == b"":
                return time.monotonic() - began
        except TimeoutError:
            continue
        except ConnectionError:
            return time.monotonic() - began
    raise AssertionError("the connection is still open after 20 s")


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    with (
        bounded(tmp_path, head_timeout_s=0.5) as (address, _),
        socket.create_connection(address) as silent,
    ):
        assert seconds_until_closed(silent) < 5


def test_a_head_that_drips_is_cut_off(tmp_path: Path) -> None:
    with (
        bounded(tmp_path, head_timeout_s=0.5) as (address, _),
        socket.create_connection(address) as slow,
    ):
        assert seconds_until_closed(slow, REQUEST.replace(b"\r\n\r\n", b"\r\nA: " + b"x" * 500)) < 5


def test_a_second_head_that_drips_is_cut_off_too(tmp_path: Path) -> None:
    """uvicorn's own deadline of an idle connection ends with the first byte."""
    with (
        bounded(tmp_path, head_timeout_s=0.5) as (address, _),
        socket.create_connection(address) as slow,
    ):
        slow.sendall(REQUEST)
        assert b"200" in slow.recv(4096)
        assert seconds_until_closed(slow, REQUEST.replace(b"\r\n\r\n", b"\r\nA: " + b"x" * 500)) < 5


def test_a_request_that_takes_long_is_not_cut_off(tmp_path: Path) -> None:
    """The clock is for heads, not for answers: boards wait for work on a kept connection."""
    with (
        bounded(tmp_path, head_timeout_s=0.3) as (address, _),
        httpx.Client(base_url="http://{}:{}".format(*address)) as client,
    ):
        for _ in range(3):
            assert client.get("/healthz").status_code == 200
            time.sleep(0.1)
        with socket.create_connection(address) as long:
            long.settimeout(10)
            long.sendall(
                b"POST /v1/enrol HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n"
                b"Content-Type: application/json\r\n\r\n"
            )
            time.sleep(0.8)
            long.sendall(b"{}")
            assert b" 422 " in long.recv(4096)


def test_an_answer_that_nobody_reads_is_cut_off(tmp_path: Path) -> None:
    with bounded(tmp_path, unread_timeout_s=0.5, head_timeout_s=0.5) as (address, _):
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(address)
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n\r\n" * 40)
        time.sleep(2.5)
        # What the kernel holds comes, and then the end, without a clean goodbye or with one.
        deaf.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while deaf.recv(1 << 16):
                pass
        deaf.close()


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    with bounded(tmp_path, max_connections=64, max_connections_each=8) as (address, log):
        silent = [socket.create_connection(address) for _ in range(8)]
        time.sleep(0.3)
        with socket.create_connection(address) as refused:
            refused.settimeout(10)
            answer = refused.recv(4096)
            assert b" 503 " in answer and b"Retry-After: 5" in answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "/problems/unavailable"
        with socket.create_connection(address, source_address=("127.0.0.2", 0)) as other:
            other.settimeout(10)
            other.sendall(REQUEST)
            assert b" 200 " in other.recv(4096)
        silent.pop().close()
        time.sleep(0.3)
        with socket.create_connection(address) as again:
            again.settimeout(10)
            again.sendall(REQUEST)
            assert b" 200 " in again.recv(4096)
        for one in silent:
            one.close()
    (line,) = [json.loads(text) for text in log.getvalue().splitlines() if "refused" in text]
    assert line["refused"] == "of this address" and line["address"] == "127.0.0.1"


def test_a_named_proxy_may_have_all_of_them(tmp_path: Path) -> None:
    settings = {"max_connections": 64, "max_connections_each": 4, "proxies": "127.0.0.0/8"}
    with bounded(tmp_path, **settings) as (address, _), contextlib.ExitStack() as stack:
        for _ in range(8):
            one = stack.enter_context(socket.create_connection(address))
            one.settimeout(10)
            one.sendall(REQUEST)
            assert b" 200 " in one.recv(4096)


@pytest.mark.parametrize(
    ("addresses", "counted"),
    [
        (["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:2::3%eth0"], 1),
        (["2001:db8:1:2::1", "2001:db8:1:3::1"], 2),
        (["::ffff:203.0.113.1", "203.0.113.1"], 1),
        (["::ffff:203.0.113.1", "::ffff:203.0.113.2"], 2),
        (["::1", "127.0.0.1"], 2),
        (["", "testclient"], 2),
    ],
)
def test_addresses_of_one_customer_are_counted_together(addresses: list[str], counted: int) -> None:
    assert len({customer_of(address) for address in addresses}) == counted


def test_a_customer_of_ipv6_cannot_take_all_connections() -> None:
    found = OpenConnections(ConnectionBounds(most=100, most_each=4), Seldom(lambda *_: None))
    each = [f"2001:db8:1:2::{number:x}" for number in range(6)]
    assert [found.enter(address) for address in each] == [""] * 4 + ["of this address"] * 2
    assert found.enter("2001:db8:1:3::1") == ""
    for address in each:
        found.leave(address)
    assert found.enter(each[0]) == "" and found.count == 2


def test_a_site_of_ipv6_cannot_take_all_connections() -> None:
    found = OpenConnections(ConnectionBounds(most=20, most_each=4), Seldom(lambda *_: None))
    answers = [found.enter(f"2001:db8:1:{number:x}::1") for number in range(12)]
    assert answers == [""] * 10 + ["of this address"] * 2
    assert found.enter("2001:db8:2:1::1") == ""


def test_failures_of_a_site_of_ipv6_are_counted_together() -> None:
    authenticator = Authenticator(cast(Any, None), cache_s=0, failures_per_minute=2)
    for number in range(20):
        authenticator.failed(f"2001:db8:1:{number:x}::1")
    with pytest.raises(ProblemError, match="too many"):
        authenticator.failed("2001:db8:1:ff::1")
    authenticator.failed("2001:db8:2:1::1")


def test_the_oldest_silent_connection_gives_way() -> None:
    now = [0.0]
    bounds = ConnectionBounds(most=4, most_each=3)
    found = OpenConnections(bounds, Seldom(lambda *_: None), clock=lambda: now[0])
    cut: list[str] = []

    def enter(name: str, address: str) -> str:
        def end() -> None:
            cut.append(name)
            found.speaks(address, end)
            found.leave(address)

        refused = found.enter(address)
        if refused:
            found.leave(address)
        else:
            found.is_silent(address, end)
        return refused

    assert [enter(f"a{number}", "203.0.113.1") for number in range(3)] == ["", "", ""]
    assert enter("a3", "203.0.113.1") == "of this address"  # nobody is silent for long yet
    now[0] += 2
    assert enter("b", "203.0.113.2") == "" and not cut
    assert enter("a4", "203.0.113.1") == "" and cut == ["a0"]
    assert enter("c", "203.0.113.3") == "" and cut == ["a0", "a1"]
    found.speaks("203.0.113.2", lambda: None)
    assert found.count == 4


def test_silent_connections_give_way_to_one_that_asks(tmp_path: Path) -> None:
    with bounded(tmp_path, max_connections=64, max_connections_each=8) as (address, _):
        silent = [socket.create_connection(address) for _ in range(8)]
        time.sleep(1.3)
        with socket.create_connection(address) as asks:
            asks.settimeout(10)
            asks.sendall(REQUEST)
            assert b" 200 " in asks.recv(4096)
        silent[0].settimeout(10)
        with pytest.raises(ConnectionError):
            silent[0].recv(1)
            raise ConnectionResetError
        for one in silent:
            one.close()


def test_failures_of_a_customer_of_ipv6_are_counted_together() -> None:
    authenticator = Authenticator(cast(Any, None), cache_s=0, failures_per_minute=2)
    for number in range(2):
        authenticator.failed(f"2001:db8:1:2::{number}")
    with pytest.raises(ProblemError, match="too many"):
        authenticator.failed("2001:db8:1:2::7")
    authenticator.failed("2001:db8:1:3::7")


def test_bounds_stay_below_the_limit_on_files() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    bounds = ConnectionBounds.of(Settings(max_connections=1_000_000))
    assert bounds.most < files and bounds.most_each <= bounds.most // 2


def test_a_thing_is_said_once_a_second_and_counted_meanwhile() -> None:
    said: list[tuple[float, int]] = []
    now = [10.0]
    say = Seldom(lambda event, unsaid: said.append((now[0], unsaid)), lambda: now[0])
    for step in range(300):
        now[0] = 10.0 + step / 100
        say("connections")
    assert [at for at, _ in said] == [10.0, 11.0, 12.0]
    assert [unsaid for _, unsaid in said] == [0, 99, 99]


def test_a_service_without_a_file_left_answers_again_and_its_log_stays_small(
    tmp_path: Path,
) -> None:
    """As many connections as files: beyond the bound, by a process that may open few."""
    command = [
        sys.executable, "-c",
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400));"
        "from nestmap.cli import main; sys.exit(main())",
        "serve", "--port", "0", "--no-worker", "--solvers", "1", "--store", str(tmp_path / "s.db"),
    ]  # fmt: skip
    log = (tmp_path / "log").open("w+")
    with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            url = wait_for_url(tmp_path / "log", process)
            host, port = url.removeprefix("http://").split(":")
            silent = []
            for _ in range(390):
                with contextlib.suppress(OSError):
                    silent.append(socket.create_connection((host, int(port)), timeout=5))
            before = os.path.getsize(tmp_path / "log")
            time.sleep(2)
            assert os.path.getsize(tmp_path / "log") - before < 2000
            for one in silent:
                one.close()
            assert httpx.get(f"{url}/readyz", timeout=30).status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            log.close()


def wait_for_url(log: Path, process: subprocess.Popen) -> str:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"its pages at (http://\S+)", log.read_text())
        if found and "ready;" in log.read_text():
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_an_address_is_forwarded_by_named_proxies_only(tmp_path: Path) -> None:
    """Failures are counted by address: a stranger must not choose whose they are."""
    wrong = {"Authorization": "Bearer nm_abcdefgh.abcdefghijklmnopqrstuvwx"}
    for proxies, expected in (("", [401, 429]), ("127.0.0.1", [401, 401])):
        folder = tmp_path / (proxies or "none")
        folder.mkdir()
        with (
            bounded(folder, failed_logins_per_minute=1, proxies=proxies) as (address, _),
            httpx.Client(base_url="http://{}:{}".format(*address), headers=wrong) as client,
        ):
            found = [
                client.get("/v1/runs", headers={"X-Forwarded-For": one}).status_code
                for one in ("203.0.113.1", "203.0.113.2")
            ]
        assert found == expected, proxies


@pytest.mark.parametrize("proxies", ["*", "anywhere", "10.0.0.0/99"])
def test_proxies_are_networks(proxies: str) -> None:
    with pytest.raises(ValidationError, match="proxies"):
        Settings(proxies=proxies)


def test_a_valid_token_passes_whoever_else_failed_at_its_address(tmp_path: Path) -> None:
    service = Service(tmp_path, Settings(failed_logins_per_minute=2, token_cache_s=0.0))
    with serving(service.app) as url, httpx.Client(base_url=url) as client:
        wrong = {"Authorization": "Bearer nm_abcdefgh.abcdefghijklmnopqrstuvwx"}
        found = [client.get("/v1/runs", headers=wrong).status_code for _ in range(4)]
        assert found == [401, 401, 429, 429]
        good = {"Authorization": f"Bearer {service.tokens['user']}"}
        assert client.get("/v1/runs", headers=good).status_code == 200
        assert client.get("/v1/runs", headers=wrong).status_code == 429
    service.close()
