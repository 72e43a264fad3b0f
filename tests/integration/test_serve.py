"""``nestmap serve`` as a stranger uses it: started, asked, measured with, stopped by a signal."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from db.farm.farm import Farm
from db.farm.states import Scope

LAYER = {
    "schema": "nestmap/layer/2", "name": "small", "channels": 4, "height": 6, "width": 6,
    "filters": 4, "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1,
    "pad_top": 0, "pad_bottom": 0, "pad_left": 0, "pad_right": 0,
}  # fmt: skip


class Service:
    """A running ``nestmap serve --json`` and what it has said."""

    def __init__(self, folder: Path, *arguments: str, python: str = sys.executable) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NESTMAP_")}
        self.process = subprocess.Popen(
            [python, "-m", "nestmap", "serve", "--json", "--port", "0", "--solvers", "1",
             "--store", str(folder / "store.sqlite3"), *arguments],
            cwd=folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.said: list[dict[str, Any]] = []
        self.errors = ""
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._note)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def _note(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def event(self, name: str, within_s: float = 60.0) -> dict[str, Any]:
        """The first thing of this name that it says."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            for said in list(self.said):
                if said["event"] == name:
                    return said
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {name}: {self.said} {self.errors}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(how)
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            # Its worker has a session of its own, and ends a moment after it.
            below = children_of(self.process.pid)
            os.killpg(self.process.pid, signal.SIGKILL)
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def service(folder: Path, *arguments: str, python: str = sys.executable) -> Iterator[Service]:
    started = Service(folder, *arguments, python=python)
    try:
        yield started
    finally:
        started.close()


def children_of(pid: int) -> list[int]:
    """The processes of the sessions that a service has started, and of its own."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if int(fields[1]) == pid:
            number = int(entry.name)
            found += [number, *children_of(number)]
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_first_start_serves_measures_and_stops_with_everything(tmp_path: Path):
    with service(tmp_path, "--worker-device", "null") as served:
        served.event("ready")
        token = served.event("token")["token"]
        path = Path(served.event("token")["file"])
        assert path.read_text().strip() == token
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        url = served.event("listening")["url"]
        device = next(s["device"] for s in served.said if s["event"] == "worker")
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
            assert client.get("/readyz").status_code == 200
            assert httpx.get(f"{url}/v1/runs").status_code == 401
            body = {"subject": {"name": "vgg16/7"}, "variant": "high-level", "limit": 5}
            assert len(client.post("/v1/mappings", json=body).json()["items"]) == 5
            request = {
                "device": device, "subject": {"document": LAYER}, "variants": ["high-level"],
                "budget": {"candidates": 5},
            }  # fmt: skip
            run = client.post("/v1/runs", json=request).json()
            end = time.monotonic() + 90
            while run["state"] in ("queued", "running"):
                assert time.monotonic() < end, run
                time.sleep(0.1)
                run = client.get(f"/v1/runs/{run['id']}").json()
            assert (run["state"], run["reason"]) == ("finished", "candidates")
            assert run["progress"]["outcomes"]["timed"] == 5
        started = children_of(served.process.pid)
        assert len(started) >= 2  # a solver child and the worker
        assert served.stop() == 0
        assert not [pid for pid in started if is_alive(pid)]
        served.event("stopped")
    assert "Traceback" not in served.errors
    assert token not in json.dumps([s for s in served.said if s["event"] != "token"])
    # The token is kept as a hash, and the next start makes none.
    assert token.encode() not in (tmp_path / "store.sqlite3").read_bytes()
    with service(tmp_path, "--no-worker") as again:
        again.event("ready")
        assert not [said for said in again.said if said["event"] == "token"]
        assert again.stop(signal.SIGINT) == 0


def test_a_service_that_is_killed_leaves_no_process_behind(tmp_path: Path):
    # A worker that went on held the device's folder, and asked a port that may be another's.
    with service(tmp_path, "--worker-device", "null") as served:
        served.event("ready")
        started = children_of(served.process.pid)
        assert len(started) >= 3  # a solver child, the worker and its executor
        served.process.kill()
        served.process.wait()
        end = time.monotonic() + 15
        while (left := [pid for pid in started if is_alive(pid)]) and time.monotonic() < end:
            time.sleep(0.05)
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, commands


def test_other_hosts_are_not_served_by_accident(tmp_path: Path):
    with service(tmp_path, "--host", "0.0.0.0", "--no-worker") as refused:
        assert refused.process.wait(60) == 2
    assert "--allow-remote" in refused.errors
    with Farm.open(tmp_path / "store.sqlite3") as farm:
        farm.tokens.create(Scope.ADMIN, label="by hand")
    with service(tmp_path, "--host", "0.0.0.0", "--no-worker") as served:
        served.event("ready")
        assert served.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "192.0.2.1", "--allow-remote"), "cannot listen"),
        (("--host", "no such host", "--allow-remote"), "cannot listen"),
        (("--store", "mysql://host/db"), "not supported"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str):
    with service(tmp_path, "--no-worker", *arguments) as refused:
        assert refused.process.wait(60) in (2, 4)
    assert said in refused.errors and "Traceback" not in refused.errors
