"""Search guided by a model of the time that is learned as outcomes come.

After a random start, each candidate is the one whose time, were it as much better than the model
expects as it well may be, would add most to what has been found: the gain in hypervolume at the
lower confidence bound of the time (Ponweiser, Wagner, Biermann and Vincze, "Multiobjective
optimization on a limited budget of evaluations using model-assisted S-metric selection", PPSN
2008; with one objective, the lower confidence bound itself). The expected gain is there too.
Within a batch the model believes its own mean of what it has chosen already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.pareto.front import expected_gains, front_of, gains
from mapper.search.candidates import Candidates, Choices
from mapper.search.evolution import mutated
from mapper.search.features import Columns, Features
from mapper.search.gaussian_process import GaussianProcess, Priors
from mapper.search.goal import Fastest, Front, Goal, admitted, memory_scale
from mapper.search.random_search import Unseen
from mapper.search.strategy import Choice, Outcome
from mapper.search.trees import Forest
from mapper.solver.space import Space

Floats = NDArray[np.float64]
#: Bytes that candidates (rows) allocate: exact, without running them.
MemoryOf = Callable[[Choices], NDArray[np.int64]]

#: A Gaussian process cannot tell more features than this apart from few observations.
_MOST_FEATURES = 64
_PRIORS = Priors()
_FASTEST = Fastest()


class Rule(Enum):
    """What makes a candidate worth a measurement."""

    BOUND = "gain at the lower confidence bound"
    EXPECTED = "expected gain"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the search goes; chosen on synthetic spaces and on one GPU's recording (docs/search.md).

    ``start`` candidates are random. The deviations below the mean of the bounds are
    ``optimism``, one after the other. Times above the ``clipped`` quantile of those seen count
    as that quantile: what is slow need not be told from what is very slow. Where the space is
    not listed, ``pool`` candidates are drawn for each batch, a share ``near`` of them by
    changing the best. The constants of the model are fitted anew every ``refit`` outcomes.
    ``trees`` asks for a forest where a Gaussian process would do.
    """

    start: int = 16
    optimism: tuple[float, ...] = (1.0, 2.0)
    clipped: float = 0.75
    rule: Rule = Rule.BOUND
    pool: int = 256
    near: float = 0.5
    refit: int = 4
    steps: int = 15
    trees: bool = False
    priors: Priors = _PRIORS


class Model(Protocol):
    """What learns times."""

    def fit(self, points: Floats, values: Floats, noise: Floats, steps: int) -> None:
        """Take all observations."""
        ...

    def believe(self, point: Floats, value: float) -> None:
        """Take one that is only expected."""
        ...

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Means and deviations."""
        ...


class ModelGuided:
    """The strategy. ``first`` are candidates to try before any random ones, best first."""

    def __init__(
        self,
        candidates: Candidates,
        seed: int,
        *,
        space: Space | None = None,
        goal: Goal = _FASTEST,
        memory_of: MemoryOf | None = None,
        further: Columns | None = None,
        first: Sequence[Choice] = (),
        settings: Settings | None = None,
    ) -> None:
        self._candidates = candidates
        self._settings = settings or Settings()
        self._goal = goal
        self._memory_of = memory_of
        self._seed = seed
        self._unseen = Unseen(candidates, seed)
        self._features = Features(candidates.variables, space, further)
        self._first = list(dict.fromkeys(first))
        self._told: dict[Choice, Outcome] = {}
        self._model: Model | None = None
        self._fitted_at = -1
        self._asked = 0
        listed = candidates.listed
        self._rows_of_list: dict[Choice, int] = {}
        self._columns: Floats | None = None
        self._memory: NDArray[np.int64] | None = None
        if listed is not None:
            self._rows_of_list = {tuple(row): n for n, row in enumerate(listed.tolist())}
            self._columns = self._features.of(listed)
            self._memory = self._bytes_of(listed)

    def tell(self, told: Sequence[tuple[Choice, Outcome]]) -> None:
        """See :class:`~mapper.search.strategy.Strategy`."""
        for choice, outcome in told:
            self._told[choice] = outcome
            self._unseen.seen.add(choice)

    def ask(self, count: int) -> list[Choice]:
        """See :class:`~mapper.search.strategy.Strategy`."""
        found: list[Choice] = []
        while self._first and len(found) < count:
            choice = self._first.pop(0)
            if choice not in self._unseen.seen:
                self._unseen.seen.add(choice)
                found.append(choice)
        timed = sum(outcome.time_ms is not None for outcome in self._told.values())
        if len(found) < count and (len(self._told) < self._settings.start or timed < 2):
            missing = max(1, self._settings.start - len(self._told) - len(found))
            found += self._random(min(count - len(found), missing))
        if len(found) < count and timed >= 2:
            found += self._guided(count - len(found))
        if len(found) < count:
            found += self._random(count - len(found))
        self._asked += len(found)
        return found

    def _random(self, count: int) -> list[Choice]:
        """Random ones that the goal admits, as far as a few draws give such."""
        found: list[Choice] = []
        for _ in range(8):
            taken = self._unseen.take(count - len(found))
            if not taken:
                break
            fits = admitted(self._goal, self._bytes_of(np.array(taken, np.int64)))
            found += [choice for choice, fit in zip(taken, fits, strict=True) if fit]
            if len(found) == count:
                break
        return found

    def _bytes_of(self, rows: Choices) -> NDArray[np.int64]:
        if self._memory_of is None:
            return np.zeros(len(rows), np.int64)
        return self._memory_of(rows)

    def _guided(self, count: int) -> list[Choice]:
        rows, columns, memory = self._pool()
        fits = admitted(self._goal, memory)
        rows, columns, memory = rows[fits], columns[fits], memory[fits]
        if not len(rows):
            return []
        model, observed = self._fitted(columns.shape[1])
        scale = memory_scale(self._goal, np.concatenate([observed.memory, memory]))
        seen_scale, scale = scale[: len(observed.memory)], scale[len(observed.memory) :]
        reference = float(observed.values.max()), float(max(seen_scale.max(), scale.max())) + 1.0
        points = np.stack([observed.values, seen_scale], axis=1)[observed.usable]
        left = np.ones(len(rows), np.bool_)
        found: list[Choice] = []
        optimism = self._settings.optimism
        for _ in range(min(count, len(rows))):
            means, deviations = model.predict(columns)
            kappa = optimism[(len(self._told) + len(found)) % len(optimism)]
            bounds = means - kappa * deviations
            front = front_of(points)
            if self._settings.rule is Rule.EXPECTED:
                worth = expected_gains(front, reference, means, deviations, scale)
            else:
                worth = gains(front, reference, np.stack([bounds, scale], axis=1))
            worth = np.where(left, worth, -1.0)
            place = int(np.argmax(worth))
            if worth[place] <= 0:
                place = int(np.argmin(np.where(left, bounds, np.inf)))
            left[place] = False
            choice = tuple(rows[place].tolist())
            self._unseen.seen.add(choice)
            found.append(choice)
            if len(found) < count:
                model.believe(columns[place], float(means[place]))
                points = np.vstack([points, [means[place], scale[place]]])
        return found

    def _pool(self) -> tuple[Choices, Floats, NDArray[np.int64]]:
        listed = self._candidates.listed
        if listed is not None and self._columns is not None and self._memory is not None:
            open_rows = np.ones(len(listed), np.bool_)
            known = [self._rows_of_list[c] for c in self._unseen.seen if c in self._rows_of_list]
            open_rows[known] = False
            return listed[open_rows], self._columns[open_rows], self._memory[open_rows]
        settings = self._settings
        near = int(settings.pool * settings.near)
        seed = self._seed * 1_000_003 + self._asked
        pool = dict.fromkeys(self._candidates.draw(settings.pool - near, seed))
        parents = self._best(8)
        pool |= dict.fromkeys(mutated(self._candidates, parents, near, seed))
        fresh = [choice for choice in pool if choice not in self._unseen.seen]
        rows = np.array(fresh, np.int64).reshape(len(fresh), len(self._candidates.variables))
        if len(self._told) and self._fitted_at < 0:
            self._features.fit(np.vstack([rows, np.array(list(self._told), np.int64)]))
        if not len(rows):
            return rows, np.zeros((0, 0)), np.zeros(0, np.int64)
        return rows, self._features.of(rows), self._bytes_of(rows)

    def _best(self, count: int) -> list[Choice]:
        timed = [(c, o) for c, o in self._told.items() if o.time_ms is not None]
        if isinstance(self._goal, Front):
            # The front's own points are parents too, not only the fastest.
            points = np.array([(o.time_ms, o.memory_bytes) for _, o in timed], np.float64)
            on = {tuple(p) for p in front_of(points).tolist()}
            timed.sort(key=lambda t: ((t[1].time_ms, t[1].memory_bytes) not in on, t[1].time_ms))
        else:
            timed.sort(key=lambda t: (t[1].time_ms or 0.0, t[0]))
        return [choice for choice, _ in timed[:count]]

    def _fitted(self, features: int) -> tuple[Model, _Observed]:
        observed = self._observed()
        if self._model is None:
            self._model = (
                GaussianProcess(features, self._settings.priors)
                if features <= _MOST_FEATURES and not self._settings.trees
                else Forest(self._seed)
            )
        due = len(self._told) - self._fitted_at >= self._settings.refit or self._fitted_at < 0
        if due:
            self._fitted_at = len(self._told)
        self._model.fit(
            observed.columns, observed.values, observed.noise, self._settings.steps if due else 0
        )
        return self._model, observed

    def _observed(self) -> _Observed:
        choices = list(self._told)
        rows = np.array(choices, np.int64)
        outcomes = list(self._told.values())
        usable = np.array([outcome.time_ms is not None for outcome in outcomes])
        logs = np.array([np.log(o.time_ms) if o.time_ms is not None else np.inf for o in outcomes])
        limit = float(np.quantile(logs[usable], self._settings.clipped))
        # What failed counts as slow: near it, little is to be found.
        clipped = np.minimum(logs, limit)
        mean, deviation = clipped.mean(), max(float(clipped.std()), 1e-9)
        memory = np.array([outcome.memory_bytes for outcome in outcomes], np.int64)
        if self._rows_of_list and self._columns is not None:
            places = [self._rows_of_list.get(choice, -1) for choice in choices]
            outside = [n for n, place in enumerate(places) if place < 0]
            columns = self._columns[places]
            if outside:
                columns[outside] = self._features.of(rows[outside])
        else:
            columns = self._features.of(rows)
        noise = np.array([outcome.noise for outcome in outcomes]) ** 2 / deviation**2
        usable &= admitted(self._goal, memory)
        return _Observed(columns, (clipped - mean) / deviation, noise, memory, usable)


@dataclass(frozen=True, slots=True)
class _Observed:
    """What is known: features, clipped and scaled logarithms of times, variances of their noise,
    bytes, and which of them are points of the front or may be."""

    columns: Floats
    values: Floats
    noise: Floats
    memory: NDArray[np.int64]
    usable: NDArray[np.bool_]
