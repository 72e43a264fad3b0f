"""Who takes part: our strategies, and the searches of other projects."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.searches.earlier_searches import told_elsewhere
from bench.searches.replay import Arena
from bench.searches.threads import ONE_THREAD
from mapper.errors import NestmapError, Problem
from mapper.search.evolution import Evolution
from mapper.search.goal import Fastest, Front, Goal
from mapper.search.model_guided import (
    VIEWS,
    VIEWS_IN_DOUBT,
    VIEWS_OF_TREES,
    ModelGuided,
    Rule,
    Settings,
)
from mapper.search.pool import Describe
from mapper.search.predicted_first import PredictedFirst
from mapper.search.random_search import RandomSearch
from mapper.search.strategy import Strategy

OWN = "nestmap"
PROJECTS = ("kernel-tuner", "pyatf", "optuna")
PACKAGES = {"kernel-tuner": "kernel-tuner", "pyatf": "pyatf", "optuna": "optuna"}
#: Projects whose searches can be given candidates that are a part of their space; the others
#: want the whole product of the values, with a condition.
TAKING_PARTS = (OWN, "optuna")
_CHILD = ("-m", "bench.searches.peers.child")
_LISTING_S = 120.0

Make = Callable[[Arena, int], Strategy]


def goal_of(arena: Arena) -> Goal:
    """The front where bytes were recorded, else the fastest."""
    return Front() if arena.recording.memory_bytes.any() else Fastest()


def _plain(arena: Arena, seed: int) -> Describe:
    return arena.describe


def _guided(
    settings: Settings,
    goal: Goal | None = None,
    describe_of: Callable[[Arena, int], Describe] = _plain,
) -> Make:
    def make(arena: Arena, seed: int) -> Strategy:
        return ModelGuided(
            arena.candidates,
            seed,
            space=arena.space,
            goal=goal or goal_of(arena),
            describe=describe_of(arena, seed),
            settings=settings,
        )

    return make


def _predicted_first(arena: Arena, seed: int, *, analytic: bool) -> Strategy:
    return PredictedFirst(
        arena.candidates,
        seed,
        space=arena.space,
        goal=goal_of(arena),
        describe=arena.describe_analytically if analytic else arena.describe,
    )


#: What ``nestmap tune --transfer`` does where other layers were measured.
WITH_TRANSFER = "model-guided, transfer"
#: Told what a published kernel's source says, as ``nestmap tune`` is told of its own kernels.
WITH_KERNEL = "model-guided, kernel known"
#: The same, and what earlier searches on other devices tell, in columns as ``nestmap tune
#: --transfer`` has them.
WITH_DEVICES = "model-guided, other devices"
#: The default, ``model-guided``, is what ``nestmap tune`` does; ``model-guided, fastest`` is what
#: it does with ``--fastest``: the goal that the peers have.
OWN_SEARCHES: dict[str, Make] = {
    "random": lambda arena, seed: RandomSearch(arena.candidates, seed),
    "evolution": lambda arena, seed: Evolution(arena.candidates, seed, goal=goal_of(arena)),
    "model-guided": _guided(Settings()),
    "model-guided, fastest": _guided(Settings(), Fastest()),
    WITH_TRANSFER: _guided(Settings(trusted=True), describe_of=Arena.learned),
    WITH_KERNEL: _guided(Settings(), describe_of=lambda arena, seed: arena.describe_kernel),
    WITH_DEVICES: _guided(Settings(views=VIEWS_IN_DOUBT), describe_of=told_elsewhere),
    "model-guided, expected gain": _guided(Settings(rule=Rule.EXPECTED)),
    "model-guided, sizes": _guided(Settings(views=VIEWS[:1], views_of_trees=VIEWS_OF_TREES[:1])),
    "model-guided, values": _guided(Settings(views=VIEWS[1:], views_of_trees=VIEWS_OF_TREES[1:])),
    "model-guided, trees": _guided(Settings(trees=True)),
    "analytic": partial(_predicted_first, analytic=True),
    "guess": partial(_predicted_first, analytic=False),
}
#: Searches of ours that need the plans of candidates: only layers have them.
OF_LAYERS = ("analytic", "guess", WITH_TRANSFER)
#: Searches of ours that other recordings teach.
TAUGHT = (WITH_TRANSFER, WITH_DEVICES)


@dataclass(frozen=True, slots=True)
class Trace:
    """What one search did: rows in the order of their first evaluation, or why there are none.

    ``seconds`` are of processor time, the search's own.
    """

    search: str
    seed: int
    rows: tuple[int, ...]
    seconds: float
    failed: str = ""


class PeerError(NestmapError):
    """The peers' environment does not answer."""


def peer_searches(python: Path, project: str) -> list[str]:
    """The names of a project's searches; none where the project is not installed."""
    try:
        answer = subprocess.run(
            [str(python), *_CHILD],
            input=json.dumps({"project": project, "searches": []}),
            env={**os.environ, **ONE_THREAD},
            capture_output=True,
            text=True,
            check=True,
            timeout=_LISTING_S,
        )
        return [str(name) for name in json.loads(answer.stdout)["searches"]]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return []


def peer_traces(
    python: Path,
    project: str,
    recording: Path,
    searches: Sequence[str],
    seeds: Sequence[int],
    evaluations: int,
) -> Iterator[Trace]:
    """Traces as a child process makes them; it ends when nobody asks for more.

    PeerError if the child dies.
    """
    request: dict[str, Any] = {
        "project": project,
        "recording": str(recording.resolve()),
        "searches": list(searches),
        "seeds": list(seeds),
        "evaluations": evaluations,
    }
    process = subprocess.Popen(
        [str(python), *_CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with process.stdin, process.stdout:
            process.stdin.write(json.dumps(request))
            process.stdin.close()
            for line in process.stdout:
                value = json.loads(line)
                yield Trace(
                    value["search"],
                    int(value["seed"]),
                    tuple(int(row) for row in value.get("rows", ())),
                    float(value["seconds"]),
                    str(value.get("failed", "")),
                )
        if process.wait() != 0:
            raise PeerError(
                Problem(project, "the child process failed", f"exit code {process.returncode}")
            )
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
