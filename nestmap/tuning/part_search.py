"""The search of some kernels of a program that are decided by themselves.

Everything that is tried is a solution of the kernels' space under what suits the device. What is
expected to be fast comes first, by a cost (:mod:`mapper.cost.loop_cost`);
what was fast is changed in a few places, and the solver draws what must follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from statistics import median
from time import thread_time
from typing import Protocol

from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.cost.loop_cost import LoopCost
from mapper.errors import LimitError, UnsatisfiableError
from mapper.solver.factored.suited import Point, SuitedSpace
from mapper.solver.limits import DEFAULT_LIMITS, Watch
from mapper.solver.space import Domain, Space
from nestmap.tuning.drawing import DRAWS, Drawing, Drawn, Key, cheapest_ms
from nestmap.tuning.progress_share import progress_share

#: The share of a search's first random solutions that each batch adds; of these and changed ones no
#: more are kept.
_ADDED = 8
_KEPT = 256
#: How often it is drawn again where all was known, before a space is taken to be exhausted.
_BARREN_DRAWS = 4
#: The fastest, which are changed; all changed ones are as many as new ones.
_FASTEST = 4
#: Solutions of fewer sizes that say what a space is worth, before any is tried; so many are tried
#: before a space with all sizes is solved.
_LOOKED_AT = 64
_TRIED_OF_FEWER = 16
#: Candidates that are chosen at once, the last by chance of the cheapest quarter.
_BATCH = 4
_CHANCES = 4
#: Seconds of processor time that a space may take to be solved, with all sizes and with fewer, and
#: solutions to be drawn once.
_SOLVING_S = 4.0
#: A size keeps so many values, and one in each octave of them, where there are too many solutions.
_MOST_SIZES = 6
#: A clock that ticks coarsely may tell of no time at all.
_LEAST_MS = 1e-6
#: What failed beside others that may be to blame is expected to be that much slower.
_DOUBT = 1.2


@dataclass(slots=True)
class _Timed:
    """A solution that was right, with its times; often it is measured with others' changes."""

    drawn: Drawn
    times_ms: list[float] = field(default_factory=list[float])

    @property
    def time_ms(self) -> float:
        return median(self.times_ms)


class Solver(Protocol):
    """Solves a space under limits; LimitError beyond them, and Cancelled as they say."""

    def coarse(self, watch: Watch) -> SuitedSpace:
        """With fewer sizes."""
        ...

    def opening(self) -> Sequence[Drawn]:
        """What the search of the one with fewer sizes begins with, where that is known already."""
        ...

    def fine(self, watch: Watch, wait: bool) -> SuitedSpace | None:
        """With all sizes; None where that takes longer and nobody waits."""
        ...


class SolverHere:
    """Solves a space where it is asked for."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def coarse(self, watch: Watch) -> SuitedSpace:
        """See :class:`Solver`."""
        return SuitedSpace(with_fewer_sizes(self._space), watch)

    def opening(self) -> Sequence[Drawn]:
        """See :class:`Solver`."""
        return ()

    def fine(self, watch: Watch, wait: bool) -> SuitedSpace | None:
        """See :class:`Solver`."""
        return SuitedSpace(self._space, watch)


class PartSearch:
    """Solutions of one space, in the order in which they are worth a try.

    ``known`` are not drawn again. What draws raises UnsatisfiableError where there is no solution,
    LimitError where it takes too long, and Cancelled as ``watch`` says.
    """

    def __init__(
        self,
        space: Space,
        cost: LoopCost,
        seed: int,
        known: Iterable[Mapping[Variable, int]] = (),
        watch: Callable[[], Watch] = Watch,
        solver: Solver | None = None,
    ) -> None:
        self._solver = solver or SolverHere(space)
        self._solved: SuitedSpace | None = None
        self._is_coarse = True
        self._cost = cost
        self._drawing = Drawing(space, cost, seed)
        self._watch = watch
        limits = replace(DEFAULT_LIMITS, time_s=_SOLVING_S)
        # One seed gives one order, however busy the machine is.
        self._limits = Watch(limits, cancelled=self._is_cancelled, clock=thread_time)
        self._drawing.keys.update(map(self._drawing.key, known))
        self._waiting: list[Drawn] = []
        self._timed: dict[Key, _Timed] = {}
        self._former: set[Key] = set()
        self._doubted: set[Key] = set()
        self.tried = 0
        self.latest: Drawn | None = None
        """What was given last."""

    # What is known

    @property
    def best(self) -> Drawn | None:
        """The fastest that was timed."""
        return min(self._timed.values(), key=_order).drawn if self._timed else None

    @property
    def best_ms(self) -> float:
        """Its time; infinite where nothing was timed."""
        return min((timed.time_ms for timed in self._timed.values()), default=inf)

    @property
    def calibration(self) -> float | None:
        """How much longer it takes than its cost says, about."""
        logs = [log(timed.time_ms / timed.drawn.cost_ms) for timed in self._timed.values()]
        return exp(median(logs)) if logs else None

    @property
    def expected_ms(self) -> float:
        """What the fastest of some solutions is expected to take by its cost, before any was
        timed; infinite where there is none."""
        space = self._solutions()
        known = [drawn.cost_ms for drawn in self._solver.opening()]
        return min(known) if known else cheapest_ms(space, self._cost, _LOOKED_AT)

    def promised_ms(self, factor: float, of_all: int) -> float:
        """The time that it may be brought to in the end, with ``of_all`` candidates tried of the
        program; by its cost times a factor where nothing was timed so far."""
        share = progress_share(self.tried, of_all)
        if self._timed:
            return self.best_ms * share
        return factor * self.first_ms * (1 + self.tried) ** 0.5 * share

    def gain_ms(self, of_all: int) -> float:
        """By how much it may still become faster."""
        return self.best_ms * (1.0 - progress_share(self.tried, of_all))

    @property
    def first_ms(self) -> float:
        """The cost of the cheapest that is known."""
        if self.latest is None and not self._waiting:
            self._fill()
        known = [*self._drawing.pool, *self._waiting, *([self.latest] if self.latest else [])]
        return min((drawn.cost_ms for drawn in known), default=inf)

    # What comes next

    def next(self) -> Drawn | None:
        """The next solution to be tried; None where there are no more."""
        if not self._waiting:
            self._waiting = self._batch()
        if not self._waiting:
            return None
        self.latest = self._waiting.pop(0)
        self.tried += 1
        return self.latest

    def tell(self, drawn: Drawn, time_ms: float) -> None:
        """Learn what a solution took."""
        timed = self._timed.setdefault(drawn.key, _Timed(drawn))
        timed.times_ms.append(max(time_ms, _LEAST_MS))

    def doubt(self, drawn: Drawn) -> None:
        """A candidate failed in which others were as new: the solution has another chance, later,
        and only one."""
        if drawn.key not in self._doubted:
            self._doubted.add(drawn.key)
            self._drawing.pool.append(replace(drawn, expected_ms=_DOUBT * drawn.expected_ms))

    def begin_with(self, known: Iterable[Mapping[Variable, int]]) -> None:
        """Try these solutions first."""
        for assignment in known:
            key = self._drawing.key(assignment)
            if key in self._drawing.keys:
                continue
            self._drawing.keys.add(key)
            # Where it is in the space is asked for when it is changed.
            self._former.add(key)
            cost_ms = self._cost.ms(assignment)
            self._waiting.append(Drawn(Point(assignment, {}), key, cost_ms, cost_ms))

    def unused(self, drawn: Drawn) -> None:
        """What was given is not tried after all."""
        self.tried -= 1
        self._waiting.insert(0, drawn)

    def _batch(self) -> list[Drawn]:
        """What is expected to be fastest of what is known, and one by chance."""
        self._fill()
        pool = self._drawing.pool
        pool.sort(key=lambda drawn: (drawn.expected_ms, drawn.key))
        del pool[_KEPT:]
        found: list[Drawn] = []
        while pool and len(found) < (_BATCH if self.latest else 1):
            by_chance = len(found) == _BATCH - 1
            most = max(1, len(pool) // _CHANCES)
            found.append(pool.pop(self._drawing.random.randrange(most) if by_chance else 0))
        return found

    def _fill(self) -> None:
        """Draw some more, if there are more."""
        drawing = self._drawing
        if drawing.pool and self.latest is None:
            return
        while True:
            space, coarse = self._solutions(), self._is_coarse
            self._limits.started = thread_time()
            for _ in range(_BARREN_DRAWS):
                if self.latest is None:
                    drawing.take(self._solver.opening())
                    if not drawing.pool:
                        drawing.open(space)
                else:
                    drawing.draw(space, DRAWS // _ADDED, self.calibration or 1.0)
                self._change(space)
                if drawing.pool:
                    return
            if not coarse:
                return
            self._refine(wait=True)

    def _is_cancelled(self) -> bool:
        cancelled = self._watch().cancelled
        return cancelled is not None and cancelled()

    def _solutions(self) -> SuitedSpace:
        """The space with fewer sizes at first: one with all of them takes seconds to be solved,
        and few sketches are worth it."""
        if self._solved is None:
            self._limits.started = thread_time()
            self._solved = self._solver.coarse(self._limits)
        empty = not self._solved.count_joint()
        if self._is_coarse and (self.tried >= _TRIED_OF_FEWER or empty):
            self._refine(wait=empty)
        if not self._solved.count_joint():
            raise UnsatisfiableError("no mapping of the sketch suits the device")
        return self._solved

    def _refine(self, wait: bool) -> None:
        """Go on in the space with all sizes, if it is there; where it is too large, in the one
        with fewer."""
        self._limits.started = thread_time()
        try:
            space = self._solver.fine(self._limits, wait)
        except LimitError:
            self._is_coarse = False
            return
        if space is None:
            return
        self._is_coarse = False
        self._solved = space
        # What was drawn may be drawn again; what was given may still be told of.
        self._drawing.keys -= {drawn.key for drawn in self._drawing.pool}
        self._drawing.pool.clear()
        self._former = set(self._drawing.keys)

    def _change(self, space: SuitedSpace) -> None:
        """Solutions that differ in little from the fastest ones; they are expected to be as much
        faster than they cost as these were."""
        for timed in sorted(self._timed.values(), key=_order)[:_FASTEST]:
            point = self._point_in(space, timed)
            if point is None:
                continue
            factor = timed.time_ms / timed.drawn.cost_ms
            self._drawing.change(space, point, max(1, DRAWS // _ADDED // _FASTEST), factor)

    def _point_in(self, space: SuitedSpace, timed: _Timed) -> Point | None:
        """Where a solution is in the space, if it can be gone on from: it may have been given in
        the one with fewer sizes, whose classes of codes are others."""
        drawn = timed.drawn
        if drawn.key not in self._former:
            return drawn.point
        point = space.point_of(drawn.point.assignment)
        if point is not None:
            self._former.discard(drawn.key)
            timed.drawn = replace(drawn, point=point)
        return point


def with_fewer_sizes(space: Space) -> Space:
    """A space whose sizes have one value in each octave: what two divides most often, and the
    largest of all. What may be 0 (what a tile lacks, say) keeps all, since it goes with sizes."""
    return replace(
        space,
        variables=tuple(
            (variable, _fewer(domain))
            if isinstance(variable, ParameterVariable)
            and len(domain) > _MOST_SIZES
            and min(domain) > 0
            else (variable, domain)
            for variable, domain in space.variables
        ),
    )


def _fewer(domain: Domain) -> Domain:
    octaves: dict[int, int] = {}
    for value in sorted(domain, reverse=True):
        kept = octaves.setdefault(value.bit_length(), value)
        if value & -value > kept & -kept:
            octaves[value.bit_length()] = value
    return tuple(sorted({*octaves.values(), max(domain)}))


def _order(timed: _Timed) -> tuple[float, Key]:
    return timed.time_ms, timed.drawn.key
