"""A whole service in a process of its own: ``python -m tests.integration.api_server FOLDER``.

It prints one line of JSON with its URL and tokens, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from api.app import create_app
from api.settings import Settings
from api.solver_pool import PoolSettings, SolverPool
from db.farm.farm import Farm
from db.farm.states import Scope

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service in another process."""

    url: str
    admin: str
    user: str
    device: str
    device_id: str
    pid: int

    def client(self, token: str | None = None) -> httpx.Client:
        """A client with a user's token unless another is given."""
        headers = {"Authorization": f"Bearer {token or self.user}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def memory_bytes(self) -> int:
        """The most memory that the process has had (its children apart)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024


@contextlib.contextmanager
def running_service(folder: Path, **settings: object) -> Iterator[RunningService]:
    """The service, ended at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.api_server", str(folder), json.dumps(settings)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        hello = json.loads(process.stdout.readline())
        yield RunningService(**hello, pid=process.pid)
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


async def _serve(folder: str, settings: dict[str, object]) -> None:
    with Farm.open(Path(folder) / "farm.sqlite3") as farm:
        board = farm.boards.add("board", profile="pocl")
        async with _pool(int(str(settings.pop("children", 1)))) as pool:
            app = create_app(
                Settings.model_validate({"log_level": "error", **settings}), farm, pool
            )
            listener = socket.create_server(("127.0.0.1", 0))
            hello = {
                "url": f"http://127.0.0.1:{listener.getsockname()[1]}",
                "admin": farm.tokens.create(Scope.ADMIN).text,
                "user": farm.tokens.create(Scope.USER).text,
                "device": board.token.text,
                "device_id": board.board.id,
            }
            server = uvicorn.Server(
                uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2)
            )
            serving = asyncio.create_task(server.serve([listener]))
            print(json.dumps(hello), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            app.state.services.stop()
            server.should_exit = True
            await serving


@contextlib.asynccontextmanager
async def _pool(children: int) -> AsyncIterator[SolverPool]:
    async with SolverPool(PoolSettings(children=children)) as pool:
        yield pool


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], json.loads(sys.argv[2])))
