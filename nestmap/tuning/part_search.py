"""The search of some kernels of a program that are decided by themselves.

Everything that is tried is a solution of the kernels' space under what suits the device. What is
expected to be fast comes first, by a cost (:mod:`mapper.cost.loop_cost`);
what was fast is changed in a few places, with what must follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, inf, log
from statistics import median
from time import thread_time

from mapper.constraint_rules.predicate import Variable
from mapper.cost.loop_cost import LoopCost
from mapper.errors import UnsatisfiableError
from mapper.solver.factored.neighbours import Neighbours
from mapper.solver.limits import DEFAULT_LIMITS, Watch
from mapper.solver.space import Space
from nestmap.tuning.drawing import Drawing, Drawn, Key, Opened, solved
from nestmap.tuning.progress_share import progress_share

#: Random solutions that each batch adds, and changed ones; of all no more are kept.
_DRAWN = 16
_CHANGED = 32
_KEPT = 256
#: How often it is drawn again where all was known, before a space is taken to be exhausted.
_BARREN_DRAWS = 8
#: The fastest, which are changed.
_FASTEST = 4
#: Random solutions that a search begins with which draws them itself.
_LOOKED_AT = 64
#: Candidates that are chosen at once, the last by chance of the cheapest quarter.
_BATCH = 4
_CHANCES = 4
#: Seconds of processor time that a space may take to be solved, and solutions to be drawn once.
_SOLVING_S = 4.0
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


class PartSearch:
    """Solutions of one space, in the order in which they are worth a try.

    ``known`` are not drawn again, nor what differs in what is ``idle`` alone; ``solve`` solves the
    space where that is not done here. What draws raises UnsatisfiableError where there is no
    solution, LimitError where it takes too long, and Cancelled as ``watch`` says.
    """

    def __init__(
        self,
        space: Space,
        cost: LoopCost,
        seed: int,
        known: Iterable[Mapping[Variable, int]] = (),
        watch: Callable[[], Watch] = Watch,
        solve: Callable[[Watch], Opened] | None = None,
        idle: Collection[Variable] = (),
    ) -> None:
        self._solve = solve or partial(solved, space)
        self._solved: Opened | None = None
        self._cost = cost
        self._drawing = Drawing(space, cost, seed, idle)
        self._watch = watch
        limits = replace(DEFAULT_LIMITS, time_s=_SOLVING_S)
        # One seed gives one order, however busy the machine is.
        self._limits = Watch(limits, cancelled=self._is_cancelled, clock=thread_time)
        self._drawing.keys.update(map(self._drawing.key, known))
        self._waiting: list[Drawn] = []
        self._timed: dict[Key, _Timed] = {}
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
        self._begin()
        return min((drawn.cost_ms for drawn in self._drawing.pool), default=inf)

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
            cost_ms = self._cost.ms(assignment)
            self._waiting.append(Drawn(assignment, key, cost_ms, cost_ms))

    def unused(self, drawn: Drawn) -> None:
        """What was given is not tried after all."""
        self.tried -= 1
        self._waiting.insert(0, drawn)

    def _batch(self) -> list[Drawn]:
        """What is expected to be fastest of what is known, and one by chance."""
        self._fill()
        pool = self._drawing.pool
        pool.sort(key=lambda drawn: (drawn.expected_ms, drawn.key))
        # What is dropped may be drawn again.
        self._drawing.keys -= {drawn.key for drawn in pool[_KEPT:]}
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
        found = self._begin()
        if drawing.pool and self.latest is None:
            return
        self._limits.started = thread_time()
        for _ in range(_BARREN_DRAWS):
            drawing.draw(found.space, _DRAWN, self.calibration or 1.0)
            self._change(found.neighbours)
            if drawing.pool:
                return

    def _is_cancelled(self) -> bool:
        cancelled = self._watch().cancelled
        return cancelled is not None and cancelled()

    def _begin(self) -> Opened:
        """The space, solved, and solutions to begin with."""
        if self._solved is None:
            self._limits.started = thread_time()
            self._solved = found = self._solve(self._limits)
            if found.space.count_joint():
                self._drawing.take(found.drawn)
                if not found.drawn:
                    self._drawing.open(found, _LOOKED_AT)
        if not self._solved.space.count_joint():
            raise UnsatisfiableError("no mapping of the sketch suits the device")
        return self._solved

    def _change(self, neighbours: Neighbours) -> None:
        """Solutions that differ in little from the fastest ones; they are expected to be as much
        faster than they cost as these were."""
        for timed in sorted(self._timed.values(), key=_order)[:_FASTEST]:
            factor = timed.time_ms / timed.drawn.cost_ms
            count = _CHANGED // _FASTEST
            self._drawing.change(neighbours, timed.drawn.assignment, count, factor)


def _order(timed: _Timed) -> tuple[float, Key]:
    return timed.time_ms, timed.drawn.key
