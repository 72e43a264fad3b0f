"""What the figures say: tables in Markdown, ratios, and answers that are not equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log

from bench.space_solving.cases import Case
from bench.space_solving.measuring import BY_KEY, NESTMAP, OWN, Cell, Contestant, Task

Cells = Mapping[tuple[str, str, str], Cell]
_KERNEL_TUNER = "kernel-tuner"
_HEADINGS = {
    Task.CONSTRUCT: "Construct: all solutions in memory",
    Task.COUNT: "Count",
    Task.SAMPLE: "First samples, drawn uniformly",
}


def cell_for(cells: Cells, case: Case, contestant: Contestant, task: Task) -> Cell | None:
    """The cell with the figure; who cannot count constructs, so that figure stands for it."""
    found = cells.get((case.name, contestant.key, task.value))
    if found is None and task is Task.COUNT:
        return cells.get((case.name, contestant.key, Task.CONSTRUCT.value))
    return found


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of no values."""
    return exp(sum(log(value) for value in values) / len(values)) if values else None


def disagreements(case: Case, cells: Cells) -> list[str]:
    """Every answer that is not the known one, or not nestmap's, solution by solution."""
    own = [cell for cell in cells.values() if cell.space == case.name]
    found: list[str] = []
    digests = [cell for cell in own if cell.digest]
    digests.sort(key=lambda cell: cell.contestant != NESTMAP.key)
    for cell in own:
        name = f"{case.name}, {cell.contestant}, {cell.task}"
        if cell.refusal.startswith("failed"):
            found.append(f"{name}: {cell.refusal}")
        if cell.wrong:
            found.append(f"{name}: {cell.wrong} samples break a constraint")
        if cell.task == Task.SAMPLE or cell.count is None:
            continue
        if case.expected is not None and cell.count != case.expected:
            found.append(f"{name}: {cell.count} solutions, not {case.expected}")
        if cell.distinct is not None and cell.distinct != cell.count:
            found.append(f"{name}: {cell.count - cell.distinct} solutions more than once")
        if cell.digest and cell.digest != digests[0].digest:
            found.append(f"{name}: another set of solutions")
    return found


def markdown(cases: Sequence[Case], chosen: Sequence[Contestant], cells: Cells, clock: str) -> str:
    """One table a task: milliseconds (medians), and how many times longer others take.

    "From the same start" is the smallest ratio of another one's time and of nestmap's from what
    that one has in memory at the beginning.
    """
    parts: list[str] = []
    for task in Task:
        shown = [case for case in cases if task is not Task.CONSTRUCT or case.enumerable]
        if shown:
            parts += [f"### {_HEADINGS[task]}", "", *_table(task, shown, chosen, cells, clock), ""]
    return "\n".join(parts)


def _table(
    task: Task,
    cases: Sequence[Case],
    chosen: Sequence[Contestant],
    cells: Cells,
    clock: str,
) -> list[str]:
    others = [contestant for contestant in chosen if contestant not in OWN.values()]
    ratios: tuple[list[float], ...] = ([], [], [])
    titles = ["space", "combinations", "solutions", *(contestant.title for contestant in chosen)]
    titles += [
        "fastest other / nestmap from the same start",
        "fastest other / nestmap from JSON",
        "Kernel Tuner / nestmap from JSON",
    ]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    for case in cases:
        figures = {c.key: _seconds(cells, case, c, task, clock) for c in chosen}
        row = [case.name, _number(case.combinations), _solutions(case, cells)]
        row += [_figure(cells, case, contestant, task, clock) for contestant in chosen]
        kernel_tuner = [contestant for contestant in others if contestant.key == _KERNEL_TUNER]
        found = (
            min((_ratios(figures, others, same_start=True)), default=None),
            min((_ratios(figures, others, same_start=False)), default=None),
            min((_ratios(figures, kernel_tuner, same_start=False)), default=None),
        )
        for values, ratio in zip(ratios, found, strict=True):
            row.append("" if ratio is None else f"{ratio:.3g}")
            values += [] if ratio is None else [ratio]
        lines.append(f"| {' | '.join(row)} |")
    means = [geometric_mean(values) for values in ratios]
    last = ["geometric mean", *[""] * (len(titles) - 4)]
    last += ["" if mean is None else f"**{mean:.3g}**" for mean in means]
    return [*lines, f"| {' | '.join(last)} |"]


def _ratios(
    figures: Mapping[str, float | None], others: Sequence[Contestant], *, same_start: bool
) -> Iterable[float]:
    """How many times longer than nestmap each takes that has a figure."""
    for contestant in others:
        own = figures.get(OWN[contestant.start].key if same_start else NESTMAP.key)
        other = figures[contestant.key]
        if own and other:
            yield other / own


def _seconds(
    cells: Cells, case: Case, contestant: Contestant, task: Task, clock: str
) -> float | None:
    cell = cell_for(cells, case, contestant, task)
    return None if cell is None or cell.refusal else cell.typical(clock)


def _figure(cells: Cells, case: Case, contestant: Contestant, task: Task, clock: str) -> str:
    cell = cell_for(cells, case, contestant, task)
    if cell is None:
        return ""
    if cell.refusal:
        return "failed" if cell.refusal.startswith("failed") else cell.refusal
    seconds = cell.typical(clock)
    if seconds is None:
        return ""
    return _milliseconds(seconds)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _number(value: int) -> str:
    return f"{value:,}" if value < 10**7 else f"{value:.1e}"


def _solutions(case: Case, cells: Cells) -> str:
    counts: Iterable[int] = (
        cell.count
        for cell in cells.values()
        if cell.space == case.name and cell.task != Task.SAMPLE and cell.count is not None
    )
    found = case.expected if case.expected is not None else next(iter(counts), None)
    return "" if found is None else f"{found:,}"


def parse_contestants(names: Sequence[str]) -> list[Contestant]:
    """The contestants of these keys, nestmap from each start first. KeyError for another."""
    keys = list(dict.fromkeys([*(own.key for own in OWN.values()), *names]))
    return [BY_KEY[key] for key in keys]
