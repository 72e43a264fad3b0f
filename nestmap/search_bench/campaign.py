"""The comparison: every search with every seed on every recording, kept in one file.

A run goes on where the file ends. Kept are the evaluations that improved something, as pairs
of the number of the evaluation and the row: all that curves need.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.errors import InputError, Problem
from nestmap.search_bench.contestants import (
    OF_LAYERS,
    OWN,
    OWN_SEARCHES,
    TAKING_PARTS,
    Trace,
    peer_traces,
)
from nestmap.search_bench.recording import Recording
from nestmap.search_bench.replay import Arena, quality, replay, volume

SCHEMA = "nestmap/bench-search/1"
#: Seeds whose traces of a project one child makes.
_SEEDS_AT_ONCE = 10

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """One search with one seed on one recording.

    ``steps`` are (evaluation from 1, row) where the best time or the front changed; ``cost_s``
    what the recorded evaluations took up to each step; ``seconds`` the search's own processor
    time.
    """

    recording: str
    project: str
    search: str
    seed: int
    evaluations: int
    steps: tuple[tuple[int, int], ...]
    cost_s: tuple[float, ...]
    seconds: float
    failed: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What it is the run of."""
        return self.recording, self.project, self.search, self.seed


def run_of(arena: Arena, project: str, trace: Trace) -> Run:
    """A trace, reduced to its steps."""
    recording, rows = arena.recording, trace.rows
    curves = quality(recording, rows, len(rows)), volume(arena, rows, len(rows))
    better = np.zeros(len(rows), np.bool_)
    for curve in curves:
        better |= np.diff(curve, prepend=0.0) > 0
    places = np.flatnonzero(better).tolist()
    costs = np.cumsum(recording.cost_ms[list(rows)]) / 1e3 if rows else np.zeros(0)
    return Run(
        recording.name,
        project,
        trace.search,
        trace.seed,
        len(rows),
        tuple((place + 1, rows[place]) for place in places),
        tuple(round(float(costs[place]), 2) for place in places),
        round(trace.seconds, 3),
        trace.failed,
    )


def rows_of(run: Run, failing: int) -> list[int]:
    """A trace with the same curves: at other evaluations than the steps something no better."""
    steps = {evaluation: row for evaluation, row in run.steps}
    last, rows = failing, list[int]()
    for evaluation in range(1, run.evaluations + 1):
        last = steps.get(evaluation, last)
        rows.append(last)
    return rows


def curve_of(arena: Arena, run: Run, evaluations: int, *, front: bool = False) -> Floats:
    """The quality (or the share of the hypervolume) after 1, 2, … evaluations."""
    measure = volume if front else None
    if not run.steps:
        return np.zeros(evaluations)
    first = run.steps[0][0] - 1
    rows = rows_of(run, run.steps[0][1])[:evaluations]
    curve = (
        quality(arena.recording, rows, evaluations)
        if measure is None
        else measure(arena, rows, evaluations)
    )
    curve[:first] = 0.0
    return curve


def own_trace(arena: Arena, search: str, seed: int, evaluations: int) -> Trace:
    """One of our strategies, one candidate at a time."""
    started = time.process_time()
    make = OWN_SEARCHES[search]
    rows = replay(arena, lambda at: make(at, seed), evaluations)
    return Trace(search, seed, tuple(rows), time.process_time() - started)


def missing_runs(
    arena: Arena,
    path: Path,
    project: str,
    searches: Sequence[str],
    seeds: Sequence[int],
    evaluations: int,
    python: Path,
    done: Mapping[tuple[str, str, str, int], Run],
) -> Iterator[Run]:
    """The runs of a project that are not done, seeds in order, so that all grow together."""
    name = arena.recording.name
    for start in range(0, len(seeds), _SEEDS_AT_ONCE):
        part = seeds[start : start + _SEEDS_AT_ONCE]
        # A child takes seconds to start, so it makes all that lack the same seeds.
        lacking: dict[tuple[int, ...], list[str]] = {}
        for search in searches:
            left = tuple(seed for seed in part if (name, project, search, seed) not in done)
            lacking.setdefault(left, []).append(search)
        for left, members in lacking.items():
            if project == OWN:
                for search in members:
                    for seed in left:
                        yield run_of(arena, project, own_trace(arena, search, seed, evaluations))
            elif left:
                for trace in peer_traces(python, project, path, members, left, evaluations):
                    yield run_of(arena, project, trace)


def read_runs(path: Path) -> dict[tuple[str, str, str, int], Run]:
    """The runs of a file, none if there is no file; InputError for another file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']!r}")
        runs = [
            Run(
                **{
                    **item,
                    "steps": tuple((int(a), int(b)) for a, b in item["steps"]),
                    "cost_s": tuple(item["cost_s"]),
                }
            )
            for item in value["runs"]
        ]
        return {run.key: run for run in runs}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(str(path), "holds no results of this command", str(error), SCHEMA, "--fresh")
        ) from error


def write_runs(path: Path, runs: Iterable[Run], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the file at once, so that an interruption leaves the old one; its value."""
    value: dict[str, Any] = {"schema": SCHEMA, **facts, "runs": [asdict(run) for run in runs]}
    fresh = path.with_name(path.name + ".new")
    head = json.dumps({**value, "runs": []}, indent=1)
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in value["runs"])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(head.replace('"runs": []', f'"runs": [\n{lines}\n]') + "\n", "utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
    return value


def measure(
    recordings: Sequence[tuple[Path, Recording]],
    chosen: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    evaluations: int,
    python: Path,
    done: dict[tuple[str, str, str, int], Run],
    after: Callable[[Run], None],
) -> None:
    """Make every missing run and put it into ``done``; none of a project that cannot be given
    a recording (:data:`TAKING_PARTS`)."""
    for path, recording in recordings:
        arena = Arena.of(recording)
        for project, searches in chosen.items():
            if not recording.complete and project not in TAKING_PARTS:
                continue
            able = [s for s in searches if project != OWN or arena.planned or s not in OF_LAYERS]
            for run in missing_runs(arena, path, project, able, seeds, evaluations, python, done):
                done[run.key] = run
                after(run)
