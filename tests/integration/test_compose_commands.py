"""Every command of docker-compose.yml runs, here on loopback, as its container would.

What stays unproven without a container engine is the build of the images. Paths of a container
become folders of the test, addresses loopback, and secrets are read from files as there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rabbitmq_node import SERVER, RabbitMqNode, free_port
from tests.unit.db.postgres_server import INSTALL, NEEDS, running_server

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
WITHIN_S = 90.0
POSTGRES = pytest.mark.needs(NEEDS, install=INSTALL)
RABBITMQ = pytest.mark.needs(SERVER, install="apt-get install rabbitmq-server")


class Host:
    """Stands for the machine of the containers: a data folder, secrets, a port for the API."""

    def __init__(self, folder: Path, secrets: dict[str, str]) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for name, text in secrets.items():
            (self.secrets / name).write_text(text)
        self.port = free_port()
        self.log = folder / "log"

    def translated(self, word: str) -> str:
        """A word of a command or environment as it is here."""
        return (
            word.replace("/run/secrets", str(self.secrets))
            .replace("/data", str(self.data))
            .replace("0.0.0.0", "127.0.0.1")
            .replace("nestmap-api:8787", f"127.0.0.1:{self.port}")
            .replace("8787", str(self.port))
        )

    def start(self, service: str) -> subprocess.Popen[bytes]:
        """The service's own command in its own environment."""
        described = SERVICES[service]
        stated = described.get("environment", {})
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.data),
            **{name: self.translated(str(value)) for name, value in stated.items()},
        }
        command = [self.translated(str(word)) for word in described["command"]]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "nestmap", *command],
                cwd=self.data, env=environment, stdout=log, stderr=log,
            )  # fmt: skip

    @contextmanager
    def running(self, service: str) -> Iterator[subprocess.Popen[bytes]]:
        """The service until the block ends, stopped as `docker stop` does; it must obey."""
        process = self.start(service)
        try:
            yield process
            assert process.poll() is None, self.log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    def healthy(self, service: str, process: subprocess.Popen[bytes]) -> None:
        """Waits until the service's own health check says so."""
        kind, program, *arguments = SERVICES[service]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            assert process.poll() is None, self.log.read_text()
            check = subprocess.run(
                [sys.executable, *(self.translated(word) for word in arguments)],
                capture_output=True,
            )
            if check.returncode == 0:
                return
            time.sleep(0.5)
        pytest.fail(f"{service} is not ready: {self.log.read_text()}")

    def call(self, path: str, token: str, body: Any = None) -> Any:
        """The answer of the API."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
            return json.load(response)

    def admin_token(self) -> str:
        """What the first start has written beside its SQLite store, or printed."""
        for path in self.data.glob("*admin-token"):
            return path.read_text().strip()
        for word in self.log.read_text().split():
            if word.startswith("nm_"):
                return word
        pytest.fail(f"no token: {self.log.read_text()}")

    def answers_with_mappings(self) -> None:
        """What users are here for works: a layer in, valid mappings out."""
        found = self.call(
            "/v1/mappings", self.admin_token(), {"subject": {"name": "vgg16/24"}, "limit": 2}
        )
        assert len(found["items"]) == 2


def test_the_default_profile_and_a_board_beside_it(tmp_path: Path) -> None:
    host = Host(tmp_path, {})
    with host.running("api") as api:
        host.healthy("api", api)
        host.answers_with_mappings()
        token = host.admin_token()
        (host.secrets / "board_code").write_text(host.call("/v1/enrolments", token, {})["code"])
        with host.running("board"):
            end = time.monotonic() + WITHIN_S
            while not host.call("/v1/devices", token)["items"]:
                assert time.monotonic() < end, host.log.read_text()
                time.sleep(0.2)


@POSTGRES
def test_the_profile_prod(tmp_path: Path) -> None:
    with running_server() as url:
        host = Host(tmp_path, {"store_url": url})
        assert host.start("migrate").wait(WITHIN_S) == 0, host.log.read_text()
        with host.running("api-prod") as api:
            host.healthy("api-prod", api)
            host.answers_with_mappings()


@POSTGRES
@RABBITMQ
def test_the_profile_cluster(tmp_path: Path) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(running_server())
        node = stack.enter_context(RabbitMqNode())
        host = Host(tmp_path, {"store_url": url, "broker_url": node.url})
        assert host.start("migrate").wait(WITHIN_S) == 0, host.log.read_text()
        api = stack.enter_context(host.running("api-cluster"))
        stack.enter_context(host.running("solver-worker"))
        host.healthy("api-cluster", api)
        host.answers_with_mappings()
        token = host.admin_token()
        code = host.call("/v1/enrolments", token, {"profile": "mali-g72"})["code"]
        enrolment = {"code": code, "name": "board", "agent_version": "0.1.0"}
        device = host.call("/v1/enrol", token, enrolment)["device"]
        # Nobody but the solver worker can propose candidates here.
        run = host.call(
            "/v1/runs",
            token,
            {
                "subject": {"name": "vgg16/24"},
                "variants": ["high-level"],
                "device": device,
                "budget": {"candidates": 1},
            },
        )
        end = time.monotonic() + WITHIN_S
        while host.call(f"/v1/runs/{run['id']}", token)["progress"]["proposed"] == 0:
            assert time.monotonic() < end, host.log.read_text()
            time.sleep(0.5)
