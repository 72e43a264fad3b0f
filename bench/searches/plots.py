"""The figures of the papers, from replays: throughput by exploration time, and the front.

"Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22), Figures 5 and 6:
the best throughput by time spent and by candidates evaluated. "Improving Performance of
Convolution through Lift" (GPGPU'20), Figure 6: every explored point and the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bench.searches.campaign import Run
from bench.searches.contestants import OWN, WITH_DEVICES, WITH_KERNEL
from bench.searches.replay import Arena
from bench.searches.tables import Summary
from bench.svg import Axis, Series, chart
from mapper.pareto.front import front_of

_POINTS_OF_A_CURVE = 120
_MOST_DOTS = 3000
_PEERS = 3


def chosen_for_plot(found: Sequence[Summary]) -> list[Summary]:
    """Ours by name, and the best searches of others."""
    told = (WITH_KERNEL, WITH_DEVICES)
    own = [s for s in found if s.project == OWN and ("," not in s.search or s.search in told)]
    return [*own, *[s for s in found if s.project != OWN][:_PEERS]]


def by_evaluations(name: str, found: Sequence[Summary]) -> str:
    """The median share of the best throughput after each number of evaluations."""
    series = [
        Series(
            f"{s.project}: {s.search}",
            [(n + 1.0, float(v)) for n, v in enumerate(np.median(s.curves, axis=0))],
        )
        for s in chosen_for_plot(found)
    ]
    seeds = [s.seeds for s in chosen_for_plot(found)]
    several = f"{min(seeds)}" if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"
    return chart(
        f"{name}: best found by evaluations, median of {several} seeds",
        Axis("unique evaluations"),
        Axis("best recorded time / best found", low=0.4, high=1.0),
        [Series(s.name, [p for p in s.points if p[1] >= 0.4], s.style) for s in series],
    )


def by_seconds(name: str, arena: Arena, runs: Iterable[Run], found: Sequence[Summary]) -> str:
    """The median share of the best throughput by what the evaluations took on that machine."""
    wanted = chosen_for_plot(found)
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.recording == arena.recording.name and run.steps:
            grouped.setdefault((run.project, run.search), []).append(run)
    longest = max(run.cost_s[-1] for members in grouped.values() for run in members)
    times = np.geomspace(1.0, max(2.0, longest), _POINTS_OF_A_CURVE)
    series: list[Series] = []
    for summary in wanted:
        curves = [_at_times(arena, run, times) for run in grouped[summary.project, summary.search]]
        median = np.median(np.stack(curves), axis=0)
        points = [(float(t), float(v)) for t, v in zip(times, median, strict=True) if v >= 0.2]
        series.append(Series(f"{summary.project}: {summary.search}", points, "steps"))
    return chart(
        f"{name}: best found by exploration time",
        Axis("seconds of compiling and measuring (recorded)", log=True),
        Axis("best recorded time / best found", low=0.2, high=1.0),
        series,
    )


def _at_times(
    arena: Arena, run: Run, times: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> list[float]:
    recording = arena.recording
    best, found, place = 0.0, list[float](), 0
    for moment in times.tolist():
        while place < len(run.steps) and run.cost_s[place] <= moment:
            time_ms = float(recording.time_ms[run.steps[place][1]])
            best = max(best, 0.0 if np.isnan(time_ms) else recording.best_ms / time_ms)
            place += 1
        found.append(best)
    return found


def front_plot(name: str, arena: Arena) -> str:
    """Every recorded point, and the staircase of the front: time by memory."""
    recording = arena.recording
    timed = np.flatnonzero(~np.isnan(recording.time_ms))
    points = np.stack([recording.memory_bytes[timed] / 2**20, recording.time_ms[timed]], axis=1)
    front = front_of(points)
    shown = points[:: max(1, len(points) // _MOST_DOTS)]
    return chart(
        f"{name}: {len(points)} points and their front of {len(front)}",
        Axis("memory, MiB"),
        Axis("time, ms", log=True),
        [
            Series("measured", [(float(a), float(b)) for a, b in shown], "dots"),
            Series("front", [(float(a), float(b)) for a, b in front], "steps"),
            Series("on the front", [(float(a), float(b)) for a, b in front], "dots"),
        ],
    )


def write_plots(
    folder: Path, arena: Arena, runs: Sequence[Run], found: Sequence[Summary]
) -> list[Path]:
    """The plots that a recording's runs allow."""
    name = arena.recording.name
    stem = name.replace("/", "-").replace("@", "-").lower()
    texts = {
        f"search-{stem}-evaluations.svg": by_evaluations(name, found),
        f"search-{stem}-seconds.svg": by_seconds(name, arena, runs, found),
    }
    if arena.recording.memory_bytes.any():
        texts[f"front-{stem}.svg"] = front_plot(name, arena)
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for file, text in texts.items():
        path = folder / file
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
