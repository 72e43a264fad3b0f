"""The comparison: every search with every seed on every recording, kept in one file.

A run goes on where the file ends. Kept are the evaluations that improved something, as pairs
of the number of the evaluation and the row: all that curves need.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.searches.contestants import (
    OF_LAYERS,
    OWN,
    OWN_SEARCHES,
    TAKING_PARTS,
    TAUGHT,
    WITH_DEVICES,
    WITH_KERNEL,
    Trace,
    peer_traces,
)
from bench.searches.published_kernel import is_known
from bench.searches.recording import Recording, read_recording
from bench.searches.replay import (
    Arena,
    is_layer,
    quality,
    replay,
    teaching,
    volume,
)
from mapper.errors import InputError, Problem

SCHEMA = "nestmap/bench-search/1"
#: Seeds whose traces of a project one child makes; fewer where children share the work, so that
#: each gets several shares.
_SEEDS_AT_ONCE = 10
_SHARES = 4

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


@dataclass(frozen=True, slots=True)
class _Unit:
    """Searches of a project on a recording that lack the same seeds: one process makes them."""

    path: Path
    project: str
    searches: tuple[str, ...]
    seeds: tuple[int, ...]
    learn_from: tuple[Path, ...] = ()


def _units(
    path: Path,
    name: str,
    project: str,
    searches: Sequence[str],
    seeds: Sequence[int],
    done: Mapping[tuple[str, str, str, int], Run],
    at_once: int,
    learn_from: tuple[Path, ...],
) -> Iterator[_Unit]:
    """What is not done of a project, seeds in order, so that all searches grow together."""
    for start in range(0, len(seeds), at_once):
        part = seeds[start : start + at_once]
        # A child takes seconds to start, so it makes all that lack the same seeds.
        lacking: dict[tuple[int, ...], list[str]] = {}
        for search in searches:
            left = tuple(seed for seed in part if (name, project, search, seed) not in done)
            if left:
                lacking.setdefault(left, []).append(search)
        for left, members in lacking.items():
            yield _Unit(path, project, tuple(members), left, learn_from)


def _teachers(
    recording: Recording, learn_from: Sequence[tuple[Path, Recording]]
) -> tuple[Path, ...]:
    """The files of what teaches a layer, or of the same space elsewhere."""
    return tuple(path for path, other in learn_from if teaching(recording, [other]))


def _taking_part(
    recording: Recording, project: str, searches: Sequence[str], taught: bool
) -> list[str]:
    """Those that can be given a recording: some of ours need a layer, teachers, or a published
    kernel."""
    if project != OWN:
        return list(searches)
    lacking = {
        *(() if is_layer(recording) else OF_LAYERS),
        *(() if taught else TAUGHT),
        *(() if is_known(recording) else (WITH_KERNEL, WITH_DEVICES)),
    }
    return [search for search in searches if search not in lacking]


def _runs_of(unit: _Unit, evaluations: int, python: Path) -> Iterator[Run]:
    # Only these have teachers to read.
    taught = any(search in TAUGHT for search in unit.searches)
    arena = _arena(unit.path, unit.learn_from if taught else ())
    if unit.project == OWN:
        for search in unit.searches:
            for seed in unit.seeds:
                yield run_of(arena, OWN, own_trace(arena, search, seed, evaluations))
    else:
        traces = peer_traces(
            python, unit.project, unit.path, unit.searches, unit.seeds, evaluations
        )
        for trace in traces:
            yield run_of(arena, unit.project, trace)


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
    jobs: int = 1,
    learn_from: Sequence[tuple[Path, Recording]] = (),
) -> None:
    """Make every missing run and put it into ``done``; none of a project that cannot be given
    a recording (:data:`TAKING_PARTS`). Searches with transfer are taught by those of
    ``learn_from``. With more than one of ``jobs`` so many processes share the runs, and they come
    in any order."""
    at_once = _SEEDS_AT_ONCE
    if jobs > 1:
        runs = len(recordings) * sum(map(len, chosen.values())) * len(seeds)
        at_once = max(1, min(at_once, runs // (_SHARES * jobs)))
    taught = {path: _teachers(recording, learn_from) for path, recording in recordings}
    units = [
        unit
        for path, recording in recordings
        for project, searches in chosen.items()
        if recording.complete or project in TAKING_PARTS
        for unit in _units(
            path,
            recording.name,
            project,
            _taking_part(recording, project, searches, bool(taught[path])),
            seeds,
            done,
            at_once,
            taught[path],
        )
    ]

    def keep(run: Run) -> None:
        done[run.key] = run
        after(run)

    if jobs == 1:
        for unit in units:
            for run in _runs_of(unit, evaluations, python):
                keep(run)
        return
    # A process for each search by itself: they differ in what they cost by a factor of a thousand.
    single = [replace(unit, searches=(search,)) for unit in units for search in unit.searches]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            made = [pool.submit(_runs_by_itself, unit, evaluations, python) for unit in single]
            for future in as_completed(made):
                for run in future.result():
                    keep(run)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _runs_by_itself(unit: _Unit, evaluations: int, python: Path) -> list[Run]:
    """In a process of its own."""
    return list(_runs_of(unit, evaluations, python))


@lru_cache(maxsize=4)
def _arena(path: Path, learn_from: tuple[Path, ...]) -> Arena:
    return Arena.of(read_recording(path), [read_recording(other) for other in learn_from])
