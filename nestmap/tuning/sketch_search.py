"""The search of a program under one sketch: mappings and sizes that the solver draws.

Everything that is tried is a solution of the sketch's space under what suits the device. What is
expected to be fast comes first, by a cost (:mod:`nestmap.tuning.sketch_costs`);
what was fast is changed in a few places, and the solver draws what must follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import exp, inf, log
from random import Random
from statistics import median

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, UnsatisfiableError
from mapper.measurement import Outcome, Timed
from mapper.search.goal import Goal
from mapper.solver.factored.suited import Point, SuitedSpace
from mapper.solver.limits import DEFAULT_LIMITS, Watch
from mapper.solver.sampling import checked
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import MOST_TOO_LARGE, Candidate, fits
from nestmap.tuning.sketch_costs import cost_on
from nestmap.tuning.sources import Refused, Source

#: Of the random solutions that the first candidates are chosen from, the share that each batch
#: adds; of these and changed ones no more are kept.
_ADDED = 8
_KEPT = 256
#: How often it is drawn again where all was known, before a space is taken to be exhausted.
_BARREN_DRAWS = 4
#: The fastest, changed in at most so many variables; all changed ones are as many as new ones.
_FASTEST = 4
_MOST_FREED = 3
#: Candidates that are chosen at once, the last by chance of the cheapest quarter.
_BATCH = 4
_CHANCES = 4
#: Seconds that a sketch may take to be solved, or solutions to be drawn once: those of many kernels
#: are left out where they would take the time of all others.
_SOLVING_S = 3.0
#: A clock that ticks coarsely may tell of no time at all.
_LEAST_MS = 1e-6


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A solution, and the time that it is expected to take, in ms."""

    point: Point
    key: tuple[int, ...]
    cost_ms: float
    expected_ms: float


class SketchSearch:
    """A :class:`~nestmap.tuning.guided.Search` of one sketch of a program."""

    def __init__(
        self,
        source: Source,
        device: DeviceProfile,
        seed: int,
        goal: Goal,
        refused: Refused,
        watch: Callable[[], Watch] = Watch,
    ) -> None:
        self.index = source.index
        self.exhausted = False
        self._source = source
        self._goal = goal
        self._refused = refused
        self._watch = watch
        self._random = Random(derived_seed(seed, source.program_hash, len(source.history)))
        self._cost = cost_on(source, device)
        self._space: SuitedSpace | None = None
        limits = replace(DEFAULT_LIMITS, time_s=_SOLVING_S)
        self._limits = Watch(limits, cancelled=self._is_cancelled)
        self._pool: list[_Drawn] = []
        self._waiting: list[_Drawn] = []
        self._names = tuple[Variable, ...]()
        self._given: dict[str, _Drawn] = {}
        self._timed: list[tuple[float, _Drawn]] = []
        self._keys: set[tuple[int, ...]] = set()

    @property
    def expected_ms(self) -> float:
        """What the fastest that was drawn is expected to take, before any was timed; infinite where
        there is none."""
        try:
            self._fill()
        except (UnsatisfiableError, LimitError) as error:
            self._refused(self._source, error)
        return min((drawn.expected_ms for drawn in self._pool), default=inf)

    def next(self) -> Candidate | None:
        """The next candidate; None where there are no more, which :attr:`exhausted` says too."""
        too_large = 0
        while too_large < MOST_TOO_LARGE:
            self._watch().look()
            try:
                if not self._waiting:
                    self._waiting = self._batch()
            except (UnsatisfiableError, LimitError) as error:
                self._refused(self._source, error)
            if not self._waiting:
                break
            candidate = self._candidate(self._waiting.pop(0))
            if self._admits(candidate):
                return candidate
            too_large += 1
        self.exhausted = True
        return None

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn what became of a candidate."""
        drawn = self._given.get(candidate.id)
        if drawn is not None and isinstance(outcome, Timed):
            self._timed.append((max(outcome.time_ms, _LEAST_MS), drawn))
            self._timed.sort(key=lambda timed: (timed[0], timed[1].key))
            self.exhausted = False

    def _candidate(self, drawn: _Drawn) -> Candidate:
        """A solution as a candidate, after plain Python agreed that it is one."""
        source = self._source
        assignment = checked(source.space, dict(drawn.point.assignment))
        candidate = Candidate(self.index, source.subject, source.program_hash, assignment)
        self._given[candidate.id] = drawn
        return candidate

    def _admits(self, candidate: Candidate) -> bool:
        try:
            return fits(candidate, self._goal)
        except InputError as error:
            self._refused(self._source, error)
            return False

    def _batch(self) -> list[_Drawn]:
        """What is expected to be fastest of what is known, and one by chance."""
        self._fill()
        self._pool.sort(key=lambda drawn: (drawn.expected_ms, drawn.key))
        del self._pool[_KEPT:]
        found: list[_Drawn] = []
        while self._pool and len(found) < (_BATCH if self._given else 1):
            by_chance = len(found) == _BATCH - 1
            most = max(1, len(self._pool) // _CHANCES)
            found.append(self._pool.pop(self._random.randrange(most) if by_chance else 0))
        return found

    def _fill(self) -> None:
        """Draw some more, if there are more; UnsatisfiableError, LimitError."""
        if self._pool and not self._given:
            return
        self._limits.started = time.monotonic()
        space = self._solutions()
        for _ in range(_BARREN_DRAWS):
            self._draw(space, self._cost.draws // (_ADDED if self._given else 1))
            self._change(space)
            if self._pool:
                break

    def _is_cancelled(self) -> bool:
        cancelled = self._watch().cancelled
        return cancelled is not None and cancelled()

    def _solutions(self) -> SuitedSpace:
        if self._space is None:
            source = self._source
            self._space = SuitedSpace(source.space, self._limits)
            self._names = tuple(name for name, _ in source.space.variables)
            self._keys |= {self._key(assignment) for assignment, _, _ in source.history}
            if not self._space.count_joint():
                raise UnsatisfiableError("no mapping of the sketch suits the device")
        return self._space

    def _draw(self, space: SuitedSpace, count: int) -> None:
        """Random solutions, each equally likely."""
        logs = [log(time_ms / drawn.cost_ms) for time_ms, drawn in self._timed]
        factor = exp(median(logs)) if logs else 1.0
        for _ in range(count):
            self._add(space.draw_point(self._random), factor)

    def _change(self, space: SuitedSpace) -> None:
        """Solutions that differ in little from the fastest ones; they are expected to be as much
        faster than they cost as these were."""
        for time_ms, drawn in self._timed[:_FASTEST]:
            factor = time_ms / drawn.cost_ms
            for _ in range(max(1, self._cost.draws // _ADDED // _FASTEST)):
                number = self._random.randint(1, min(_MOST_FREED, len(space.steps)))
                freed = self._random.sample(space.steps, number)
                self._add(space.near(drawn.point, freed, self._random), factor)

    def _add(self, point: Point | None, factor: float) -> None:
        if point is None or (key := self._key(point.assignment)) in self._keys:
            return
        self._keys.add(key)
        cost_ms = self._cost.ms(point.assignment)
        self._pool.append(_Drawn(point, key, cost_ms, factor * cost_ms))

    def _key(self, assignment: Mapping[Variable, int]) -> tuple[int, ...]:
        return tuple(assignment[name] for name in self._names)
