"""A PostgreSQL of our own on loopback, in a temporary folder, stopped by its own pid.

It runs as another user where the tests run as root, which PostgreSQL refuses.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEEDS = "pg_ctlcluster"  # of Debian's postgresql-common: the programs themselves are not in PATH
INSTALL = "apt-get install postgresql"
_STARTS_WITHIN_S = 60.0


def program(name: str) -> str:
    """The newest installed one; Debian keeps them apart by version."""
    found = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[-3])
    )
    return str(found[-1]) if found else shutil.which(name) or name


class PostgresNode:
    """A server whose data stays until it is closed, so that it can be stopped and started."""

    def __init__(self) -> None:
        self._user = "postgres" if os.geteuid() == 0 else None
        # Not removed by the garbage collector: the server writes until it is stopped.
        self._folder = Path(tempfile.mkdtemp(prefix="nestmap-pg-"))
        self._data = self._folder / "data"
        self._secret = secrets.token_hex(16)
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of its database ``postgres``."""
        return f"postgresql+psycopg://nestmap:{self._secret}@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> PostgresNode:
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _initialise(self) -> None:
        self._data.mkdir()
        password_file = self._folder / "password"
        password_file.write_text(self._secret)
        if self._user is not None:
            self._folder.chmod(0o755)
            shutil.chown(self._data, self._user)
            shutil.chown(password_file, self._user)
        subprocess.run(
            [
                program("initdb"), "-D", str(self._data), "-U", "nestmap", "-A", "scram-sha-256",
                "--pwfile", str(password_file), "-E", "UTF8", "--no-sync", "--locale=C.UTF-8",
            ],
            check=True, capture_output=True, user=self._user, cwd="/",
        )  # fmt: skip

    def start(self) -> None:
        """Start, with the data that is there; waits until it accepts connections."""
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [
                    program("postgres"), "-D", str(self._data), "-p", str(self._port),
                    "-h", "127.0.0.1", "-k", "", "-c", "max_connections=60", "-c", "fsync=off",
                    "-c", "timezone=UTC",
                ],
                stdout=log, stderr=log, user=self._user, cwd="/",
            )  # fmt: skip
        _wait(self._server, self._port, self._folder / "log")

    def stop_at_once(self) -> None:
        """End as in a crash (an immediate shutdown): transactions under way are lost."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGQUIT)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def close(self) -> None:
        """End it and remove the data."""
        self.stop_at_once()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a server's database ``postgres``, gone with the block."""
    with PostgresNode() as node:
        yield node.url


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it accepts connections."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}")
        ready = subprocess.run(
            [program("pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"], check=False
        )
        if ready.returncode == 0:
            return
        time.sleep(0.05)
    raise RuntimeError("PostgreSQL did not start in time")
