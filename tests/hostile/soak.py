"""Two honest users beside an attacker of each kind, for as long as is asked for.

``python -m tests.hostile.soak --seconds 3600`` starts ``nestmap serve`` as a user would, on its
defaults, first with the honest users alone for a tenth of the time. Attackers have addresses of
their own (127.0.0.2). At the end everything that the honest users were promised is looked for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.unit.db.postgres_server import PostgresNode

SMALL = {
    "schema": "nestmap/layer/1", "channels": 8, "height": 10, "width": 10, "filters": 8,
}  # fmt: skip
ATTACKERS_ADDRESS = "127.0.0.2"
CANDIDATES = 6
_ENDED = ("finished", "failed", "cancelled")


@dataclass
class Heard:
    """What one user was answered: seconds of each answer, and how many of each status."""

    seconds: list[float] = field(default_factory=list[float])
    statuses: Counter[str] = field(default_factory=Counter[str])

    def figures(self) -> dict[str, Any]:
        """Median, 95 % and worst in milliseconds."""
        ordered = sorted(self.seconds)
        if not ordered:
            return {"answers": 0}
        return {
            "answers": len(ordered),
            "median_ms": round(statistics.median(ordered) * 1e3),
            "p95_ms": round(ordered[int(len(ordered) * 0.95)] * 1e3),
            "worst_ms": round(ordered[-1] * 1e3),
            "statuses": dict(self.statuses),
        }


class Served:
    """``nestmap serve`` on its defaults; a context manager."""

    def __init__(self, folder: Path, store: str = "") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder / "serve.log").open("w")
        self.store = folder / "s.sqlite3"
        self._process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("nestmap")), "serve", "--port", str(self.port),
                "--store", store or str(self.store),
            ],
            stdout=self._log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
        )  # fmt: skip
        self.log_path = folder / "serve.log"
        deadline = time.monotonic() + 120
        while not (found := re.search(r"(nm_\w+\.?\S*)", self.log_path.read_text())):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log_path.read_text())
            time.sleep(0.2)
        self.admin = self.client(found[1])
        while not self._is_ready():
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.admin.get("/readyz").status_code == 200
        return False

    def client(self, token: str, address: str = "127.0.0.1") -> httpx.Client:
        """With a token of its own, from an address."""
        transport = httpx.HTTPTransport(local_address=address)
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=120,
            transport=transport,
        )  # fmt: skip

    def user(self, label: str, address: str = "127.0.0.1") -> httpx.Client:
        """A new user."""
        made = self.admin.post("/v1/tokens", json={"scope": "user", "label": label})
        made.raise_for_status()
        return self.client(made.json()["token"], address)

    def memory_mb(self) -> dict[str, int]:
        """Resident memory of the service and of all that it started."""
        tree, found = {self._process.pid}, {}
        table = {}
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                text = status.read_text(errors="replace")
                parent = re.search(r"PPid:\s+(\d+)", text)
                resident = re.search(r"VmRSS:\s+(\d+)", text)
                if parent:
                    size = int(resident[1]) // 1024 if resident else 0
                    table[int(status.parent.name)] = (int(parent[1]), size)
        grown = True
        while grown:
            more = {pid for pid, (parent, _) in table.items() if parent in tree} - tree
            tree |= more
            grown = bool(more)
        found["service"] = table.get(self._process.pid, (0, 0))[1]
        found["all"] = sum(table[pid][1] for pid in tree if pid in table)
        return found

    def close(self) -> None:
        """End it, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


# -- honest users ------------------------------------------------------------------------------


def asks(served: Served, user: httpx.Client, heard: Heard, stop: threading.Event) -> None:
    """Asks a small question twice a second, and looks at a page now and then."""
    question = {"subject": {"name": "vgg16/7"}, "variant": "high-level"}
    number = 0
    while not stop.wait(0.5):
        number += 1
        began = time.monotonic()
        try:
            if number % 5:
                answer = user.post("/v1/mappings/count", json=question)
            else:
                answer = user.get("/v1/runs?limit=20")
            heard.statuses[str(answer.status_code)] += 1
        except httpx.HTTPError as error:
            heard.statuses[type(error).__name__] += 1
        heard.seconds.append(time.monotonic() - began)


@dataclass
class Runs:
    """Runs that an honest user was told of, and how long each took."""

    seconds: list[float] = field(default_factory=list[float])
    faults: list[str] = field(default_factory=list[str])


def runs(
    served: Served, user: httpx.Client, device: str, found: Runs, stop: threading.Event
) -> None:
    """One small run after the other, each to its end."""
    while not stop.is_set():
        began = time.monotonic()
        made = user.post("/v1/runs", json={
            "device": device, "subject": {"document": SMALL}, "variants": ["high-level"],
            "budget": {"candidates": CANDIDATES}, "seed": random.randrange(10**6),
        })  # fmt: skip
        if made.status_code != 201:
            found.faults.append(f"a run was refused: {made.status_code} {made.text[:200]}")
            stop.wait(5)
            continue
        run = made.json()
        while run["state"] not in _ENDED and time.monotonic() - began < 600:
            time.sleep(0.3)
            run = user.get(f"/v1/runs/{run['id']}").json()
        found.seconds.append(time.monotonic() - began)
        if run["state"] != "finished":
            found.faults.append(f"run {run['id']}: {run['state']}: {run['reason']}")
            continue
        stored = user.get(f"/v1/measurements?run={run['id']}&limit=100").json()["items"]
        if len(stored) != run["progress"]["measured"] or not stored:
            found.faults.append(f"run {run['id']}: {len(stored)} stored of {run['progress']}")


# -- attackers ---------------------------------------------------------------------------------

Attack = Callable[["Served", httpx.Client, Counter[str], threading.Event], None]


def _connected(served: Served) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", served.port), timeout=10, source_address=(ATTACKERS_ADDRESS, 0)
    )


def stalled_streams(
    served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event
) -> None:
    """Two joint streams whose reader stands still, anew every 20 s."""
    body = json.dumps({"subject": {"name": "vgg16/7"}, "variant": "direct", "joint": True}).encode()
    head = (
        f"POST /v1/mappings/stream HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {user.headers['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    while not stop.is_set():
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for _ in range(2):
                connection = held.enter_context(_connected(served))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(head + body)
                told["streams"] += 1
            stop.wait(20)


def floods(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """Hard questions that nobody waits for."""
    while not stop.wait(0.5):
        answer = user.post(
            "/v1/mappings/best", headers={"Prefer": "wait=0"},
            json={"subject": {"name": "vgg16/7"}, "variant": "direct", "number": 100,
                  "seed": random.randrange(10**6)},
        )  # fmt: skip
        told[f"floods {answer.status_code}"] += 1


def silent(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """Connections that say nothing, and heads that never end."""
    held: list[socket.socket] = []
    while not stop.wait(0.05):
        try:
            connection = _connected(served)
            connection.setblocking(False)
            if random.random() < 0.5:
                connection.send(b"GET /healthz HTTP/1.1\r\nX-")
            held.append(connection)
            told["silent"] += 1
        except OSError:
            told["silent refused"] += 1
        while len(held) > 1_000:
            held.pop(0).close()
    for connection in held:
        connection.close()


def guesses(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """Tokens that are none, from addresses that are none."""
    with served.client("nm_wrong.wrong", ATTACKERS_ADDRESS) as wrong:
        while not stop.wait(0.1):
            forwarded = {"X-Forwarded-For": f"10.0.0.{random.randrange(256)}"}
            told[f"guesses {wrong.get('/v1/runs', headers=forwarded).status_code}"] += 1


def bodies(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """Bodies that are large, deep or broken."""
    hostile = (
        b"[" * 100_000, b"[" + b"1," * 400_000 + b"1]", b'{"a":' * 5_000, b'{"subject":NaN}',
        b'{"subject": {"document": "' + b"x" * 900_000 + b'"}}', b"\xff\xfe",
        json.dumps({"subject": {"name": "vgg16/7"}, "limit": 10**30}).encode(),
    )  # fmt: skip
    while not stop.wait(0.2):
        answer = user.post(
            "/v1/mappings", content=random.choice(hostile),
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        told[f"bodies {answer.status_code}"] += 1


def greedy(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """Runs, as many as there may be, on everybody's device; cancelled when there are too many."""
    device = served.admin.get("/v1/devices").json()["items"][-1]["id"]
    while not stop.wait(1):
        answer = user.post("/v1/runs", json={
            "device": device, "subject": {"name": "vgg16/7"}, "variants": ["direct"],
            "budget": {"candidates": 2}, "priority": 0, "seed": random.randrange(10**6),
        })  # fmt: skip
        told[f"greedy {answer.status_code}"] += 1
        if answer.status_code == 201 and random.random() < 0.9:
            user.post(f"/v1/runs/{answer.json()['id']}/cancel")


def liar(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """A board that lies: times that cannot be, numbers that are none, leases of others."""
    code = served.admin.post("/v1/enrolments", json={"profile": "pocl"}).json()["code"]
    enrolled = user.post("/v1/enrol", json={
        "code": code, "name": "liar", "agent_version": "0.1.0", "facts": {"device.name": "x"},
    })  # fmt: skip
    told[f"liar enrolled {enrolled.status_code}"] += 1
    answer = enrolled.json()
    device, token = answer["device"], answer["token"]
    right = {"max_relative_error": 0.0, "compile_ms": 1.0}
    odd = {"max_relative_error": "nan", "compile_ms": 1e308}
    shown = {"max_relative_error": "inf", "first_bad_index": [], "message": "\x00\x1b[2J" * 100}
    lies: list[dict[str, Any]] = [
        {"kind": "timed", "trials_ns": trials, "detail": detail}
        for trials in ([0], [1], [-1], [2**63], [1, 10**18], [])
        for detail in (right, odd)
    ]
    lies.append({"kind": "wrong", "detail": shown})
    with served.client(token, ATTACKERS_ADDRESS) as board:
        while not stop.wait(0.5):
            if random.random() < 0.1:
                user.post("/v1/runs", json={
                    "device": device, "subject": {"document": SMALL}, "variants": ["high-level"],
                    "budget": {"candidates": 3},
                })  # fmt: skip
            leased = board.post(
                f"/v1/devices/{device}/lease?wait=1",
                json={"protocol": 1, "agent_version": "0.1.0"},
            )
            told[f"liar leases {leased.status_code}"] += 1
            if leased.status_code != 200:
                continue
            job = leased.json()
            result = board.post(f"/v1/jobs/{job['job']}/result", json={
                "attempt": job["attempt"], "lease_token": job["lease_token"],
                "outcome": random.choice(lies), "facts": {"device.name": "x"},
            })  # fmt: skip
            told[f"liar results {result.status_code}"] += 1


def reads(served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event) -> None:
    """Pages, exports and event streams, again and again, half of them not read to their end."""
    while not stop.wait(0.3):
        path = random.choice(
            ("/v1/measurements/export?format=csv", "/v1/measurements?limit=500", "/",
             "/v1/fronts", "/devices", "/networks")
        )  # fmt: skip
        with contextlib.suppress(httpx.HTTPError), user.stream("GET", path) as answer:
            told[f"reads {answer.status_code}"] += 1
            for _ in answer.iter_bytes():
                break


ATTACKS: tuple[Attack, ...] = (
    stalled_streams, floods, silent, guesses, bodies, greedy, liar, reads,
)  # fmt: skip


def _surviving(attack: Attack) -> Attack:
    """An attack that begins again where its connection was ended."""

    def attacks(
        served: Served, user: httpx.Client, told: Counter[str], stop: threading.Event
    ) -> None:
        while not stop.is_set():
            try:
                attack(served, user, told, stop)
            except (httpx.HTTPError, OSError, KeyError, ValueError) as error:
                told[f"{attack.__name__} {type(error).__name__}"] += 1
                stop.wait(1)

    return attacks


@contextlib.contextmanager
def honest(served: Served, label: str) -> Iterator[tuple[Heard, Runs]]:
    """Two honest users at work."""
    heard, found, stop = Heard(), Runs(), threading.Event()
    device = served.admin.get("/v1/devices").json()["items"][-1]["id"]
    threads = [
        threading.Thread(target=asks, args=(served, served.user(f"{label} a"), heard, stop)),
        threading.Thread(
            target=runs, args=(served, served.user(f"{label} b"), device, found, stop)
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        yield heard, found
    finally:
        stop.set()
        for thread in threads:
            thread.join(700)


def campaign(seconds: float, folder: Path, store: str = "") -> dict[str, Any]:
    """All of it; figures, and under ``faults`` what an honest user lost."""
    served = Served(folder, store)
    told: Counter[str] = Counter()
    memory: list[dict[str, int]] = []
    try:
        while not served.admin.get("/v1/devices").json()["items"]:
            time.sleep(0.5)
        with honest(served, "alone") as (alone, runs_alone):
            time.sleep(max(20.0, seconds / 10))
        memory.append(served.memory_mb())
        stop = threading.Event()
        threads = [
            threading.Thread(
                target=_surviving(attack),
                args=(served, served.user(attack.__name__, ATTACKERS_ADDRESS), told, stop),
                daemon=True,
            )
            for attack in ATTACKS
        ]
        for thread in threads:
            thread.start()
        with honest(served, "beside") as (heard, found):
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, max(5.0, seconds / 12)))
                memory.append(served.memory_mb())
                print(json.dumps({"left_s": round(left), **heard.figures(), **memory[-1],
                                  "runs": len(found.seconds), "faults": found.faults[-2:]}),
                      file=sys.stderr, flush=True)  # fmt: skip
        stop.set()
        for thread in threads:
            thread.join(60)
        log = served.log_path.read_text()
        return {
            "seconds": seconds,
            "alone": alone.figures(),
            "beside": heard.figures(),
            "runs_alone": _run_figures(runs_alone),
            "runs_beside": _run_figures(found),
            "memory_mb": {"before": memory[0], "middle": memory[len(memory) // 2],
                          "end": memory[-1], "most": max(one["all"] for one in memory)},
            "store_mb": None if store else round(served.store.stat().st_size / 2**20, 1),
            "log_kb": len(log) // 1024,
            "attacks": dict(sorted(told.items())),
            "faults": [
                *runs_alone.faults, *found.faults,
                *(f"{status}: {number} answers" for status, number in heard.statuses.items()
                  if status != "200"),
                *(f"{what}: {number}" for what, number in told.items()
                  if re.search(r" 5\d\d$", what) and not what.endswith(" 503")),
            ],
        }  # fmt: skip
    finally:
        served.close()


def _run_figures(found: Runs) -> dict[str, Any]:
    if not found.seconds:
        return {"runs": 0}
    return {
        "runs": len(found.seconds),
        "median_s": round(statistics.median(found.seconds), 1),
        "worst_s": round(max(found.seconds), 1),
    }


def rows(figures: dict[str, Any], postgresql: bool) -> list[str]:
    """The figures as a table for docs/reliability.md."""
    alone, beside = figures["alone"], figures["beside"]
    runs_alone, runs_beside = figures["runs_alone"], figures["runs_beside"]
    memory = figures["memory_mb"]

    def answers(of: dict[str, Any]) -> str:
        if not of["answers"]:
            return "none"
        return (
            f"{of['answers']:,}: median {of['median_ms']} ms, 95 % {of['p95_ms']} ms, "
            f"worst {of['worst_ms']:,} ms"
        )

    def ended(of: dict[str, Any]) -> str:
        if not of["runs"]:
            return "none"
        return f"{of['runs']:,}: median {of['median_s']} s, worst {of['worst_s']} s"

    def megabytes(of: dict[str, int]) -> str:
        return f"{of['all']:,} MB, of that the service {of['service']:,} MB"

    store = "PostgreSQL" if postgresql else f"SQLite, {figures['store_mb']:,} MB at the end"
    attacks = ", ".join(f"{what} {number:,}" for what, number in figures["attacks"].items())
    faults = "; ".join(figures["faults"]) or "nothing"
    return [
        f"| {figures['seconds']:,.0f} s, {len(ATTACKS)} attackers | alone | beside them |",
        "| --- | --- | --- |",
        f"| answers to a user's questions | {answers(alone)} | {answers(beside)} |",
        f"| runs of {CANDIDATES} candidates | {ended(runs_alone)} | {ended(runs_beside)} |",
        f"| memory of all processes | {megabytes(memory['before'])} | in the middle "
        f"{megabytes(memory['middle'])}; at the end {megabytes(memory['end'])}; at most "
        f"{memory['most']:,} MB |",
        f"| store, log | | {store}; {figures['log_kb']:,} kB |",
        f"| what attackers were told | | {attacks} |",
        f"| lost | | {faults} |",
    ]


def main() -> int:
    """Run it and print its figures, as a table in Markdown on standard output and in full on
    standard error; 1 where somebody lost something."""
    parser = argparse.ArgumentParser(prog="tests.hostile.soak")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--postgresql", action="store_true", help="instead of SQLite")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nestmap-soak-"))
        store = stack.enter_context(PostgresNode()).url if options.postgresql else ""
        figures = campaign(options.seconds, Path(folder), store)
    print(json.dumps(figures, indent=1), file=sys.stderr)
    print("\n".join(rows(figures, options.postgresql)))
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
