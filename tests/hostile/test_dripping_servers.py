"""A server that drips, says nothing or is not there keeps neither boards nor commands."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nestmap.client import AsyncClient, Client, Patience, ServiceError
from worker.agent import command
from worker.agent.failures import AgentExit, TryAgain
from worker.agent.http_calls import HttpCalls

TOKEN = "nm_abcdefgh.abcdefghijklmnopqrstuvwx"
ONCE = Patience(attempts=1)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@contextlib.contextmanager
def server(first: bytes, drip: bytes) -> Iterator[str]:
    """The URL of a server that answers with ``first``, and then a byte in a tenth of a second."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(first)
            while not ended.wait(0.1):
                connection.sendall(drip)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture(params=["head", "body", "silence"])
def slow(request: pytest.FixtureRequest) -> Iterator[str]:
    """Servers whose head never ends, whose body never ends, and that say nothing."""
    first, drip = {
        "head": (b"HTTP/1.1 200 OK\r\nX: ", b"a"), "body": (HEAD, b"a"), "silence": (b"", b""),
    }[request.param]  # fmt: skip
    with server(first, drip) as url:
        yield url


def test_a_call_of_a_board_ends_after_its_time(slow: str) -> None:
    calls = HttpCalls(slow, TOKEN)
    began = time.monotonic()
    with pytest.raises(TryAgain):
        calls.post("/v1/devices/dev_1/lease", {}, timeout_s=0.4)
    with pytest.raises(TryAgain):
        calls.download("/v1/artifacts/1", len, most_bytes=1_000, timeout_s=0.4)
    assert time.monotonic() - began < 8
    calls.close()


def test_a_command_ends_after_its_time(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    monkeypatch.setattr("nestmap.client.transport.CONNECT_S", 0.3)
    monkeypatch.setattr("nestmap.client.transport._BODY_S", 0.4)
    began = time.monotonic()
    with Client(slow, TOKEN, timeout_s=0.3, patience=ONCE) as client, pytest.raises(ServiceError):
        client.run("run_1")
    assert time.monotonic() - began < 8


def test_a_coroutine_ends_after_its_time(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    monkeypatch.setattr("nestmap.client.transport.CONNECT_S", 0.3)
    monkeypatch.setattr("nestmap.client.transport._BODY_S", 0.4)

    async def ask() -> None:
        async with AsyncClient(slow, TOKEN, timeout_s=0.3, patience=ONCE) as client:
            await client.run("run_1")

    began = time.monotonic()
    with pytest.raises(ServiceError):
        asyncio.run(ask())
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    "how", [["--enrol", "abcdefghijklmnop"], ["--token", TOKEN, "--id", "dev_1"]]
)
def test_a_board_that_wants_one_job_says_that_there_is_no_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    how: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("worker.agent.patience.FIRST_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    code = command.main(
        ["--once", "--url", f"http://127.0.0.1:{port}", "--state", str(tmp_path), "--device",
         "null", *how]
    )  # fmt: skip
    assert code == AgentExit.SERVER == 5
    assert "the server cannot be reached" in capsys.readouterr().err
    assert time.monotonic() - began < 60


def test_a_silent_server_is_given_up_after_one_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.agent.agent._POLL_MARGIN_S", 1.0)
    monkeypatch.setattr("worker.agent.agent._ONCE_SILENCE_S", 0.5)
    began = time.monotonic()
    with server(b"", b"") as url:
        code = command.main(
            ["--once", "--url", url, "--state", str(tmp_path), "--device", "null", "--wait", "0",
             "--token", TOKEN, "--id", "dev_1"]
        )  # fmt: skip
    assert code == AgentExit.SERVER
    assert time.monotonic() - began < 60
