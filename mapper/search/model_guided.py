"""Search guided by a model of the time that is learned as outcomes come.

After a random start, each candidate is the one whose time, were it as much better than the model
expects as it well may be, would add most to what has been found: the gain in hypervolume at the
lower confidence bound of the time (Ponweiser, Wagner, Biermann and Vincze, "Multiobjective
optimization on a limited budget of evaluations using model-assisted S-metric selection", PPSN
2008; with one objective, the lower confidence bound itself). The expected gain is there too.
Within a batch the model believes its own mean of what it has chosen already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.pareto.front import expected_gains, front_of, gains, on_front
from mapper.search.candidates import Candidates
from mapper.search.gaussian_process import GaussianProcess, Priors
from mapper.search.goal import Fastest, Front, Goal, admitted, memory_scale
from mapper.search.pool import Describe, Entries, Pool, nothing_known
from mapper.search.strategy import Choice, Outcome
from mapper.search.trees import Forest
from mapper.solver.space import Space

Floats = NDArray[np.float64]

#: A Gaussian process cannot tell more features than this apart from few observations.
_MOST_FEATURES = 64
#: So many of the best have children.
_PARENTS = 8
_PRIORS = Priors()
_FASTEST = Fastest()


class Rule(Enum):
    """What makes a candidate worth a measurement."""

    BOUND = "gain at the lower confidence bound"
    EXPECTED = "expected gain"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the search goes; chosen on synthetic spaces and on one GPU's recording (docs/search.md).

    ``start`` candidates are random, or taken in turns by the guess where there is one. The
    deviations below the mean of the bounds are ``optimism``, one after the other. Times above the
    ``clipped`` quantile of those seen count as that quantile: what is slow need not be told from
    what is very slow. Where the space is not listed, ``growth`` candidates join the pool before
    each batch, and ``pool`` are kept. The constants of the model are fitted anew every ``refit``
    outcomes. ``trees`` asks for a forest where a Gaussian process would do.
    """

    start: int = 16
    optimism: tuple[float, ...] = (1.0, 2.0)
    clipped: float = 0.75
    rule: Rule = Rule.BOUND
    pool: int = 512
    growth: int = 32
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
    """The strategy. ``first`` are candidates to try before any others, best first."""

    def __init__(
        self,
        candidates: Candidates,
        seed: int,
        *,
        space: Space | None = None,
        goal: Goal = _FASTEST,
        describe: Describe = nothing_known,
        first: Sequence[Choice] = (),
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._goal = goal
        self._seed = seed
        self._pool = Pool(
            candidates,
            seed,
            space=space,
            describe=describe,
            size=self._settings.pool,
            growth=self._settings.growth,
        )
        self._random = Random(seed)
        self._seen: set[Choice] = set()
        self._first = list(dict.fromkeys(first))
        self._told: dict[Choice, Outcome] = {}
        self._model: Model | None = None
        self._fitted_at = -1

    def tell(self, told: Sequence[tuple[Choice, Outcome]]) -> None:
        """See :class:`~mapper.search.strategy.Strategy`."""
        for choice, outcome in told:
            self._told[choice] = outcome
            self._seen.add(choice)

    def ask(self, count: int) -> list[Choice]:
        """See :class:`~mapper.search.strategy.Strategy`."""
        found: list[Choice] = []
        while self._first and len(found) < count:
            choice = self._first.pop(0)
            if choice not in self._seen:
                self._seen.add(choice)
                found.append(choice)
        if len(found) == count:
            return found
        self._pool.grow(self._best(_PARENTS))
        timed = sum(outcome.time_ms is not None for outcome in self._told.values())
        if len(self._told) < self._settings.start or timed < 2:
            missing = max(1, self._settings.start - len(self._told) - len(found))
            found += self._unguided(min(count - len(found), missing))
        if len(found) < count and timed >= 2:
            found += self._guided(count - len(found))
        return found + self._unguided(count - len(found))

    def _open(self) -> Entries:
        entries = self._pool.open(self._seen)
        return entries.taken(admitted(self._goal, entries.memory))

    def _unguided(self, count: int) -> list[Choice]:
        """Random ones of the pool; where there is a guess, every other one by it."""
        found: list[Choice] = []
        while len(found) < count:
            entries = self._open()
            if not len(entries.rows):
                break
            place = self._random.randrange(len(entries.rows))
            if entries.guess is not None and (len(self._told) + len(found)) % 2 == 0:
                place = int(np.argmin(entries.guess))
            found.append(entries.choice(place))
            self._seen.add(found[-1])
        return found

    def _guided(self, count: int) -> list[Choice]:
        entries = self._open()
        if not len(entries.rows):
            return []
        columns = entries.columns
        model, observed = self._fitted(columns.shape[1])
        scale = memory_scale(self._goal, np.concatenate([observed.memory, entries.memory]))
        seen_scale, scale = scale[: len(observed.memory)], scale[len(observed.memory) :]
        reference = float(observed.values.max()), float(max(seen_scale.max(), scale.max())) + 1.0
        points = np.stack([observed.values, seen_scale], axis=1)[observed.usable]
        left = np.ones(len(columns), np.bool_)
        found: list[Choice] = []
        optimism = self._settings.optimism
        for _ in range(min(count, len(columns))):
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
            found.append(entries.choice(place))
            self._seen.add(found[-1])
            if len(found) < count:
                model.believe(columns[place], float(means[place]))
                points = np.vstack([points, [means[place], scale[place]]])
        return found

    def _best(self, count: int) -> list[Choice]:
        timed = [(c, o) for c, o in self._told.items() if o.time_ms is not None]
        if not timed:
            return []
        if isinstance(self._goal, Front):
            # The front's own points are parents too, not only the fastest.
            points = np.array([(o.time_ms, o.memory_bytes) for _, o in timed], np.float64)
            best = dict(zip((c for c, _ in timed), on_front(points).tolist(), strict=True))
            timed.sort(key=lambda t: (not best[t[0]], t[1].time_ms or 0.0, t[0]))
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
        described = self._pool.describe(list(self._told))
        outcomes = [self._told[tuple(row)] for row in described.rows.tolist()]
        usable = np.array([outcome.time_ms is not None for outcome in outcomes])
        logs = np.array([np.log(o.time_ms) if o.time_ms is not None else np.inf for o in outcomes])
        limit = float(np.quantile(logs[usable], self._settings.clipped))
        # What failed counts as slow: near it, little is to be found.
        clipped = np.minimum(logs, limit)
        mean, deviation = clipped.mean(), max(float(clipped.std()), 1e-9)
        memory = np.array([outcome.memory_bytes for outcome in outcomes], np.int64)
        noise = np.array([outcome.noise for outcome in outcomes]) ** 2 / deviation**2
        usable &= admitted(self._goal, memory)
        return _Observed(described.columns, (clipped - mean) / deviation, noise, memory, usable)


@dataclass(frozen=True, slots=True)
class _Observed:
    """What is known: features, clipped and scaled logarithms of times, variances of their noise,
    bytes, and which of them are points of the front or may be."""

    columns: Floats
    values: Floats
    noise: Floats
    memory: NDArray[np.int64]
    usable: NDArray[np.bool_]
