"""``nestmap serve`` with a run measured on PoCL, for tests and screenshots of pages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

LAYER = {
    "schema": "nestmap/layer/2", "name": "small", "channels": 4, "height": 12, "width": 12,
    "filters": 8, "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1,
    "pad_top": 0, "pad_bottom": 0, "pad_left": 0, "pad_right": 0,
}  # fmt: skip
CANDIDATES = 16


class Served:
    """A running service on one host, with its admin token; it can be stopped and started again
    at the same address."""

    def __init__(self, folder: Path, *arguments: str, port: int = 0) -> None:
        self.folder = folder
        self.store = folder / "store.sqlite3"
        self._arguments = arguments
        self.token = ""
        self.url = ""
        self._start(port)

    def _start(self, port: int) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NESTMAP_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nestmap", "serve", "--json", "--port", str(port),
             "--solvers", "1", "--store", str(self.store), *self._arguments],
            cwd=self.folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()
        self.url = self.event("listening")["url"]
        self.event("ready")
        if not self.token:
            self.token = self.event("token")["token"]

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                self.said.append(json.loads(line))
            except json.JSONDecodeError:
                self.said.append({"event": "log", "text": line})

    def event(self, name: str, within_s: float = 180.0) -> dict[str, Any]:
        """The first thing of this name that it says."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            for said in list(self.said):
                if said.get("event") == name:
                    return said
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {name}: {self.said}")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self) -> httpx.Client:
        """The API with the admin's token; to be closed."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def stop(self) -> None:
        """End it and everything it has started."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def start_again(self) -> None:
        """The same store at the same address."""
        self._start(self.port)


def begin_run(client: httpx.Client, candidates: int = CANDIDATES, **fields: Any) -> str:
    """The id of a new run of the small layer on the service's own device."""
    device = client.get("/v1/devices").json()["items"][0]["id"]
    body = {
        "device": device,
        "subject": {"document": LAYER},
        "variants": ["direct", "partial"],
        "budget": {"candidates": candidates},
        "protocol": {"warmup": 1, "repetitions": 7},
        "seed": 3,
        # All at once and without models: what is tested is shown, not found.
        "strategy": "random",
        "low_water": candidates,
        **fields,
    }
    answer = client.post("/v1/runs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def wait_for(client: httpx.Client, run_id: str, within_s: float = 400.0) -> dict[str, Any]:
    """The run once it has ended."""
    end = time.monotonic() + within_s
    run: dict[str, Any] = {}
    while time.monotonic() < end:
        run = client.get(f"/v1/runs/{run_id}").json()
        if run["state"] in ("finished", "failed", "cancelled"):
            assert run["state"] == "finished", run
            return run
        time.sleep(0.1)
    raise AssertionError(f"the run {run_id} has not ended after {within_s} s: {run}")
