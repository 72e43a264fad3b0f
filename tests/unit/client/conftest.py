"""The service of the API's tests, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nestmap import AsyncClient, Client
from nestmap.client import Patience
from tests.unit.api.conftest import Service
from tests.unit.api.live_server import serving

#: Repeats without waiting for them.
QUICK = Patience(attempts=4, first_s=0.01, most_s=0.02, chance=lambda: 0.0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The application on SQLite with a solver that answers from a table."""
    made = Service(tmp_path)
    yield made
    made.close()


@pytest.fixture
def served(service: Service) -> Iterator[tuple[Service, str]]:
    """The same on loopback, with its URL."""
    with serving(service.app) as url:
        yield service, url


@pytest.fixture
def client(served: tuple[Service, str]) -> Iterator[Client]:
    """A user's blocking client of the service on loopback."""
    service, url = served
    with Client(url, service.tokens["user"], patience=QUICK) as made:
        yield made


def async_client(service: Service, url: str, principal: str = "user") -> AsyncClient:
    """A client for asyncio, to be closed."""
    return AsyncClient(url, service.tokens[principal], patience=QUICK)
