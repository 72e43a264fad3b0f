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


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a server's database ``postgres``, gone with the block."""
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="nestmap-pg-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        data.mkdir()
        if user is not None:
            Path(folder).chmod(0o755)
            shutil.chown(data, user)
        secret = secrets.token_hex(16)
        password_file = Path(folder) / "password"
        password_file.write_text(secret)
        if user is not None:
            shutil.chown(password_file, user)
        subprocess.run(
            [
                program("initdb"), "-D", str(data), "-U", "nestmap", "-A", "scram-sha-256",
                "--pwfile", str(password_file), "-E", "UTF8", "--no-sync", "--locale=C.UTF-8",
            ],
            check=True, capture_output=True, user=user, cwd="/",
        )  # fmt: skip
        port = free_port()
        log = (Path(folder) / "log").open("wb")
        server = subprocess.Popen(
            [
                program("postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1",
                "-k", "", "-c", "max_connections=60", "-c", "fsync=off", "-c", "timezone=UTC",
            ],
            stdout=log, stderr=log, user=user, cwd="/",
        )  # fmt: skip
        try:
            _wait(server, port, Path(folder) / "log")
            yield f"postgresql+psycopg://nestmap:{secret}@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # immediate: nothing is to be kept
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            log.close()


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
