"""A farm's processes on loopback, each of which can be killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx

from db.farm.farm import Farm
from db.farm.states import Scope
from tests.rabbitmq_node import RabbitMqNode
from tests.unit.db.postgres_server import PostgresNode, free_port

_READY_S = 120.0
_STOP_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


class Program:
    """One process of the farm, started with the same words each time."""

    def __init__(self, name: str, words: Sequence[str], log: Path, **environment: str) -> None:
        self.name = name
        self._words = [sys.executable, "-m", *words]
        self._log = log
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NESTMAP_")}
        self._environment = kept | environment
        self._process: subprocess.Popen[bytes] | None = None
        self.sessions: list[int] = []

    def start(self) -> None:
        """Start it in a session of its own, by which its children are known."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, cwd=ROOT, env=self._environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.sessions.append(self._process.pid)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as the kernel would when memory runs out: nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def left_behind(self) -> list[int]:
        """Processes that it or an earlier start of it has started and that still run."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) in self.sessions and fields[0] != "Z":
                    found.append(int(entry.name))
        return found


class ChaosFarm:
    """PostgreSQL, the service, boards, and with ``cluster`` RabbitMQ and solver workers.

    A context manager: everything ends with it.
    """

    def __init__(self, folder: Path, boards: int, cluster: bool) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._number_of_boards = boards
        self._cluster = cluster
        self.devices: list[str] = []
        self.boards: list[Program] = []
        self.solvers: list[Program] = []

    def __enter__(self) -> ChaosFarm:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.database = self._stack.enter_context(PostgresNode())
        self.broker = self._stack.enter_context(RabbitMqNode()) if self._cluster else None
        environment = {"NESTMAP_STORE": self.database.url}
        if self.broker is not None:
            environment["NESTMAP_BROKER"] = self.broker.url
        words = ["nestmap", "serve", "--no-worker", "--port", str(self.port), "--solvers", "1"]
        with Farm.open(self.database.url) as farm:
            token = farm.tokens.create(Scope.ADMIN, label="chaos")
            self.token = token.text
            codes = [
                farm.enrolments.create(profile="mali-g72") for _ in range(self._number_of_boards)
            ]
        self.api = self._program("api", words, **environment)
        if self.broker is not None:
            self.solvers = [
                self._program(
                    "solver", ["nestmap", "solver-worker", "--processes", "1"], **environment
                )
            ]
        self._wait_for_api()
        for number, code in enumerate(codes):
            name = f"board-{number}"
            words = [
                "nestmap", "worker", "--url", self.url, "--name", name, "--device", "null",
                "--state", str(self._folder / name), "--enrol", code.code,
            ]  # fmt: skip
            self.boards.append(self._program(name, words))
        self._wait_for_boards()

    def _program(self, name: str, words: Sequence[str], **environment: str) -> Program:
        program = Program(name, words, self._folder / f"{name}.log", **environment)
        program.start()
        self._stack.callback(program.kill)
        self._stack.callback(program.thaw)
        return program

    @property
    def programs(self) -> list[Program]:
        return [self.api, *self.solvers, *self.boards]

    def client(self) -> httpx.Client:
        """A client with the admin's token; the caller closes it."""
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30
        )

    def _wait_for_api(self) -> None:
        end = time.monotonic() + _READY_S
        with self.client() as client:
            while True:
                with suppress(httpx.HTTPError):
                    if client.get("/readyz").status_code == 200:
                        return
                if time.monotonic() > end:
                    raise RuntimeError(f"the service is not ready: {self.logs()}")
                time.sleep(0.1)

    def _wait_for_boards(self) -> None:
        end = time.monotonic() + _READY_S
        with self.client() as client:
            while len(self.devices) < self._number_of_boards:
                items = client.get("/v1/devices").json()["items"]
                self.devices = [item["id"] for item in items]
                if time.monotonic() > end:
                    raise RuntimeError(f"boards do not come: {self.logs()}")
                time.sleep(0.1)

    def logs(self, lines: int = 15) -> str:
        """The last lines of each process."""
        parts: list[str] = []
        for path in sorted(self._folder.glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join((f"== {path.name}", *tail)))
        return "\n".join(parts)

    def stop(self) -> list[str]:
        """End all as an operator would; what did not go well, in words."""
        found: list[str] = []
        for program in reversed(self.programs):
            try:
                status = program.stop()
            except subprocess.TimeoutExpired:
                found.append(f"{program.name} does not end when it is told to")
                continue
            if status != 0:
                found.append(f"{program.name} ended with {status}")
        end = time.monotonic() + _STOP_S / 2
        while any(program.left_behind() for program in self.programs):
            if time.monotonic() > end:
                found += [
                    f"{program.name} left processes {program.left_behind()} behind"
                    for program in self.programs
                    if program.left_behind()
                ]
                break
            time.sleep(0.1)
        return found
