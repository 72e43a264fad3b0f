"""Search guided by a model of the time that is learned as outcomes come.

After a random start, each candidate is the one whose time, were it as much better than the model
expects as it well may be, would add most to what has been found: the gain in hypervolume at the
lower confidence bound of the time (Ponweiser, Wagner, Biermann and Vincze, "Multiobjective
optimization on a limited budget of evaluations using model-assisted S-metric selection", PPSN
2008; with one objective, the lower confidence bound itself). The expected gain is there too.
Several models that see a space in different ways rank the candidates, and the least product of
the ranks is taken. Within a batch each believes its own mean of what was chosen already. Once
nothing better was found for a while, some turns go to what differs from the best in one decision:
models do not tell apart what is nearly as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

import numpy as np
from numpy.typing import NDArray

from mapper.pareto.front import expected_gains, front_of, gains, on_front
from mapper.search.candidates import Candidates, Choices
from mapper.search.features import Part
from mapper.search.gaussian_process import Priors
from mapper.search.goal import Fastest, Front, Goal, admitted, memory_scale
from mapper.search.learner import MOST_FEATURES, Learner, Model, View
from mapper.search.pool import Describe, Entries, Pool, nothing_known
from mapper.search.strategy import Choice, Outcome
from mapper.search.trees import Forest
from mapper.solver.space import Space

Floats = NDArray[np.float64]

#: So many of the best have children.
_PARENTS = 8
_FASTEST = Fastest()


class Rule(Enum):
    """What makes a candidate worth a measurement."""

    BOUND = "gain at the lower confidence bound"
    EXPECTED = "expected gain"


_WITH_TREND = Priors(trend=-1.0)
_WITH_VALUES = Part(values=True)
_KNOWN = Part(sizes=False)
#: One sees what goes by sizes, the other single values too, and tells the better part apart
#: only: where one of them is misled the other need not be.
VIEWS = (
    View(clipped=0.9, priors=_WITH_TREND),
    View(_WITH_VALUES, clipped=0.6, priors=_WITH_TREND),
)
#: Besides, two that see nothing of what is known of candidates: where that is wrong, they need not
#: learn so first.
VIEWS_IN_DOUBT = (
    *VIEWS,
    *(replace(view, part=replace(view.part, known=False)) for view in VIEWS),
)
#: Where the first is a forest.
VIEWS_OF_TREES = (View(), View(_WITH_VALUES, clipped=0.5))
#: Besides, a forest that sees nothing of what is known.
VIEWS_OF_TREES_IN_DOUBT = (*VIEWS_OF_TREES, View(Part(known=False)))


@dataclass(frozen=True, slots=True)
class Settings:
    """How the search goes; chosen on synthetic spaces and on one GPU's recording (docs/search.md).

    ``start`` candidates are random; where there is a guess, ``guessed_start``, every other one by
    it. Then each is the one that the learners of all ``views`` together rank best. Its bound lies
    ``optimism`` deviations below the mean, but ``early_optimism`` until ``early`` outcomes are
    told: deviations of a model that knows little are large, and where they are largest is the edge
    of the space. Where a forest learns, whose deviations mean something else, they are
    ``optimism_of_trees``, one after the other. Where the space is not listed,
    ``growth`` candidates join the pool before each batch, and ``pool`` are kept. Constants of
    models are fitted anew every ``refit`` outcomes, less often once there are many, by ``steps``
    steps. With one objective, once ``patience`` outcomes were no better than the best, each turn
    that ``beside_best`` divides (by the outcomes told; 0: none) is of what differs from it in one
    decision. ``trees`` asks for forests where Gaussian processes would do; these have
    ``views_of_trees``, and no such turns: they are for spaces where hardly any single decision can
    be changed. A ``trusted`` guess (of a model that learned from measurements) chooses all of the
    first candidates, and its rank counts beside those of the learners.
    """

    start: int = 16
    guessed_start: int = 8
    optimism: float = 3.0
    early_optimism: float = 2.0
    early: int = 50
    optimism_of_trees: tuple[float, ...] = (1.0, 2.0)
    views: tuple[View, ...] = VIEWS
    views_of_trees: tuple[View, ...] = VIEWS_OF_TREES
    rule: Rule = Rule.BOUND
    pool: int = 512
    growth: int = 32
    refit: int = 4
    steps: int = 15
    patience: int = 30
    beside_best: int = 4
    trees: bool = False
    trusted: bool = False

    def deviations(self, turn: int, *, of_trees: bool) -> float:
        """How far below the mean a bound lies once ``turn`` outcomes are told."""
        if of_trees:
            return self.optimism_of_trees[turn % len(self.optimism_of_trees)]
        return self.early_optimism if turn < self.early else self.optimism


class ModelGuided:
    """The strategy. ``first`` are candidates to try before any others, best first; ``also`` are
    some that it may choose among besides those it finds itself, where a space is not listed."""

    def __init__(
        self,
        candidates: Candidates,
        seed: int,
        *,
        space: Space | None = None,
        goal: Goal = _FASTEST,
        describe: Describe = nothing_known,
        first: Sequence[Choice] = (),
        also: Sequence[Choice] = (),
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._goal = goal
        self._candidates = candidates
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
        self._also = tuple(also)
        self._told: dict[Choice, Outcome] = {}
        self._learners: list[Learner] = []

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
        # After random ones, which features are scaled by.
        self._pool.add(self._also)
        self._also = ()
        timed = sum(outcome.time_ms is not None for outcome in self._told.values())
        start = self._settings.guessed_start if self._pool.guessed else self._settings.start
        if len(self._told) < start or timed < 2:
            missing = max(1, start - len(self._told) - len(found))
            found += self._unguided(min(count - len(found), missing))
        if len(found) < count and timed >= 2:
            found += self._guided(count - len(found))
        return found + self._unguided(count - len(found))

    def _open(self) -> tuple[Entries, NDArray[np.bool_]]:
        entries, left = self._pool.open(self._seen)
        return entries, left & admitted(self._goal, entries.memory)

    def _unguided(self, count: int) -> list[Choice]:
        """Random ones of the pool; where there is a guess, every other one by it, and all where
        it is trusted."""
        found: list[Choice] = []
        while len(found) < count:
            entries, left = self._open()
            places = np.flatnonzero(left)
            if not len(places):
                break
            by_guess = self._settings.trusted or (len(self._told) + len(found)) % 2 == 0
            if entries.guess is not None and by_guess:
                place = int(places[np.argmin(entries.guess[places])])
            else:
                place = int(places[self._random.randrange(len(places))])
            found.append(entries.choice(place))
            self._seen.add(found[-1])
        return found

    def _guided(self, count: int) -> list[Choice]:
        entries, left = self._open()
        if not left.any():
            return []
        described = self._pool.describe(list(self._told))
        outcomes = [self._told[tuple(row)] for row in described.rows.tolist()]
        memory = np.array([outcome.memory_bytes for outcome in outcomes], np.int64)
        scale = memory_scale(self._goal, np.concatenate([memory, entries.memory]))
        seen_scale, scale = scale[: len(memory)], scale[len(memory) :]
        top = float(max(seen_scale.max(), scale.max())) + 1.0
        log_times = np.array([np.log(o.time_ms) if o.time_ms else np.inf for o in outcomes])
        noise = np.array([outcome.noise for outcome in outcomes])
        usable = np.isfinite(log_times) & admitted(self._goal, memory)
        judges: list[_Judge] = []
        for learner in self._learners_here():
            part = learner.view.part
            if judges and part.known and len(self._pool.places(part)) > MOST_FEATURES:
                # A second forest would see the same as the first; what is known of candidates
                # without running them are few columns.
                part = _KNOWN
                if not len(self._pool.places(part)):
                    continue
            columns = self._pool.part(part, entries.columns)
            seen = described.columns[:, self._pool.places(part)]
            model, values = learner.fit(seen, log_times, noise)
            points = np.stack([values, seen_scale], axis=1)[usable]
            judges.append(_Judge(model, columns, points, (float(values.max()), top)))
        found: list[Choice] = []
        # The first sees the most: where it is a forest, the others stand in for its deviations.
        chosen = self._settings
        beside = (
            None
            if judges[0].trees
            else self._beside_best(entries, described.rows, np.where(usable, log_times, np.inf))
        )
        for _ in range(min(count, int(left.sum()))):
            turn = len(self._told) + len(found)
            kappa = chosen.deviations(turn, of_trees=judges[0].trees)
            among = left
            if beside is not None and turn % chosen.beside_best == 0 and (beside & left).any():
                among = beside & left
            ranks = [judge.ranks(among, scale, kappa, chosen.rule) for judge in judges]
            if chosen.trusted and entries.guess is not None:
                ranks.append(_ranks(among, entries.guess))
            # By the product of the ranks: what one holds for the best needs little of the others.
            place = int(np.argmin(np.sum(np.log(ranks), axis=0)))
            left[place] = False
            found.append(entries.choice(place))
            self._seen.add(found[-1])
            if len(found) < count:
                for judge in judges:
                    judge.believe(place, scale[place])
        return found

    def _learners_here(self) -> list[Learner]:
        if not self._learners:
            chosen = self._settings
            columns = len(self._pool.places(chosen.views[0].part))
            forests = chosen.trees or columns > MOST_FEATURES
            known = len(self._pool.places(_KNOWN)) > 0
            self._learners = [
                Learner(
                    view, self._seed, refit=chosen.refit, steps=chosen.steps, trees=chosen.trees
                )
                for view in (chosen.views_of_trees if forests else chosen.views)
                # Where nothing is known, those that do not see it would see what others do.
                if known or view.part.known
            ]
        return self._learners

    def _beside_best(
        self, entries: Entries, told: Choices, times: Floats
    ) -> NDArray[np.bool_] | None:
        """Which candidates differ from the fastest admitted one in one decision; None unless the
        last ``patience`` outcomes were no faster, and where there are several objectives.

        ``told`` are known candidates in order, with ``times`` that are infinite where one failed
        or is not admitted.
        """
        if isinstance(self._goal, Front) or not self._settings.beside_best:
            return None
        best = int(np.argmin(times))
        if not np.isfinite(times[best]) or len(times) - 1 - best < self._settings.patience:
            return None
        return (entries.rows != told[best]).sum(axis=1) == 1

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


class _Judge:
    """A learner's opinion of the candidates of a pool (n x features ``columns``), given the
    ``points`` (times as it sees them, and bytes) that are known."""

    def __init__(
        self, model: Model, columns: Floats, points: Floats, reference: tuple[float, float]
    ) -> None:
        self._model = model
        self._columns = columns
        self._points = points
        self._reference = reference
        self._means = np.zeros(len(columns))

    @property
    def trees(self) -> bool:
        """Whether a forest learned it."""
        return isinstance(self._model, Forest)

    def ranks(self, left: NDArray[np.bool_], scale: Floats, optimism: float, rule: Rule) -> Floats:
        """From 1 for what may add most; infinite for what is not ``left``."""
        self._means, deviations = self._model.predict(self._columns)
        bounds = self._means - optimism * deviations
        front = front_of(self._points)
        if rule is Rule.EXPECTED:
            worth = expected_gains(front, self._reference, self._means, deviations, scale)
        else:
            worth = gains(front, self._reference, np.stack([bounds, scale], axis=1))
        # Of what adds nothing the fastest first.
        return _ranks(left, bounds, -worth)

    def believe(self, place: int, scale: float) -> None:
        """Take what is expected of a candidate that is being measured as known."""
        mean = float(self._means[place])
        self._model.believe(self._columns[place], mean)
        self._points = np.vstack([self._points, [mean, scale]])


def _ranks(left: NDArray[np.bool_], *keys: Floats) -> Floats:
    """From 1 for the least by the last of ``keys``, ties by those before; infinite for what is not
    ``left``."""
    places = np.flatnonzero(left)
    order = places[np.lexsort(np.stack([key[places] for key in keys]))]
    found = np.full(len(left), np.inf)
    found[order] = np.arange(1, len(order) + 1)
    return found
