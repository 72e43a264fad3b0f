"""Measurements, each in a fresh process with bounded time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any

from bench.space_solving.cases import ROOT, Case
from bench.space_solving.contestants.problem import Start

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
_CHILD = ("-m", "bench.space_solving.child")
# What a measurement needs beside the call that is timed: start, imports, checking the answer.
_ASIDE_S = 60.0
_MESSAGE_CHARACTERS = 300
# Nobody multiplies matrices here, but NumPy's libraries for it start threads that wait for work
# by spinning: milliseconds of processor time, in some runs and not in others.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Task(StrEnum):
    """What is timed."""

    CONSTRUCT = "construct"
    COUNT = "count"
    SAMPLE = "sample"


@dataclass(frozen=True)
class Contestant:
    """Someone to measure. ``counts`` if there is a way to count that is not construction;
    ``package`` is the distribution that has to be installed in the peers' environment."""

    key: str
    title: str
    counts: bool
    start: Start
    package: str = ""


NESTMAP = Contestant("nestmap", "nestmap, from JSON", True, Start.JSON)
#: nestmap from each start, so that everyone is compared with one that begins where they do.
OWN = {
    Start.JSON: NESTMAP,
    Start.TEXTS: Contestant("nestmap-texts", "nestmap, from texts", True, Start.TEXTS),
    Start.COMPILED: Contestant("nestmap-compiled", "nestmap, compiled", True, Start.COMPILED),
}
CONTESTANTS = (
    *OWN.values(),
    Contestant("numpy-join", "NumPy, join and filter", False, Start.COMPILED),
    Contestant("numpy-brute-force", "NumPy, brute force", True, Start.COMPILED),
    Contestant("kernel-tuner", "Kernel Tuner", False, Start.TEXTS, "kernel-tuner"),
    Contestant("python-constraint", "python-constraint2", False, Start.TEXTS, "python-constraint2"),
    Contestant(
        "python-constraint-list",
        "python-constraint2, no forward check",
        False,
        Start.TEXTS,
        "python-constraint2",
    ),
    Contestant("pyatf", "pyATF", True, Start.COMPILED, "pyatf"),
    Contestant("brute-force", "Python, brute force", True, Start.COMPILED),
)
BY_KEY = {contestant.key: contestant for contestant in CONTESTANTS}


@dataclass(frozen=True)
class Limits:
    """Of one measurement (``timeout_s`` seconds in the timed call, ``memory_mb`` of address
    space), and how often each is repeated.

    What takes long is repeated less: no further time once the runs of a cell have taken
    ``timeout_s`` together.
    """

    repeats: int = 7
    timeout_s: float = 60.0
    memory_mb: int = 8192
    samples: int = 1000


@dataclass
class Cell:
    """All runs of one task by one contestant on one space.

    ``refusal`` says why there is no figure (any other field is then empty): too slow, too
    large, or an error. ``seconds`` are wall-clock, ``cpu_seconds`` of the process.
    """

    space: str
    fingerprint: str
    contestant: str
    task: str
    seconds: list[float] = field(default_factory=list[float])
    cpu_seconds: list[float] = field(default_factory=list[float])
    stages: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    peak_mb: float = 0.0
    count: int | None = None
    distinct: int | None = None
    digest: str = ""
    wrong: int = 0
    refusal: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is the cell of."""
        return self.space, self.contestant, self.task

    def done(self, limits: Limits) -> bool:
        """Whether no further run is due."""
        runs = len(self.seconds)
        return bool(
            self.refusal or runs >= limits.repeats or (sum(self.seconds) >= limits.timeout_s)
        )

    def typical(self, clock: str = "seconds") -> float | None:
        """The median in seconds; None if there is no figure."""
        values: list[float] = getattr(self, clock)
        return median(values) if values else None


def tasks_of(contestant: Contestant, case: Case) -> list[Task]:
    """What to measure: counting only where it is not construction over again."""
    tasks = [Task.CONSTRUCT] if case.enumerable else []
    if contestant.counts or not case.enumerable:
        tasks.append(Task.COUNT)
    return [*tasks, Task.SAMPLE]


def installed_peers(python: Path) -> dict[str, str]:
    """The packages of other projects that this interpreter has, with versions; none if there is
    no such interpreter or it cannot run a measurement."""
    packages = sorted({contestant.package for contestant in CONTESTANTS if contestant.package})
    program = (
        "import contextlib, importlib.metadata as m, json, sys, bench.space_solving.child\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.suppress(m.PackageNotFoundError):\n"
        "        found[name] = m.version(name)\n"
        "json.dump(found, sys.stdout)"
    )
    try:
        answer = subprocess.run(
            [str(python), "-c", program, *packages, "numpy"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_ASIDE_S,
        )
        return dict(json.loads(answer.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}


def run_once(
    case: Case, contestant: Contestant, task: Task, python: Path, limits: Limits, seed: int
) -> dict[str, Any]:
    """One answer of the child; ``refused`` is in it if there is no figure."""
    request = {
        "contestant": contestant.key,
        "task": task.value,
        "parameters": case.problem.parameters,
        "constraints": case.problem.constraints,
        "schema": case.problem.schema,
        "document": case.problem.document,
        "number": limits.samples,
        "seed": seed,
        "memory_mb": limits.memory_mb,
        "timeout_s": limits.timeout_s,
    }
    try:
        answer = subprocess.run(
            [str(python if contestant.package else sys.executable), *_CHILD],
            input=json.dumps(request),
            env={**os.environ, **_ONE_THREAD},
            capture_output=True,
            text=True,
            check=False,
            timeout=limits.timeout_s + _ASIDE_S,
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"not in {limits.timeout_s:g} s"}
    if answer.returncode == -signal.SIGALRM:
        return {"refused": f"not in {limits.timeout_s:g} s"}
    try:
        return dict(json.loads(answer.stdout))
    except ValueError:
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        return {"refused": f"failed: {lines[-1][:_MESSAGE_CHARACTERS]}"}


def record(cell: Cell, answer: Mapping[str, Any]) -> None:
    """Add a run to its cell. Runs that disagree are an error of whoever gave them."""
    if "refused" in answer:
        cell.refusal = str(answer["refused"])
        return
    cell.seconds.append(float(answer["seconds"]))
    cell.cpu_seconds.append(float(answer["cpu_seconds"]))
    for stage, seconds in answer["stages"].items():
        cell.stages.setdefault(stage, []).append(float(seconds))
    cell.peak_mb = max(cell.peak_mb, float(answer["peak_mb"]))
    found = answer["count"], answer.get("distinct"), answer.get("digest", "")
    if cell.count is not None and found != (cell.count, cell.distinct, cell.digest):
        cell.refusal = "failed: two runs gave different answers"
    cell.count, cell.distinct, cell.digest = found
    cell.wrong += int(answer.get("wrong", 0))


def measure_case(
    case: Case,
    chosen: Sequence[Contestant],
    python: Path,
    limits: Limits,
    cells: dict[tuple[str, str, str], Cell],
    *,
    seed: int = 0,
    after: Callable[[Cell], None] | None = None,
) -> None:
    """Run what is due for one space and put it into ``cells``.

    Everyone runs once before anyone runs twice, so that a change in the machine's load meets
    all alike.
    """
    for contestant in chosen:
        for task in tasks_of(contestant, case):
            key = case.name, contestant.key, task.value
            if key not in cells or cells[key].fingerprint != case.fingerprint:
                cells[key] = Cell(case.name, case.fingerprint, contestant.key, task.value)
    for turn in range(limits.repeats):
        for contestant, task in _due(case, chosen, cells, limits, turn):
            cell = cells[case.name, contestant.key, task.value]
            hopeless = _hopeless(case, contestant, task, cells)
            answer = (
                {"refused": hopeless}
                if hopeless
                else run_once(case, contestant, task, python, limits, seed + turn)
            )
            record(cell, answer)
            if after is not None:
                after(cell)


def _due(
    case: Case,
    chosen: Sequence[Contestant],
    cells: Mapping[tuple[str, str, str], Cell],
    limits: Limits,
    turn: int,
) -> Iterator[tuple[Contestant, Task]]:
    for contestant in chosen:
        for task in tasks_of(contestant, case):
            cell = cells[case.name, contestant.key, task.value]
            if not cell.done(limits) and len(cell.seconds) <= turn:
                yield contestant, task


def _hopeless(
    case: Case,
    contestant: Contestant,
    task: Task,
    cells: Mapping[tuple[str, str, str], Cell],
) -> str:
    """Why sampling is not tried: it contains what did not end. Else empty."""
    if task is not Task.SAMPLE:
        return ""
    first = Task.COUNT if Task.COUNT in tasks_of(contestant, case) else Task.CONSTRUCT
    return cells[case.name, contestant.key, first.value].refusal
