"""PostgreSQL and RabbitMQ of the bench's own: on loopback, in a folder that goes with them.

They need Debian's packages and none of their services: nothing of these runs or lies elsewhere.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.farm.processes import Service
from mapper.errors import InputError, Problem, StoreError

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_STARTS_WITHIN_S = 60.0


def free_port() -> int:
    """A port of loopback that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def require_servers(store: str, broker: bool) -> None:
    """InputError that names the package of a server which is not installed."""
    missing: list[Problem] = []
    if store == "postgres" and postgres_program("postgres") is None:
        found = "no server program of PostgreSQL in /usr/lib/postgresql or PATH"
        remedy = "apt-get install postgresql, or --store sqlite"
        missing.append(Problem("--store", "PostgreSQL is not installed", found, remedy=remedy))
    if broker and not RABBITMQ.exists():
        remedy = "apt-get install rabbitmq-server, or --store sqlite"
        missing.append(
            Problem("--store", "RabbitMQ is not installed", f"no {RABBITMQ}", remedy=remedy)
        )
    if missing:
        raise InputError(missing)


def postgres_program(name: str) -> str | None:
    """The newest installed one; Debian keeps them apart by version."""
    found = sorted(
        (path for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")),
        key=lambda path: float(path.parts[-3]),
    )
    return str(found[-1]) if found else shutil.which(name)


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[Service, str]]:
    """A server with its defaults but for memory, and the URL of its database ``postgres``.

    It runs as the user ``postgres`` where we are root, which it refuses to be.
    """
    user = "postgres" if os.geteuid() == 0 else None
    home = folder / "postgres"
    data, password_file = home / "data", home / "password"
    data.mkdir(parents=True)
    secret = secrets.token_hex(16)
    password_file.touch(0o600)
    password_file.write_text(secret)
    if user is not None:
        folder.chmod(0o711)
        for path in (home, data, password_file):
            shutil.chown(path, user)
    made = subprocess.run(
        [
            postgres_program("initdb") or "initdb", "-D", str(data), "-U", "nestmap",
            "-A", "scram-sha-256", "--pwfile", str(password_file), "-E", "UTF8",
            "--locale=C.UTF-8",
        ],
        capture_output=True, user=user, cwd="/",
    )  # fmt: skip
    if made.returncode != 0:
        raise StoreError(f"initdb failed: {made.stderr.decode(errors='replace')[-1000:]}")
    port = free_port()
    command = [
        postgres_program("postgres") or "postgres", "-D", str(data), "-p", str(port),
        "-h", "127.0.0.1", "-k", "", "-c", "max_connections=80", "-c", "timezone=UTC",
        # What anybody sets on a host of some gigabytes; commits stay durable.
        "-c", "shared_buffers=512MB", "-c", "maintenance_work_mem=512MB",
        "-c", "max_wal_size=4GB", "-c", "effective_cache_size=4GB",
    ]  # fmt: skip
    # SIGINT: a fast shutdown, which ends connections.
    with Service(
        "postgres", command, folder=home, environment={"PATH": os.environ["PATH"]}, user=user,
        stop_with=signal.SIGINT,
    ) as service:  # fmt: skip
        url = f"postgresql+psycopg://nestmap:{secret}@127.0.0.1:{port}/postgres"
        _wait(service, lambda: _accepts(port, None) and _is_ready(port))
        yield service, url


@contextmanager
def rabbitmq(folder: Path) -> Iterator[tuple[Service, str]]:
    """A node with a port mapper of its own, and the URL for clients."""
    # The port mapper is found by the node's helpers, so that it has to be there first.
    home = folder / "mq"
    home.mkdir(mode=0o700)
    port, mapper_port = free_port(), free_port()
    environment = _rabbitmq_environment(home, port, mapper_port)
    mapper = ["epmd", "-port", str(mapper_port), "-address", "127.0.0.1"]
    with (
        Service("epmd", mapper, folder=home, environment=environment),
        Service("rabbitmq", [str(RABBITMQ)], folder=home, environment=environment) as service,
    ):
        _wait(service, lambda: _accepts(port, b"AMQP\x00\x00\x09\x01"))
        yield service, f"amqp://guest:guest@127.0.0.1:{port}//"


def _rabbitmq_environment(home: Path, port: int, mapper_port: int) -> dict[str, str]:
    (home / "enabled_plugins").write_text("[].\n")
    (home / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\n"
        "log.console = false\n"
        "vm_memory_high_watermark.absolute = 512MB\n"
        "disk_free_limit.absolute = 16MB\n"
    )
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_NODENAME": f"nm{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
    }


def _wait(service: Service, serves: Callable[[], bool]) -> None:
    """Until it serves. StoreError where it ends before, or takes too long."""
    end = time.monotonic() + _STARTS_WITHIN_S
    while not serves():
        if service.process.poll() is not None or time.monotonic() > end:
            raise StoreError(f"{service.name} did not start: {service.said()}")
        time.sleep(0.1)


def _accepts(port: int, greeting: bytes | None) -> bool:
    """Whether somebody listens, and answers a greeting if there is one."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            if greeting is None:
                return True
            connection.sendall(greeting)
            return bool(connection.recv(8))
    except OSError:
        return False


def _is_ready(port: int) -> bool:
    command = [postgres_program("pg_isready") or "pg_isready", "-h", "127.0.0.1", "-q"]
    return subprocess.run([*command, "-p", str(port)], cwd="/").returncode == 0
