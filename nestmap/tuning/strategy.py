"""Which candidate comes next. A strategy is asked for one and told how it went."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, UnsatisfiableError
from mapper.measurement import Outcome
from mapper.solver.limits import Watch
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import Candidate, Draw, candidate_of, draw_with_sampler
from nestmap.tuning.proxy import guessed_cost
from nestmap.tuning.sources import Refused, Source, ignore_refusals

BATCH = 12
#: One in this many of a batch is tried at once; the rest when nothing new can be drawn.
_TAKEN_OF_A_BATCH = 3
#: The share of a batch that comes in random order, so that the guess cannot hide anything.
RANDOM_SHARE = 0.25
#: Batches in a row without a new candidate after which a space is taken as exhausted.
_BARREN_BATCHES = 3


class Strategy(Protocol):
    """The search's choice of candidates; ``ask`` and ``tell`` take turns."""

    def ask(self) -> Candidate | None:
        """The next candidate, never the same one twice; None when there are no more."""
        ...

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """What became of a candidate, stored ones of an earlier run included."""
        ...


class MakeStrategy(Protocol):
    """Makes a strategy; without ``draw`` it draws itself, within the limits of ``watch``."""

    def __call__(
        self,
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int,
        draw: Draw | None,
        refused: Refused,
        *,
        watch: Callable[[], Watch],
    ) -> Strategy: ...


class RandomStrategy:
    """Draws batches of random candidates, the subjects in turns, and tries the likely good ones.

    The order depends on the seed, the subjects and the device alone, never on times, so an
    interrupted run goes on where it stopped.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int,
        draw: Draw,
        refused: Refused = ignore_refusals,
        batch: int = BATCH,
    ) -> None:
        self._queues = [_Queue(source, device, seed, draw, refused, batch) for source in sources]
        self._turn = 0

    def ask(self) -> Candidate | None:
        """The next candidate of the subject whose turn it is."""
        while self._queues:
            self._turn %= len(self._queues)
            candidate = self._queues[self._turn].next()
            if candidate is not None:
                self._turn += 1
                return candidate
            del self._queues[self._turn]
        return None

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Random search learns nothing."""
        del candidate, outcome


class _Queue:
    """The candidates of one subject in the order in which they are tried."""

    def __init__(
        self,
        source: Source,
        device: DeviceProfile,
        seed: int,
        draw: Draw,
        refused: Refused,
        batch: int,
    ) -> None:
        self._source = source
        self._device = device
        self._seed = seed
        self._draw = draw
        self._refused = refused
        self._batch = batch
        self._taken = max(1, batch // _TAKEN_OF_A_BATCH)
        # Drawing is slow, and so many batches are certainly done: they come last.
        self._known = list(source.known)
        self._skipped = max(0, len(source.history) - len(self._known)) // self._taken
        self._drawn = self._skipped
        self._barren = 0
        self._waiting: list[Candidate] = []
        # Assignments only: the kernels of thousands of them would fill the memory.
        self._backlog: list[Mapping[Variable, int]] = []
        self._seen: set[str] = set()

    def next(self) -> Candidate | None:
        while self._known:
            candidate = self._generated(self._known.pop(0))
            if candidate is not None and candidate.id not in self._seen:
                self._seen.add(candidate.id)
                return candidate
        while not self._waiting and self._barren < _BARREN_BATCHES:
            self._waiting = self._new_batch(self._drawn)
            self._drawn += 1
            self._barren = 0 if self._waiting else self._barren + 1
        while not self._waiting and self._skipped:
            self._skipped -= 1
            self._waiting = self._new_batch(self._skipped)
        if not self._waiting and self._backlog:
            return self._generated(self._backlog.pop(0))
        return self._waiting.pop(0) if self._waiting else None

    def _new_batch(self, number: int) -> list[Candidate]:
        source = self._source
        # By program, not by position: the order must not depend on what else is tuned.
        seed = derived_seed(self._seed, source.program_hash, number)
        # The first batch is small, so that something is measured soon on a slow machine.
        count = self._batch if number else self._taken
        try:
            assignments = self._draw(source.space, count, seed)
        except (UnsatisfiableError, LimitError) as error:
            self._refused(source, error)
            self._barren = _BARREN_BATCHES
            return []
        found: list[tuple[float, Candidate]] = []
        for assignment in assignments:
            candidate = self._generated(assignment)
            if candidate is not None and candidate.id not in self._seen:
                self._seen.add(candidate.id)
                program = source.subject.require_program()
                found.append((guessed_cost(program, candidate, self._device), candidate))
        ordered = _ordered(found, random.Random(seed))
        self._backlog += [candidate.assignment for candidate in ordered[self._taken :]]
        return ordered[: self._taken]

    def _generated(self, assignment: Mapping[Variable, int]) -> Candidate | None:
        source = self._source
        try:
            return candidate_of(source.index, source.subject, source.program_hash, assignment)
        except InputError as error:
            self._refused(source, error)
            return None


def _ordered(
    candidates: list[tuple[float, Candidate]], generator: random.Random
) -> list[Candidate]:
    """Cheapest guess first, but for each place with some probability any of the rest."""
    left = sorted(candidates, key=lambda pair: (pair[0], pair[1].id))
    ordered: list[Candidate] = []
    while left:
        lucky = generator.random() < RANDOM_SHARE
        ordered.append(left.pop(generator.randrange(len(left)) if lucky else 0)[1])
    return ordered


def random_strategy(batch: int = BATCH) -> MakeStrategy:
    """A maker of :class:`RandomStrategy`, which draws with the sampler unless told."""

    def make(
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int,
        draw: Draw | None,
        refused: Refused,
        *,
        watch: Callable[[], Watch],
    ) -> RandomStrategy:
        sampler = partial(draw_with_sampler, watch=watch)
        return RandomStrategy(sources, device, seed, draw or sampler, refused, batch)

    return make
