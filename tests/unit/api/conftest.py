"""A service on SQLite with a solver that is none, for tests of everything but solving."""

from __future__ import annotations

import asyncio
import atexit
import io
import shutil
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx
import pytest

from api.app import create_app
from api.observing import service_logger
from api.settings import Settings
from api.solver_pool import Answer, SolverProblem
from db.farm.farm import Farm
from db.farm.states import Scope

T = TypeVar("T")


class CannedSolver:
    """A pool that answers from a table, by kind; what is not in it is unavailable."""

    pids = (1,)

    def __init__(self) -> None:
        self.answers: dict[str, Answer | SolverProblem] = {}
        self.asked: list[Mapping[str, Any]] = []
        self.stopped = 0

    async def ask(self, request: Mapping[str, Any], limits: object = None, who: str = "") -> Answer:
        self.asked.append(request)
        answer = self.answers.get(request["kind"], SolverProblem("unavailable", "no answer"))
        if isinstance(answer, SolverProblem):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(
        self, request: Mapping[str, Any], limits: object = None, who: str = ""
    ) -> AsyncIterator[CannedStream]:
        answer = await self.ask(request, limits)
        try:
            yield CannedStream(answer)
        finally:
            self.stopped += 1


class CannedStream:
    """The items of an answer one by one; the end may be a problem."""

    def __init__(self, answer: Answer) -> None:
        self._items = iter(answer.items)
        self._end = answer.end
        self.end: dict[str, Any] | None = None

    def __aiter__(self) -> CannedStream:
        return self

    async def __anext__(self) -> tuple[str, dict[str, Any]]:
        for item in self._items:
            return "item", item
        if "problem" in self._end:
            raise SolverProblem(self._end["problem"], "in the middle")
        self.end = self._end
        raise StopAsyncIteration


class LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The value of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class Client:
    """A client without a socket; its calls block and may be made from any thread."""

    def __init__(self, service: Service, headers: dict[str, str]) -> None:
        transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
        self._run = service.thread.run
        self._client = httpx.AsyncClient(
            transport=transport, base_url="http://testserver", headers=headers, timeout=60
        )
        self.cookies = self._client.cookies

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._run(self._client.request(method, path, **more))

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def put(self, path: str, **more: Any) -> httpx.Response:
        return self.request("PUT", path, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.request("DELETE", path, **more)

    def options(self, path: str, **more: Any) -> httpx.Response:
        return self.request("OPTIONS", path, **more)


@cache
def migrated_file() -> Path:
    """An empty store of the newest schema: to copy it is faster than to migrate anew."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "empty.sqlite3"
    Farm.open(path).close()
    return path


class Service:
    """An application with tokens of every kind and a client for each."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.path = folder / "farm.sqlite3"
        shutil.copyfile(migrated_file(), self.path)
        self.farm = Farm.open(self.path)
        self.solver = CannedSolver()
        self.log = io.StringIO()
        self.settings = settings or Settings(
            sweep_s=0.05, lease_poll_s=0.02, event_poll_s=0.05, token_cache_s=0.0,
            failed_logins_per_minute=100_000,
        )  # fmt: skip
        self.app = create_app(
            self.settings, self.farm, self.solver,  # pyright: ignore[reportArgumentType]
            logger=service_logger("debug", self.log),
        )  # fmt: skip
        self.thread = LoopThread()
        admin = self.farm.tokens.create(Scope.ADMIN, label="admin").text
        user = self.farm.tokens.create(Scope.USER, label="user").text
        board = self.farm.boards.add("board", profile="pocl", agent_version="0.1.0")
        other = self.farm.boards.add("other")
        self.device_id, self.other_id = board.board.id, other.board.id
        self.tokens = {
            "admin": admin, "user": user, "own device": board.token.text,
            "other device": other.token.text,
        }  # fmt: skip

    def client(self, principal: str | None) -> Client:
        """A client that sends the token of a principal, or none."""
        token = None if principal is None else f"Bearer {self.tokens[principal]}"
        return Client(self, {} if token is None else {"Authorization": token})

    @contextmanager
    def running(self) -> Iterator[Service]:
        """With the loops that go on beside requests."""
        lifespan = self.app.router.lifespan_context(self.app)
        self.thread.run(lifespan.__aenter__())
        try:
            yield self
        finally:
            self.thread.run(lifespan.__aexit__(None, None, None))

    def close(self) -> None:
        self.thread.close()
        self.farm.close()

    @property
    def admin(self) -> Client:
        return self.client("admin")

    @property
    def user(self) -> Client:
        return self.client("user")

    @property
    def device(self) -> Client:
        return self.client("own device")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The service; its loops run only within ``with service.running()``."""
    made = Service(tmp_path)
    yield made
    made.close()
