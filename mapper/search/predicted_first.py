"""Candidates by a prediction made without measuring: best predicted first, ties at random.

What an analytic model is good for before anything was measured. It learns nothing from outcomes.
For a front, what no other is predicted to beat in time and memory comes before the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from mapper.errors import InputError, Problem
from mapper.pareto.front import on_front
from mapper.search.candidates import Candidates
from mapper.search.goal import Fastest, Front, Goal, admitted
from mapper.search.pool import Describe, Pool
from mapper.search.strategy import Choice, Outcome
from mapper.solver.space import Space

Floats = NDArray[np.float64]
_FASTEST = Fastest()
#: So many of the best predicted have children, where the space is too large to be listed.
_PARENTS = 8


class PredictedFirst:
    """The strategy. ``describe`` must guess (InputError where it does not); ``first`` are
    candidates to try before any others; ``pool`` and ``growth`` as of the model-guided search.
    ``start`` is asked once, where the space is too large to be listed, for candidates that are
    worth a look beside random ones."""

    def __init__(
        self,
        candidates: Candidates,
        seed: int,
        *,
        describe: Describe,
        space: Space | None = None,
        goal: Goal = _FASTEST,
        first: Sequence[Choice] = (),
        start: Callable[[], Sequence[Choice]] | None = None,
        pool: int = 512,
        growth: int = 32,
    ) -> None:
        self._pool = Pool(
            candidates, seed, space=space, describe=describe, size=pool, growth=growth
        )
        self._random = Random(seed)
        self._goal = goal
        self._first = list(dict.fromkeys(first))
        self._start = None if candidates.listed is not None else start
        self._asked: list[Choice] = []
        self._seen: set[Choice] = set()

    def tell(self, told: Sequence[tuple[Choice, Outcome]]) -> None:
        """See :class:`~mapper.search.strategy.Strategy`; only that they are known is kept."""
        self._seen.update(choice for choice, _ in told)

    def ask(self, count: int) -> list[Choice]:
        """See :class:`~mapper.search.strategy.Strategy`."""
        found = [choice for choice in self._first if choice not in self._seen][:count]
        self._seen.update(found)
        if len(found) < count:
            self._pool.grow(self._asked[-_PARENTS:])
            if self._start is not None:
                start, self._start = self._start, None
                self._pool.add(start())
        entries, left = self._pool.open(self._seen)
        places = np.flatnonzero(left & admitted(self._goal, entries.memory))
        if not len(places) or len(found) == count:
            return found
        if entries.guess is None:
            raise InputError(Problem("describe", "predicts nothing", "", "a guess of the time"))
        for place in self._ordered(entries.guess[places], entries.memory[places]):
            if len(found) == count:
                break
            found.append(entries.choice(int(places[place])))
            self._asked.append(found[-1])
            self._seen.add(found[-1])
        return found

    def _ordered(self, guess: Floats, memory: NDArray[np.int64]) -> list[int]:
        """Places by rank, ties at random."""
        behind = np.zeros(len(guess))
        if isinstance(self._goal, Front):
            behind += ~on_front(np.stack([guess, memory.astype(np.float64)], axis=1))
        chance = np.array([self._random.random() for _ in range(len(guess))])
        return np.lexsort(np.stack([chance, guess, behind])).tolist()
