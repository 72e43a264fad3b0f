"""Two to four candidates beside each other: what differs, and what the trials bear out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.candidates import Candidate
from api.dashboard.views.candidates import CandidateView
from api.dashboard.views.nest_trees import TreeNode
from api.dashboard.views.schedules import Schedule
from api.dashboard.views.sources import SourceDiff, source_diff
from api.dashboard.views.times import TimeRows, time_rows, verdict
from api.dashboard.views.trials import distribution


@dataclass(frozen=True, slots=True)
class Cell:
    """A map in one of the candidates; None of the fields are known where it has no such map."""

    schedule: Schedule | None
    iterations: int | None
    is_there: bool


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A map or reduce in every candidate, indented by its depth."""

    kernel: str
    name: str
    depth: int
    is_reduce: bool
    cells: tuple[Cell, ...]

    @property
    def schedules_differ(self) -> bool:
        """Whether it is scheduled differently, or is not in all of them."""
        shown = {(cell.is_there, cell.schedule.code if cell.schedule else None)
                 for cell in self.cells}  # fmt: skip
        return len(shown) > 1

    @property
    def differs(self) -> bool:
        """Whether schedule or trip count differ."""
        return self.schedules_differ or len({cell.iterations for cell in self.cells}) > 1


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A parameter or local size in every candidate; None where it has none of this name."""

    name: str
    kind: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        """Whether not all have the same."""
        return any(value != self.values[0] for value in self.values)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the page shows; ``verdicts`` are of each candidate against the first."""

    times: TimeRows
    verdicts: tuple[str, ...]
    tree: tuple[TreeRow, ...]
    values: tuple[ValueRow, ...]
    sources: tuple[SourceDiff | None, ...]

    @property
    def differing_maps(self) -> int:
        """Maps whose schedule is not the same in all."""
        return sum(row.schedules_differ for row in self.tree)


def comparison(
    candidates: Sequence[Candidate], views: Sequence[CandidateView], sources: Sequence[str | None]
) -> Comparison:
    """The comparison of at least one candidate; all lists are in one order."""
    found = [
        distribution(candidate.timed.times_ns)
        if candidate.timed and candidate.timed.times_ns
        else None
        for candidate in candidates
    ]
    first = found[0]
    return Comparison(
        time_rows(found),
        tuple("" if one is None or first is None else verdict(first, one) for one in found),
        tree_rows(views),
        value_rows(candidates),
        tuple(
            None if text is None or sources[0] is None else source_diff(sources[0], text)
            for text in sources
        ),
    )


def tree_rows(views: Sequence[CandidateView]) -> tuple[TreeRow, ...]:
    """Every map of every candidate once, in the order of the first that has it.

    Maps are the same where kernel, name and the names around them are.
    """
    nodes: list[dict[tuple[str, ...], TreeNode]] = []
    # By kernel, so that one which only some have stands by itself.
    order: dict[str, list[tuple[str, ...]]] = {}
    for view in views:
        own: dict[tuple[str, ...], TreeNode] = {}
        for tree in view.trees:
            path: list[str] = []
            found: list[tuple[str, ...]] = []
            for depth, node in tree.nodes():
                del path[depth:]
                path.append(("reduce " if node.is_reduce else "") + node.name)
                own[(tree.name, *path)] = node
                found.append((tree.name, *path))
            _merge(order.setdefault(tree.name, []), found)
        nodes.append(own)
    return tuple(
        TreeRow(
            place[0],
            place[-1].removeprefix("reduce "),
            len(place) - 2,
            place[-1].startswith("reduce "),
            tuple(_cell(own.get(place)) for own in nodes),
        )
        for places in order.values()
        for place in places
    )


def _merge(order: list[tuple[str, ...]], more: list[tuple[str, ...]]) -> None:
    """Put what is missing behind its neighbour."""
    known = set(order)
    at = 0
    for place in more:
        if place in known:
            at = order.index(place) + 1
        else:
            order.insert(at, place)
            at += 1


def _cell(node: TreeNode | None) -> Cell:
    return Cell(None, None, False) if node is None else Cell(node.schedule, node.iterations, True)


def value_rows(candidates: Sequence[Candidate]) -> tuple[ValueRow, ...]:
    """Parameters by name, then local sizes by kernel."""
    rows: list[ValueRow] = []
    for kind, of in (("parameter", _parameters), ("local size", _local_sizes)):
        values = [of(candidate) for candidate in candidates]
        names = sorted({name for one in values for name in one})
        rows += (ValueRow(name, kind, tuple(one.get(name) for one in values)) for name in names)
    return tuple(rows)


def _parameters(candidate: Candidate) -> dict[str, Any]:
    return dict(candidate.record.parameters)


def _local_sizes(candidate: Candidate) -> dict[str, Any]:
    sizes = candidate.record.local_sizes
    if not isinstance(sizes, Mapping):
        return {}
    return {str(name): " × ".join(map(str, value)) for name, value in sizes.items()}
