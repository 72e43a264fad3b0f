"""Runs in lists: how far they are, what came out, and their fronts drawn small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.dashboard.views.staircases import Staircase, staircase
from db.farm.fronts import StudiedPoint
from db.farm.run_records import Run
from db.farm.states import RunState
from mapper.measurement import OUTCOME_KINDS

_TONES = {
    RunState.RUNNING: "live",
    RunState.QUEUED: "",
    RunState.PAUSED: "warn",
    RunState.CANCELLING: "warn",
    RunState.CANCELLED: "warn",
    RunState.FINISHED: "good",
    RunState.FAILED: "bad",
}

#: Outcomes in words, singular: what stands beside a number.
OUTCOME_WORDS = {
    "timed": "timed",
    "wrong": "wrong result",
    "compile-error": "compile error",
    "resource-error": "not enough of a resource",
    "timeout": "timeout",
    "crash": "crash",
}

_REASONS = {
    "candidates": "as many candidates as asked for",
    "seconds": "the time was over",
    "exhausted": "every valid candidate was tried",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in a list. ``share`` is how much of its budget is spent, None without a budget."""

    run: Run
    device: str
    tone: str
    subject: str
    share: float | None
    budget: str
    failed: int
    ending: str


def run_lines(runs: Iterable[Run], device_names: Mapping[str, str]) -> list[RunLine]:
    """The lines of these runs, in their order; a device without a name is shown by its id."""
    return [run_line(run, device_names.get(run.board_id, run.board_id)) for run in runs]


def run_line(run: Run, device: str) -> RunLine:
    """The line of a run on a device of this name."""
    progress = run.progress
    return RunLine(
        run=run,
        device=device,
        tone=_TONES[run.state],
        subject=subject_text(run.request.get("subject", {})),
        share=_share(run),
        budget=_budget(run),
        failed=progress.measured - progress.outcomes.get("timed", 0) + progress.lost,
        ending=_REASONS.get(run.reason, run.reason) if run.state.ended else "",
    )


def subject_text(subject: Mapping[str, object]) -> str:
    """A layer by name, or what kind of document it is."""
    if "name" in subject:
        return str(subject["name"])
    document = subject.get("document")
    if isinstance(document, Mapping) and document.get("name"):
        return str(document["name"])
    return "a program" if "text" in subject or "document" in subject else "a stored subject"


def _share(run: Run) -> float | None:
    shares: list[float] = []
    if run.budget_candidates is not None:
        shares.append(run.progress.tried / run.budget_candidates)
    if run.budget_seconds is not None:
        shares.append(run.progress.active_s / run.budget_seconds)
    return min(1.0, max(shares)) if shares else None


def _budget(run: Run) -> str:
    parts: list[str] = []
    if run.budget_candidates is not None:
        parts.append(f"{run.budget_candidates:,} candidates".replace(",", "\u202f"))
    if run.budget_seconds is not None:
        parts.append(f"{run.budget_seconds:g} s")
    return " or ".join(parts) or "until the space is exhausted"


@dataclass(frozen=True, slots=True)
class FrontCard:
    """The front of a run in a card: fastest first."""

    line: RunLine
    points: Sequence[StudiedPoint]
    drawing: Staircase

    @property
    def fastest(self) -> StudiedPoint:
        """The first of the front."""
        return self.points[0]

    @property
    def smallest(self) -> StudiedPoint:
        """The last of the front."""
        return self.points[-1]


def front_card(line: RunLine, points: Sequence[StudiedPoint]) -> FrontCard:
    """A card of a front that is not empty."""
    drawing = staircase([(point.time_ms, float(point.memory_bytes)) for point in points])
    return FrontCard(line, points, drawing)


def outcome_counts(outcomes: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """``(kind, words, number)`` of every kind, in the order of ``mapper.measurement``."""
    return [(kind, OUTCOME_WORDS[kind], outcomes.get(kind, 0)) for kind in OUTCOME_KINDS]
