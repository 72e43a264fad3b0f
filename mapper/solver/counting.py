"""How many solutions a space has: exact, and without going through them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mapper.constraint_rules.predicate import Assignment, Variable
from mapper.errors import LimitError
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.restrictions import Restrictions, narrowed
from mapper.solver.solutions import Solutions, solutions_of
from mapper.solver.space import NO_PINS, Space


@dataclass(frozen=True, slots=True)
class Count:
    """A number of mappings; a lower bound if not complete."""

    mappings: int
    complete: bool


def count_mappings(
    space: Space,
    pins: Assignment = NO_PINS,
    *,
    time_limit_s: float | None = None,
    watch: Watch | None = None,
) -> Count:
    """The number of choices of codes that agree with the pins and can be completed.

    In a space without codes, of assignments. LimitError where memory does not suffice; Cancelled
    where ``watch`` says so. Past the time limit what was counted so far is a lower bound.
    """
    watch = watch or _watch(time_limit_s)
    found: Solutions | None = None
    try:
        found = solutions_of(narrowed(space, Restrictions(pins=pins)), watch)
        return Count(found.count_mappings(), True)
    except LimitError:
        if watch.left_s != 0:
            raise
        return Count(found.counted if found else 0, False)


def count_assignments(
    space: Space,
    pins: Assignment = NO_PINS,
    *,
    time_limit_s: float | None = None,
    watch: Watch | None = None,
) -> int:
    """The number of assignments of codes, parameters and sizes together that agree with the pins.

    LimitError past the limits, Cancelled where ``watch`` says so.
    """
    watch = watch or _watch(time_limit_s)
    return solutions_of(narrowed(space, Restrictions(pins=pins)), watch).count_joint()


class Mappings(Iterable[Mapping[Variable, int]]):
    """Every choice of codes for which parameters and local sizes exist, each once.

    Iterate it once; ``complete`` then says whether all were given. Where a caller stops early
    or the time limit comes it stays False. LimitError where memory does not suffice, Cancelled
    where ``watch`` says so.
    """

    def __init__(
        self,
        space: Space,
        pins: Assignment = NO_PINS,
        *,
        time_limit_s: float | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.complete = False
        self._space = narrowed(space, Restrictions(pins=pins))
        self._watch = watch or _watch(time_limit_s)

    def __iter__(self) -> Iterator[Mapping[Variable, int]]:
        try:
            for mapping in solutions_of(self._space, self._watch).mappings():
                yield mapping
                self._watch.tick()
        except LimitError:
            if self._watch.left_s != 0:
                raise
            return
        self.complete = True


def _watch(time_limit_s: float | None) -> Watch:
    return Watch(SolveLimits(time_s=time_limit_s))
