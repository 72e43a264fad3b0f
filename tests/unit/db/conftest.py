"""One suite over both databases: a fresh one for each test, copied from a migrated one."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from db.farm.farm import Farm
from tests.unit.db.farm_values import Clock
from tests.unit.db.postgres_server import INSTALL, NEEDS, running_server

BOTH = (
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.needs(NEEDS, install=INSTALL)),
)
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server of our own, for the tests of one process."""
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def new_postgres(postgres: str) -> Iterator[Callable[[str], str]]:
    """``new_postgres(template)``: the URL of a new database, a copy of ``template``."""
    engine = create_engine(postgres, isolation_level="AUTOCOMMIT")

    def create(template: str) -> str:
        name = f"nestmap_{next(_numbers)}"
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        return make_url(postgres).set(database=name).render_as_string(hide_password=False)

    yield create
    engine.dispose()


@pytest.fixture(scope="session")
def migrated_postgres(new_postgres: Callable[[str], str]) -> str:
    """The name of a database with the newest schema, to be copied."""
    url = new_postgres("template1")
    Farm.open(url).close()
    return str(make_url(url).database)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the newest schema, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "farm.db"
    Farm.open(path).close()
    return path


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without any table."""
    if request.param == "sqlite":
        return str(tmp_path / "empty.db")
    return request.getfixturevalue("new_postgres")("template1")


@pytest.fixture(params=BOTH)
def farm_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty farm."""
    if request.param == "sqlite":
        path = tmp_path / "farm.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
        return str(path)
    template = request.getfixturevalue("migrated_postgres")
    return request.getfixturevalue("new_postgres")(template)


@pytest.fixture
def clock() -> Clock:
    """The farm's time."""
    return Clock()


@pytest.fixture
def farm(farm_url: str, clock: Clock) -> Iterator[Farm]:
    """An empty farm, on each database, with a clock that is set by hand."""
    with Farm.open(farm_url, now=clock) as farm:
        yield farm
