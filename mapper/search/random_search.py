"""The baseline: candidates uniformly at random, none twice."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.search.candidates import Candidates
from mapper.search.strategy import Choice, Outcome

#: Draws in a row that give nothing new after which a space is taken as exhausted.
_BARREN = 4


class Unseen:
    """Random candidates that were neither asked for nor told of before."""

    def __init__(self, candidates: Candidates, seed: int) -> None:
        self._candidates = candidates
        self._seed = seed
        self._draws = 0
        self._waiting: list[Choice] = []
        self.seen: set[Choice] = set()
        listed = candidates.listed
        if listed is not None:
            self._waiting = candidates.draw(len(listed), seed)[::-1]

    def take(self, count: int) -> list[Choice]:
        """Up to ``count`` of them; they count as seen from now on."""
        found: list[Choice] = []
        barren = 0
        while len(found) < count:
            while self._waiting and len(found) < count:
                choice = self._waiting.pop()
                if choice not in self.seen:
                    self.seen.add(choice)
                    found.append(choice)
            if len(found) == count or self._candidates.listed is not None or barren == _BARREN:
                break
            self._draws += 1
            drawn = self._candidates.draw(max(count, 16), self._seed + 7919 * self._draws)
            self._waiting = [choice for choice in drawn if choice not in self.seen][::-1]
            barren = 0 if self._waiting else barren + 1
        return found


class RandomSearch:
    """Uniform random candidates; learns nothing."""

    def __init__(self, candidates: Candidates, seed: int) -> None:
        self._unseen = Unseen(candidates, seed)

    def ask(self, count: int) -> list[Choice]:
        """See :class:`~mapper.search.strategy.Strategy`."""
        return self._unseen.take(count)

    def tell(self, told: Sequence[tuple[Choice, Outcome]]) -> None:
        """See :class:`~mapper.search.strategy.Strategy`."""
        self._unseen.seen.update(choice for choice, _ in told)
