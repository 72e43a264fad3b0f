"""Evolution in which every child is valid: most decisions are inherited, the solver makes the rest.

A child takes each value from one of two parents, forgets a few, and is completed within the
constraints. Where what it took cannot be together, it takes less from one of them and forgets
more.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from mapper.pareto.front import on_front
from mapper.search.candidates import Candidates
from mapper.search.goal import Fastest, Front, Goal, admitted
from mapper.search.random_search import Unseen
from mapper.search.strategy import Choice, Outcome

POPULATION = 20
_TOURNAMENT = 3
#: What a child has of its father, attempt by attempt: where decisions depend on one another
#: much, halves of two candidates rarely fit.
_FATHERS_SHARE = (0.5, 0.2, 0.05)
#: Children that were tried before, until a random candidate is taken instead.
_ATTEMPTS = 4
_FASTEST = Fastest()


def child_of(
    candidates: Candidates, mother: Choice, father: Choice, random: Random
) -> Choice | None:
    """A valid candidate between two (or near one, if both are the same); None if none was found."""
    free = [place for place, (_, domain) in enumerate(candidates.variables) if len(domain) > 1]
    for attempt, share in enumerate(_FATHERS_SHARE):
        taken = {
            place: other if random.random() < share else value
            for place, (value, other) in enumerate(zip(mother, father, strict=True))
        }
        # One or two decisions, twice as many with each failure.
        number = min(len(free), random.randint(1, 2) << attempt)
        forgotten = set(random.sample(free, number))
        kept = {place: value for place, value in taken.items() if place not in forgotten}
        found = candidates.completed(kept, random.getrandbits(31))
        if found is not None and found not in (mother, father):
            return found
    return None


def mutated(
    candidates: Candidates, parents: Sequence[Choice], count: int, seed: int
) -> list[Choice]:
    """Up to ``count`` different children near or between some parents."""
    random = Random(seed)
    found: dict[Choice, None] = {}
    for _ in range(count if parents else 0):
        mother = random.choice(parents)
        father = random.choice(parents) if random.random() < 0.3 else mother
        child = child_of(candidates, mother, father, random)
        if child is not None:
            found[child] = None
    return list(found)


class Evolution:
    """A steady-state genetic search: parents by tournament, children completed by the solver.

    For a front, rank is by dominance: points that nothing beats come first.
    """

    def __init__(
        self,
        candidates: Candidates,
        seed: int,
        *,
        goal: Goal = _FASTEST,
        population: int = POPULATION,
    ) -> None:
        self._candidates = candidates
        self._random = Random(seed)
        self._unseen = Unseen(candidates, seed)
        self._goal = goal
        self._size = population
        self._told: dict[Choice, Outcome] = {}

    def tell(self, told: Sequence[tuple[Choice, Outcome]]) -> None:
        """See :class:`~mapper.search.strategy.Strategy`."""
        for choice, outcome in told:
            self._told[choice] = outcome
            self._unseen.seen.add(choice)

    def ask(self, count: int) -> list[Choice]:
        """See :class:`~mapper.search.strategy.Strategy`."""
        found: list[Choice] = []
        ranked = self._ranked()[: self._size]
        for _ in range(count):
            child = self._child(ranked) if len(self._told) >= self._size else None
            if child is None:
                fresh = self._unseen.take(1)
                if not fresh:
                    break
                child = fresh[0]
            self._unseen.seen.add(child)
            found.append(child)
        return found

    def _child(self, ranked: Sequence[Choice]) -> Choice | None:
        if not ranked:
            return None
        for _ in range(_ATTEMPTS):
            mother, father = (
                ranked[min(self._random.randrange(len(ranked)) for _ in range(_TOURNAMENT))]
                for _ in range(2)
            )
            child = child_of(self._candidates, mother, father, self._random)
            if child is not None and child not in self._unseen.seen:
                return child
        return None

    def _ranked(self) -> list[Choice]:
        timed: list[tuple[Choice, float, int]] = [
            (c, o.time_ms, o.memory_bytes) for c, o in self._told.items() if o.time_ms
        ]
        fits = admitted(self._goal, np.array([memory for _, _, memory in timed], np.int64))
        timed = [entry for entry, fit in zip(timed, fits, strict=True) if fit]
        timed.sort(key=lambda entry: (entry[1], entry[2], entry[0]))
        if not isinstance(self._goal, Front):
            return [choice for choice, _, _ in timed]
        ranked: list[Choice] = []
        while timed and len(ranked) < self._size:
            on = on_front(np.array([entry[1:] for entry in timed], np.float64)).tolist()
            ranked += [entry[0] for entry, best in zip(timed, on, strict=True) if best]
            timed = [entry for entry, best in zip(timed, on, strict=True) if not best]
        return ranked
