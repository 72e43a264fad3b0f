"""What the best kernel of a run is compared with: what the run itself and its neighbours found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from db.farm.farm import Farm
from db.farm.fronts import StudiedPoint
from db.farm.measurements import Improvement
from db.farm.run_records import OwnedStudy, Run
from db.farm.selection import Selection


@dataclass(frozen=True, slots=True)
class Reference:
    """Another kernel for the same thing; ``ratio`` is its time over that of the run's best."""

    name: str
    note: str
    time_ms: float
    memory_bytes: int
    candidate_id: str
    ratio: float


@dataclass(frozen=True, slots=True)
class References:
    """The best kernel of a run with others beside it."""

    best: StudiedPoint
    others: tuple[Reference, ...]


def references(
    farm: Farm,
    run: Run,
    studies: Sequence[OwnedStudy],
    front: Sequence[StudiedPoint],
    first: Improvement | None,
) -> References | None:
    """The ``first`` valid candidate, the typical one, the smallest, and the best that was ever
    measured for these programs on any device. None before there is a best."""
    if not front:
        return None
    best, selection = front[0], Selection(run_id=run.id)
    found: list[Reference] = []

    def add(name: str, note: str, time_ms: float, size: int, candidate: str) -> None:
        ratio = time_ms / best.time_ms if best.time_ms else 0.0
        found.append(Reference(name, note, time_ms, size, candidate, ratio))

    if first is not None:
        add("First valid candidate", "measured before anything was known", first.time_ms,
            first.memory_bytes, first.candidate_id)  # fmt: skip
    typical = farm.overviews.middle(selection)
    if typical is not None:
        add("Median candidate", "half of all timed ones are slower", typical.time_ms,
            typical.memory_bytes, typical.candidate_id)  # fmt: skip
    smallest = front[-1]
    add("Smallest kernel", "of the front", smallest.time_ms, smallest.memory_bytes,
        smallest.candidate_id)  # fmt: skip
    programs = frozenset(study.program_hash for study in studies)
    if programs:
        ever = farm.fronts.fastest(Selection(programs=programs))
        if ever is not None and ever.measurement_id != best.measurement_id:
            add("Best of all runs", "of these programs, on any device of this store",
                ever.time_ms, ever.memory_bytes, ever.candidate_id)  # fmt: skip
    return References(best, tuple(found))
