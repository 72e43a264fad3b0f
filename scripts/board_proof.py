"""Tune a small cut of a VGG-16 layer on a board that a command starts, and check what came.

``python scripts/board_proof.py --machine aarch64 --folder F -- COMMAND…`` starts `nestmap serve`
on loopback with an empty store in F, enrols the board's worker (COMMAND with --url and --enrol
added), creates a run and waits for its end. Ends with 0 if every candidate was measured on a
machine of that kind and at least one was timed. scripts/prove-aarch64.sh calls it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from mapper.layer_sets import layer_of_name

#: The first layer with many channels, cut in every dimension: 73,728 multiplications instead
#: of 1.8 thousand million, the same window, padding and strides.
LAYER = "vgg16/2"
CUT = {"name": "vgg16/2 cut", "height": 8, "width": 8, "channels": 8, "filters": 16}
LONGEST_S = 1200.0


class Api:
    """Calls with the admin's token."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._token = token

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)


def start_service(folder: Path) -> tuple[subprocess.Popen[str], Api]:
    """`nestmap serve` on a free port, and calls to it."""
    store = folder / "farm.sqlite3"
    service = subprocess.Popen(
        [sys.executable, "-m", "nestmap", "serve", "--no-worker", "--port", "0", "--solvers", "1",
         "--store", str(store), "--json"],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "NESTMAP_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert service.stdout is not None
    url = ""
    for line in service.stdout:
        event = json.loads(line)
        if event.get("event") == "listening":
            url = event["url"]
        if event.get("event") == "ready":
            (token,) = folder.glob("*.admin-token")
            return service, Api(url, token.read_text().strip())
    raise SystemExit("the service did not start")


def end(process: subprocess.Popen[Any]) -> None:
    """Ask it to end, and make it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def await_device(api: Api, worker: subprocess.Popen[Any]) -> dict[str, Any]:
    """The device once its worker has asked for work."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline and worker.poll() is None:
        devices = api("GET", "/v1/devices")["items"]
        if devices and devices[0]["last_seen"]:
            return devices[0]
        time.sleep(1)
    raise SystemExit(f"no board came in; the worker's exit code: {worker.poll()}")


def tune(api: Api, device: str, candidates: int) -> dict[str, Any]:
    """A run of the layer, once it has ended."""
    layer = layer_of_name(LAYER).to_json() | CUT
    protocol = {"warmup": 0, "repetitions": 3, "max_repetitions": 3}
    run = api(
        "POST",
        "/v1/runs",
        {
            "device": device,
            "subject": {"document": layer},
            "protocol": protocol,
            "budget": {"candidates": candidates},
        },
    )
    deadline = time.monotonic() + LONGEST_S
    while run["state"] in ("queued", "running") and time.monotonic() < deadline:
        time.sleep(1)
        run = api("GET", f"/v1/runs/{run['id']}")
    return run


def main() -> int:
    """Run the proof; 0 if it holds."""
    parser = argparse.ArgumentParser(prog="board_proof")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    started = time.monotonic()
    service, api = start_service(options.folder)
    try:
        code = api("POST", "/v1/enrolments", {})["code"]
        worker = subprocess.Popen(
            [*options.command, "--url", api.url, "--enrol", code, "--name", options.machine]
        )
        try:
            device = await_device(api, worker)
            print(f"{time.monotonic() - started:6.1f} s  {device['name']} is here", flush=True)
            facts = api("GET", f"/v1/devices/{device['id']}")["facts"]
            for name in ("system", "platform.version", "device.version", "sandbox.network"):
                print(f"          {name}: {facts.get(name)}")
            run = tune(api, device["id"], options.candidates)
        finally:
            end(worker)
    finally:
        end(service)
    progress = run["progress"]
    print(f"{time.monotonic() - started:6.1f} s  run {run['state']} ({run['reason']}): {progress}")
    print(f"          worker ended with {worker.returncode}")
    here = options.machine in facts.get("system", "")
    timed = progress["outcomes"]["timed"]
    held = run["state"] == "finished" and here and timed and worker.returncode == 0
    print("PROVED" if held else "NOT PROVED", f"on {options.machine}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
