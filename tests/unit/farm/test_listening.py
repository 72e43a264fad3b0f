"""Where a service listens: alone, or with others of its kind at one address."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mapper.errors import InputError
from nestmap.farm.serving import ServeOptions, _listener


def test_an_address_that_is_taken_is_refused():
    with contextlib.closing(_listener(ServeOptions(port=0))) as first:
        port = first.getsockname()[1]
        with pytest.raises(InputError, match="cannot listen there"):
            _listener(ServeOptions(port=port))
        with pytest.raises(InputError):  # both have to say that they share
            _listener(ServeOptions(port=port, share_port=True))


def test_services_that_share_a_port_are_dealt_connections():
    with contextlib.closing(_listener(ServeOptions(port=0, share_port=True))) as first:
        port = first.getsockname()[1]
        with contextlib.closing(_listener(ServeOptions(port=port, share_port=True))) as second:
            for listener in (first, second):
                listener.setblocking(False)
            for _ in range(64):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            dealt = [_accepted(listener) for listener in (first, second)]
    assert sum(dealt) == 64
    assert min(dealt) > 0  # of a fair deal of 64, one in 2^63 gives all to one


def _accepted(listener: socket.socket) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def test_a_port_is_shared_on_postgresql_alone(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-m", "nestmap", "serve", "--share-port", "--port", "0", "--no-worker"],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "--share-port" in ended.stderr
    assert not list(tmp_path.iterdir())
