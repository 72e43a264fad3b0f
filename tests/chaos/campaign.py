"""A farm under load while its processes are killed, frozen and stopped at random.

``python -m tests.chaos.campaign --seconds 600`` for the long run (``make chaos``). What clients
were told, and what the database says at the end, goes to :mod:`tests.chaos.history`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import address_of, open_engine
from db.farm.tables import JobAttemptRow, JobRow, RunRow
from db.tables import MeasurementRow
from tests.chaos.farm import ChaosFarm, Program
from tests.chaos.history import Claimed, JobPast, Past, RunPast, faults_of

#: Runs that are open at any time, and the candidates of each.
OPEN_RUNS = 3
CANDIDATES = 20
#: Longer than the 10 s of a lease before its first heartbeat, and than the 30 s after it.
FREEZES_S = (1.0, 12.0, 35.0)
#: Until every run has ended once nothing is broken any more: agents wait up to 60 s in between.
SETTLE_S = 240.0


@dataclass
class Report:
    """What was done to the farm, what it did meanwhile, and which promises it broke."""

    seed: int
    seconds: float
    boards: int
    cluster: bool
    injected: Counter[str] = field(default_factory=Counter[str])
    requests: Counter[str] = field(default_factory=Counter[str])
    runs: int = 0
    jobs: int = 0
    attempts: Counter[str] = field(default_factory=Counter[str])
    settled_s: float = 0.0
    faults: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """For files and people."""
        return {
            "seed": self.seed, "seconds": self.seconds, "boards": self.boards,
            "cluster": self.cluster, "injected": dict(self.injected),
            "requests": dict(self.requests), "runs": self.runs, "jobs": self.jobs,
            "attempts": dict(self.attempts), "settled_s": round(self.settled_s, 1),
            "faults": self.faults,
        }  # fmt: skip


class Customer(threading.Thread):
    """Keeps runs open, sends every request twice, and again until it is answered."""

    def __init__(self, farm: ChaosFarm, random: Random, report: Report) -> None:
        super().__init__(name="customer")
        self._farm = farm
        self._random = random
        self._report = report
        self._over = threading.Event()
        self.accepted: dict[str, list[str]] = {}
        self.errors: list[str] = []

    def end(self) -> None:
        """Ask for nothing new."""
        self._over.set()
        self.join()

    def run(self) -> None:
        with self._farm.client() as client:
            while not self._over.is_set():
                if self._open_runs(client) < OPEN_RUNS:
                    self._create(client)
                else:
                    self._over.wait(0.3)

    def _open_runs(self, client: httpx.Client) -> int:
        known = [answers[0] for answers in self.accepted.values() if answers]
        count = 0
        for run in known[-2 * OPEN_RUNS :]:
            answer = self._asked(lambda run=run: client.get(f"/v1/runs/{run}"))
            if answer is None:
                return OPEN_RUNS
            count += answer.json()["state"] not in ("finished", "failed", "cancelled")
        return count

    def _create(self, client: httpx.Client) -> None:
        number = len(self.accepted)
        first, *others = self._random.sample(self._farm.devices, len(self._farm.devices))
        body = {
            "subject": {"name": "vgg16/24"}, "variants": ["high-level"], "device": first,
            "stand_ins": others if number % 2 else [], "seed": number, "strategy": "random",
            "budget": {"candidates": CANDIDATES}, "low_water": 8,
        }  # fmt: skip
        key = f"run-{number}"
        answers: list[str] = []
        while len(answers) < 2:
            answer = self._asked(
                lambda: client.post("/v1/runs", json=body, headers={"Idempotency-Key": key})
            )
            if answer is not None:
                answers.append(answer.json()["id"])
            elif self._over.is_set() and not answers:
                # Not accepted as far as this client knows; it may be there all the same.
                self._over.wait(0.5)
        self.accepted[key] = answers

    def _asked(self, send: Callable[[], httpx.Response]) -> httpx.Response | None:
        """An answer that says yes; None where the service is away. Anything else is an error."""
        try:
            answer = send()
        except httpx.TransportError as error:
            self._report.requests[type(error).__name__] += 1
            time.sleep(0.1)
            return None
        self._report.requests[str(answer.status_code)] += 1
        if answer.is_success:
            return answer
        if answer.status_code != 503:
            self.errors.append(f"{answer.request.url.path}: {answer.status_code} {answer.text}")
        time.sleep(0.1)
        return None


def inject(farm: ChaosFarm, random: Random, seconds: float, report: Report) -> None:
    """Break things one after the other for a time; at the end all run again."""
    end = time.monotonic() + seconds
    thaw_at: list[tuple[float, Program]] = []
    kinds = ["kill board", "kill board", "freeze board", "kill api", "stop database"]
    if farm.broker is not None:
        kinds += ["kill broker", "kill solver"]
    # Every kind comes up before one comes again.
    deck: list[str] = []
    while time.monotonic() < end:
        time.sleep(random.uniform(0.5, 4.0))
        for item in [item for item in thaw_at if item[0] <= time.monotonic()]:
            item[1].thaw()
            thaw_at.remove(item)
        if not deck:
            deck = random.sample(kinds, len(kinds))
        kind = deck.pop()
        down_s = random.choice((0.0, 0.5, 3.0))
        frozen = {program for _, program in thaw_at}
        match kind:
            case "kill board" | "kill solver":
                program = random.choice(farm.boards if kind == "kill board" else farm.solvers)
                if program in frozen:
                    continue
                program.kill()
                time.sleep(down_s)
                program.start()
            case "freeze board":
                program = random.choice(farm.boards)
                # One board at least goes on.
                if len(frozen) + 1 >= len(farm.boards) or program in frozen:
                    continue
                program.freeze()
                thaw_at.append((time.monotonic() + random.choice(FREEZES_S), program))
            case "kill api":
                farm.api.kill()
                time.sleep(down_s)
                farm.api.start()
            case "stop database":
                farm.database.stop_at_once()
                time.sleep(down_s)
                farm.database.start()
            case _:
                assert farm.broker is not None
                farm.broker.kill()
                time.sleep(down_s)
                farm.broker.start()
        report.injected[kind] += 1
    for program in farm.programs:
        program.thaw()
        if not program.is_running:
            # A service that ended because its database was away is started by its manager.
            report.injected[f"restarted {program.name.partition('-')[0]}"] += 1
            program.start()


def settle(url: str, seconds: float) -> float:
    """Wait until every run has ended; how long that took, or all of the time."""
    started = time.monotonic()
    engine = open_engine(address_of(url))
    try:
        while (took := time.monotonic() - started) < seconds:
            with Session(engine) as session:
                ended = RunRow.state.in_(("finished", "failed", "cancelled"))
                if not session.scalar(select(func.count()).where(~ended)):
                    return took
            time.sleep(0.5)
    finally:
        engine.dispose()
    return seconds


def past_of(url: str, accepted: dict[str, list[str]]) -> Past:
    """All that the database remembers."""
    engine = open_engine(address_of(url))
    try:
        with Session(engine) as session:
            attempts: dict[str, list[Claimed]] = {}
            for row in session.scalars(select(JobAttemptRow).order_by(JobAttemptRow.attempt)):
                attempts.setdefault(row.job_id, []).append(
                    Claimed(
                        row.attempt,
                        row.claimed_at.timestamp(),
                        None if row.ended_at is None else row.ended_at.timestamp(),
                        row.ending,
                    )
                )
            stored: Counter[tuple[int | None, str | None]] = Counter(
                (study, candidate)
                for study, candidate in session.execute(
                    select(MeasurementRow.study_id, MeasurementRow.candidate_id)
                )
            )
            jobs = [
                JobPast(
                    row.id, row.kind, row.run_id, row.state, row.max_attempts,
                    tuple(attempts.get(row.id, ())), stored[(row.study_id, row.candidate_id)],
                )
                for row in session.scalars(select(JobRow))
            ]  # fmt: skip
            runs = [
                RunPast(
                    row.id, row.state,
                    row.timed + row.wrong + row.compile_error + row.resource_error + row.timeout
                    + row.crash, row.lost, row.budget_candidates,
                )
                for row in session.scalars(select(RunRow))
            ]  # fmt: skip
            return Past(accepted, runs, jobs, stored.total())
    finally:
        engine.dispose()


def campaign(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    boards: int = 3,
    cluster: bool = False,
    said: Callable[[str], object] = print,
) -> Report:
    """Run one; the report's ``faults`` are empty where every promise was kept."""
    random = Random(seed)
    report = Report(seed, seconds, boards, cluster)
    with ChaosFarm(folder, boards, cluster) as farm:
        customer = Customer(farm, Random(seed + 1), report)
        customer.start()
        try:
            inject(farm, random, seconds, report)
        finally:
            customer.end()
        said(f"broke {dict(report.injected)}; settling")
        report.settled_s = settle(farm.database.url, SETTLE_S)
        report.faults += farm.stop()
        past = past_of(farm.database.url, customer.accepted)
        report.faults += faults_of(past)
        report.faults += [f"a client was told: {error}" for error in customer.errors]
        report.runs, report.jobs = len(past.runs), len(past.jobs)
        for job in past.jobs:
            report.attempts.update(attempt.ending or "open" for attempt in job.attempts)
        if report.faults:
            said(farm.logs(40))
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description="Break a farm on purpose and judge its history.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--no-cluster", action="store_true", help="without RabbitMQ")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nestmap-chaos-") as folder:
        report = campaign(
            Path(folder), seconds=options.seconds, seed=options.seed, boards=options.boards,
            cluster=not options.no_cluster,
        )  # fmt: skip
    text = json.dumps(report.to_json(), indent=1)
    print(text)
    if options.out is not None:
        with suppress(FileExistsError):
            options.out.parent.mkdir(parents=True)
        options.out.write_text(text + "\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
