"""The candidates that a search chooses among, with all that is known of them without running.

A space that can be listed is all there at once. Otherwise the pool grows before each choice by
random draws and by children of the best, and what is oldest is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapper.search.candidates import Candidates, Choices
from mapper.search.evolution import mutated
from mapper.search.features import Features, Part
from mapper.search.strategy import Choice
from mapper.solver.space import Space

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of n candidates without running them.

    ``memory_bytes`` are exact; ``columns`` (n x k) are further features; ``guess`` is how slow
    each is likely to be (in any unit), None where nothing is guessed; where ``usable`` is False
    there is no such candidate after all.
    """

    memory_bytes: NDArray[np.int64]
    columns: Floats
    guess: Floats | None = None
    usable: NDArray[np.bool_] | None = None


#: Describes candidates given as rows of values.
Describe = Callable[[Choices], Described]


def nothing_known(rows: Choices) -> Described:
    """Of candidates that differ in time only, by nothing but their values."""
    return Described(np.zeros(len(rows), np.int64), np.zeros((len(rows), 0)))


@dataclass(frozen=True, slots=True)
class Entries:
    """Candidates as rows of values, of features (scaled), of bytes and of guesses."""

    rows: Choices
    columns: Floats
    memory: NDArray[np.int64]
    guess: Floats | None

    def taken(self, where: NDArray[np.bool_]) -> Entries:
        """Those where a condition holds."""
        guess = None if self.guess is None else self.guess[where]
        return Entries(self.rows[where], self.columns[where], self.memory[where], guess)

    def choice(self, place: int) -> Choice:
        """The candidate of a row."""
        return tuple(self.rows[place].tolist())


class Pool:
    """``size`` candidates at most; growing adds ``growth``, half of them children of the best."""

    def __init__(
        self,
        candidates: Candidates,
        seed: int,
        *,
        space: Space | None,
        describe: Describe,
        size: int,
        growth: int,
    ) -> None:
        self._candidates = candidates
        self._describe = describe
        self._features = Features(candidates.variables, space)
        self._seed = seed
        self._size, self._growth = size, growth
        self._grown = 0
        self._known: dict[Choice, int] = {}
        self._entries: Entries | None = None
        self._parts: dict[Part, tuple[Floats, Floats]] = {}
        listed = candidates.listed
        if listed is not None:
            self._add(listed)

    def grow(self, parents: Sequence[Choice]) -> None:
        """Add random candidates and children of ``parents``; nothing where all are listed."""
        if self._candidates.listed is not None:
            return
        self._grown += 1
        seed = self._seed * 1_000_003 + self._grown
        children = self._growth // 2 if parents else 0
        # The first growth is what features are scaled by.
        drawn = self._growth * (2 if self._grown == 1 else 1) - children
        found = dict.fromkeys(self._candidates.draw(drawn, seed))
        found |= dict.fromkeys(mutated(self._candidates, parents, children, seed))
        self.add(found)

    def add(self, choices: Iterable[Choice]) -> None:
        """Add these candidates, those that are there already left out."""
        fresh = [choice for choice in dict.fromkeys(choices) if choice not in self._known]
        if fresh:
            self._add(np.array(fresh, np.int64))

    def _add(self, rows: Choices) -> None:
        added = self._entries_of(rows)
        old = self._entries
        if old is not None:
            guess = None
            if old.guess is not None and added.guess is not None:
                guess = np.concatenate([old.guess, added.guess])
            added = Entries(
                np.vstack([old.rows, added.rows]),
                np.vstack([old.columns, added.columns]),
                np.concatenate([old.memory, added.memory]),
                guess,
            )
        if self._candidates.listed is None and len(added.rows) > self._size:
            kept = np.zeros(len(added.rows), np.bool_)
            kept[-self._size :] = True
            added = added.taken(kept)
        self._entries = added
        self._known = {tuple(row): place for place, row in enumerate(added.rows.tolist())}

    def _entries_of(self, rows: Choices) -> Entries:
        described = self._describe(rows)
        columns = self._features.of(rows, described.columns)
        entries = Entries(rows, columns, described.memory_bytes, described.guess)
        return entries if described.usable is None else entries.taken(described.usable)

    def describe(self, choices: Sequence[Choice]) -> Entries:
        """Entries of any candidates, in order; of those that do not exist, nothing."""
        entries = self._entries
        places = [self._known.get(choice, -1) for choice in choices]
        if entries is not None and -1 not in places:
            guess = None if entries.guess is None else entries.guess[places]
            return Entries(
                entries.rows[places], entries.columns[places], entries.memory[places], guess
            )
        return self._entries_of(np.array(choices, np.int64))

    def open(self, seen: set[Choice]) -> tuple[Entries, NDArray[np.bool_]]:
        """All candidates, and which of them are not in ``seen``."""
        entries = self._entries
        if entries is None:
            width = len(self._candidates.variables)
            entries = Entries(
                np.zeros((0, width), np.int64), np.zeros((0, 0)), np.zeros(0, np.int64), None
            )
        left = np.ones(len(entries.rows), np.bool_)
        left[[self._known[choice] for choice in seen if choice in self._known]] = False
        return entries, left

    @property
    def guessed(self) -> bool:
        """Whether there is a guess of the candidates."""
        return self._entries is not None and self._entries.guess is not None

    def places(self, part: Part) -> NDArray[np.intp]:
        """Which columns are of a part."""
        return self._features.places(part)

    def part(self, part: Part, columns: Floats) -> Floats:
        """These columns alone; the same array for the same, so that what a model worked out for it
        can be kept."""
        found = self._parts.get(part)
        if found is None or found[0] is not columns:
            found = self._parts[part] = columns, columns[:, self.places(part)]
        return found[1]
