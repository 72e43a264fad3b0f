"""The comparison as markdown: what each search has found after so many evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.searches.campaign import Run, curve_of
from bench.searches.contestants import OWN, WITH_DEVICES, WITH_KERNEL, WITH_TRANSFER
from bench.searches.recording import Recording
from bench.searches.replay import Arena, first_at

Floats = NDArray[np.float64]
POINTS = (25, 50, 100, 200)
#: The share of the best time, and of the best hypervolume, that a search is to reach.
SHARE = 0.95
DEFAULT = "model-guided"
#: The same with the peers' goal.
TIME_ALONE = "model-guided, fastest"


@dataclass(frozen=True)
class Summary:
    """All runs of one search on one recording.

    ``curves`` are seeds x evaluations; ``reached`` and ``seconds`` the evaluations and the
    recorded machine's seconds to :data:`SHARE` of the best, infinite where a seed never came
    there; ``own_seconds`` the median of the search's own processor time.
    """

    project: str
    search: str
    seeds: int
    curves: Floats
    reached: Floats
    seconds: Floats
    own_seconds: float
    failed: str

    def at(self, evaluations: int) -> float:
        """The median after so many evaluations."""
        return float(np.median(self.curves[:, evaluations - 1]))


def summaries(
    arena: Arena, runs: Iterable[Run], evaluations: int, *, front: bool = False
) -> list[Summary]:
    """One for each search, best median at half of the evaluations first."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.recording == arena.recording.name:
            grouped.setdefault((run.project, run.search), []).append(run)
    found = [
        _summary(arena, project, search, members, evaluations, front)
        for (project, search), members in grouped.items()
    ]
    half = max(1, evaluations // 2)
    return sorted(found, key=lambda s: (-s.at(half), -s.curves[:, half - 1].mean()))


def _summary(
    arena: Arena, project: str, search: str, runs: Sequence[Run], evaluations: int, front: bool
) -> Summary:
    curves = np.stack([curve_of(arena, run, evaluations, front=front) for run in runs])
    reached: list[float] = []
    seconds: list[float] = []
    for run, curve in zip(runs, curves, strict=True):
        first = first_at(curve, SHARE)
        reached.append(np.inf if first is None else float(first))
        costs = [cost for (at, _), cost in zip(run.steps, run.cost_s, strict=True) if at == first]
        seconds.append(costs[0] if costs else np.inf)
    return Summary(
        project,
        search,
        len(runs),
        curves,
        np.array(reached),
        np.array(seconds),
        float(np.median([run.seconds for run in runs])),
        next((run.failed for run in runs if run.failed), ""),
    )


def table(found: Sequence[Summary], evaluations: int, *, best_peers: int | None = None) -> str:
    """Medians with quartiles; only the ``best_peers`` best of each other project if asked."""
    points = [point for point in POINTS if point <= evaluations] or [evaluations]
    heads = [
        "search",
        *(f"at {point}" for point in points),
        f"evaluations to {SHARE:.0%}",
        f"seconds to {SHARE:.0%}",
        "own CPU s",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    shown: dict[str, int] = {}
    for summary in found:
        shown[summary.project] = shown.get(summary.project, 0) + 1
        if (
            best_peers is not None
            and summary.project != OWN
            and shown[summary.project] > best_peers
        ):
            continue
        cells = [
            f"{summary.project}: {summary.search}",
            *(_quartiles(summary.curves[:, point - 1]) for point in points),
            _spread(summary.reached),
            _spread(summary.seconds),
            f"{summary.own_seconds:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def overview(found: Sequence[tuple[Recording, Sequence[Summary]]]) -> str:
    """A line for each recording: how soon the default and the best of the peers came to
    :data:`SHARE` of the best (evaluations; seconds of the recorded machine), with quartiles; and
    the default where it looks for the time alone, as the peers do, and where other layers of the
    device taught it."""
    share = f"{SHARE:.0%}"
    heads = [
        "recording", "device", "rows", f"from {share} of the best time on",
        f"{DEFAULT} to {share}", "seconds", "for the time alone", "with transfer", "seconds",
        "best of the others",
        f"to {share}", "seconds",
    ]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for recording, members in found:
        near = int((recording.time_ms <= recording.best_ms / SHARE).sum())
        cells = [recording.name, recording.device, str(recording.rows), str(near)]
        own, alone = default_of(members), _own(members, TIME_ALONE)
        cells += ["–", "–"] if own is None else [_spread(own.reached), _spread(own.seconds)]
        cells.append("–" if alone is None else _spread(alone.reached))
        taught = _own(members, WITH_TRANSFER)
        cells += (
            ["–", "–"] if taught is None else [_spread(taught.reached), _spread(taught.seconds)]
        )
        peers = [summary for summary in members if summary.project != OWN]
        if peers:
            best = min(peers, key=_lateness)
            name = f"{best.project}: {best.search}"
            cells += [name, _spread(best.reached), _spread(best.seconds)]
        else:
            cells += ["–"] * 3
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _lateness(summary: Summary) -> tuple[float, float]:
    """The median, then the mean with what was never reached as one more than all evaluations."""
    median = float(np.quantile(summary.reached, 0.5, method="nearest"))
    return median, float(np.minimum(summary.reached, summary.curves.shape[1] + 1).mean())


def default_of(found: Sequence[Summary]) -> Summary | None:
    """What ``nestmap tune`` does, where it took part."""
    return _own(found, DEFAULT)


def _own(found: Sequence[Summary], search: str) -> Summary | None:
    return next((s for s in found if (s.project, s.search) == (OWN, search)), None)


def _quartiles(values: Floats) -> str:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _spread(values: Floats) -> str:
    """Median and quartiles of numbers some of which may be infinite: never reached."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), method="nearest")
    texts = ["never" if np.isinf(value) else f"{value:.0f}" for value in (middle, low, high)]
    if texts[0] == texts[1] == texts[2] == "never":
        return "never"
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def verdict(found: Sequence[Summary], evaluations: int) -> list[str]:
    """Where the default stands beside the best peer, in a line for each number of evaluations; and
    those that know the kernel, and what other devices took, where they took part."""
    lines = _beside_peers(default_of(found), found, evaluations)
    for search in (WITH_KERNEL, WITH_DEVICES):
        knowing = _beside_peers(_own(found, search), found, evaluations)
        lines += [f"{search}, {line}" for line in knowing]
    return lines


def _beside_peers(own: Summary | None, found: Sequence[Summary], evaluations: int) -> list[str]:
    peers = [s for s in found if s.project != OWN]
    if own is None or not peers:
        return []
    lines: list[str] = []
    for point in (p for p in POINTS if p <= evaluations):
        best = max(peers, key=lambda s: (s.at(point), s.curves[:, point - 1].mean()))
        mine, theirs = own.at(point), best.at(point)
        word = "ahead of" if mine > theirs else "level with" if mine == theirs else "BEHIND"
        lines.append(
            f"at {point}: {mine:.3f}, {word} {theirs:.3f} ({best.project}: {best.search}); "
            f"means {own.curves[:, point - 1].mean():.3f} and "
            f"{best.curves[:, point - 1].mean():.3f}"
        )
    return lines


def curves_by_name(found: Sequence[Summary]) -> Mapping[str, Floats]:
    """The median curve of each search, by project and name."""
    return {f"{s.project}: {s.search}": np.median(s.curves, axis=0) for s in found}
