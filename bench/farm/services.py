"""The service itself as it is started on a host: `nestmap serve` and `nestmap solver-worker`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx

from bench.farm.load import Injector
from bench.farm.processes import Service
from db.farm.farm import Farm
from db.farm.states import Scope
from mapper.errors import StoreError

_ANSWER_S = 600.0
_BOARDS_S = 90.0
_NEARLY_ALL = 0.97


@dataclass(frozen=True, slots=True)
class Host:
    """Where everything of one bench lies and what its services are told."""

    folder: Path
    store: str
    broker: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """Of every process; without what the caller's own says about nestmap."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("NESTMAP_")
        }
        broker = {"NESTMAP_BROKER": self.broker} if self.broker else {}
        return {
            **kept, "NESTMAP_STORE": self.store, "NESTMAP_LOG_LEVEL": "warning",
            "NESTMAP_METRICS_OPEN": "true", **broker,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Api:
    """Processes that answer at one ``url``."""

    services: tuple[Service, ...]
    url: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        url = httpx.URL(self.url)
        return url.host, url.port or 80

    @property
    def pids(self) -> list[int]:
        return [service.pid for service in self.services]


@contextmanager
def api(host: Host, solvers: int, processes: int = 1) -> Iterator[Api]:
    """The API in so many processes, of so many solver processes each, from when it is ready."""
    with ExitStack() as stack:
        first, url = stack.enter_context(_serving(host, solvers, 0, 0, processes > 1))
        started = [first]
        for number in range(1, processes):
            port = httpx.URL(url).port or 80
            more, _ = stack.enter_context(_serving(host, solvers, number, port, True))
            started.append(more)
        yield Api(tuple(started), url)


@contextmanager
def _serving(
    host: Host, solvers: int, number: int, port: int, shared: bool
) -> Iterator[tuple[Service, str]]:
    command = [
        sys.executable, "-m", "nestmap", "serve", "--no-worker", "--port", str(port), "--json",
        "--solvers", str(solvers), *(["--share-port"] if shared else []),
    ]  # fmt: skip
    with Service(
        f"api-{number}" if number else "api", command, folder=host.folder,
        environment=host.environment, pipes=True,
    ) as service:  # fmt: skip
        url = ""
        assert service.process.stdout is not None
        for line in service.process.stdout:
            said = json.loads(line)
            if said["event"] == "listening":
                url = said["url"]
            if said["event"] == "ready":
                break
        else:
            raise StoreError(f"the API ended: {service.said()}")
        yield service, url


def wait_for_boards(injector: Injector, boards: int, since: datetime) -> int:
    """How many boards have asked for work since then when nearly all have, or when that has
    taken too long. What a thousand boards cost that come at once is none of what they cost while
    they wait."""
    end = time.monotonic() + _BOARDS_S
    while (waiting := injector.seen_since(since)) < _NEARLY_ALL * boards:
        if time.monotonic() > end:
            break
        time.sleep(0.5)
    return waiting


@contextmanager
def solver_workers(host: Host, count: int) -> Iterator[list[Service]]:
    """So many solver workers of one process each. They are at work when they are: nobody waits
    for a worker of a farm."""
    command = [sys.executable, "-m", "nestmap", "solver-worker", "--processes", "1"]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Service(
                    f"solver-worker-{number}", command, folder=host.folder,
                    environment=host.environment,
                )
            )
            for number in range(count)
        ]  # fmt: skip


@contextmanager
def user_client(api: Api, farm: Farm) -> Iterator[httpx.Client]:
    """Somebody who asks the API."""
    token = farm.tokens.create(Scope.USER, label="bench farm").text
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=api.url, headers=headers, timeout=_ANSWER_S) as client:
        yield client
