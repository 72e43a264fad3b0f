"""A tuning run on a terminal: the progress bar and the tables at the end."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mapper.layer_spec import LayerSpec
from nestmap.tuning.baselines import Contestant, gflops
from nestmap.tuning.events import (
    CandidateMeasured,
    CandidateRefused,
    Event,
    RunEnded,
    RunStarted,
    State,
)
from nestmap.tuning.finalists import Final
from nestmap.tuning.run import Budget, FrontEntry

_ID_LENGTH = 12


class ProgressDisplay:
    """A listener that shows best time, front and outcomes; a context manager."""

    def __init__(self, console: Console, budget: Budget) -> None:
        self._console = console
        self._budget = budget
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        # Seconds where both are given: they tell when it will end.
        total = budget.seconds if budget.seconds is not None else budget.candidates
        self._task = self._progress.add_task("tuning", total=total, state="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                if event.stored:
                    self._console.print(f"{event.stored} candidates are stored already")
            case CandidateMeasured() | RunEnded():
                self.show(event.state)
            case CandidateRefused():
                self._console.print(f"no kernel ({event.variant}): {event.message}", markup=False)

    def show(self, state: State) -> None:
        """How far the run is."""
        by_time = self._budget.seconds is not None
        self._progress.update(
            self._task,
            completed=state.elapsed_s if by_time else state.tried,
            state=state_text(state),
        )


def state_text(state: State) -> str:
    """What was tried, best time, front, outcomes and time left in one line."""
    left = "" if state.left_s is None else f" | {state.left_s:.0f} s left"
    best = f"best {state.best_ms:.3f} ms ({state.best_variant})" if state.best_ms else "no best yet"
    outcomes = ", ".join(f"{count} {kind}" for kind, count in state.outcomes.items() if count)
    front = f"front {state.front}, hypervolume {state.volume:.0%}"
    return f"{state.tried} tried | {best} | {front} | {outcomes or 'nothing tried'}{left}"


FRONT_COLUMNS = ("time_ms", "GFLOP/s", "memory_bytes", "extra_bytes", "candidate", "variant")
FRONT_NUMBERS = ("time_ms", "GFLOP/s", "memory_bytes", "extra_bytes")


def front_rows(front: tuple[FrontEntry, ...], layer: LayerSpec | None) -> list[tuple[str, ...]]:
    """The verified front, fastest first, under FRONT_COLUMNS."""
    return [
        (
            f"{entry.time_ms:.3f}",
            f"{gflops(layer, entry.time_ms):.2f}" if layer is not None else "",
            f"{entry.memory_bytes}",
            f"{entry.extra_bytes}",
            entry.candidate[:_ID_LENGTH],
            entry.subject.variant or entry.subject.label,
        )
        for entry in front
    ]


FINAL_COLUMNS = ("median_ms", "95 % interval ms", "trials", "candidate", "variant", "note")
FINAL_NUMBERS = ("median_ms", "trials")


def final_rows(finals: Sequence[Final[FrontEntry]]) -> list[tuple[str, ...]]:
    """The finalists, fastest first, under FINAL_COLUMNS."""
    return [
        (
            f"{final.time_ms:.3f}",
            f"{final.interval.low / 1e6:.3f} to {final.interval.high / 1e6:.3f}",
            f"{final.trials}",
            final.entry.candidate[:_ID_LENGTH],
            final.entry.subject.variant or final.entry.subject.label,
            "times drifted" if final.drifted else "",
        )
        for final in finals
    ]


BASELINE_COLUMNS = ("contestant", "time_ms", "GFLOP/s", "extra_bytes", "time/tuned", "note")
BASELINE_NUMBERS = ("time_ms", "GFLOP/s", "extra_bytes", "time/tuned")


def baseline_rows(contestants: tuple[Contestant, ...]) -> list[tuple[str, ...]]:
    """The tuned kernel beside plain ways, measured in turns, under BASELINE_COLUMNS."""
    return [
        (
            contestant.name,
            "" if contestant.time_ms is None else f"{contestant.time_ms:.3f}",
            "" if contestant.gflops is None else f"{contestant.gflops:.2f}",
            f"{contestant.extra_bytes}",
            "" if contestant.time_over_tuned is None else f"{contestant.time_over_tuned:.3f}",
            contestant.note,
        )
        for contestant in contestants
    ]
