"""Model-guided search over the subjects of a run: what ``nestmap tune`` does by default.

Each subject (a variant of one layer, say) has a model of its own, which starts from a guess (of
:mod:`nestmap.tuning.descriptions`, or of a model that learned from other layers) and learns from
outcomes. Subjects take turns until each model has its first outcomes; from then on every other
turn goes to the subject with the best time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Variable
from mapper.cost.analytic import DeviceConstants
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, UnsatisfiableError
from mapper.measurement import Outcome, Timed
from mapper.search.candidates import Choices, SolvedCandidates
from mapper.search.goal import Front, Goal
from mapper.search.model_guided import (
    VIEWS_IN_DOUBT,
    VIEWS_OF_TREES_IN_DOUBT,
    ModelGuided,
    Settings,
)
from mapper.search.pool import Described
from mapper.search.predicted_first import PredictedFirst
from mapper.search.strategy import Choice
from mapper.search.strategy import Outcome as Told
from mapper.search.strategy import Strategy as Search
from mapper.solver.limits import Watch
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import Candidate, Draw, candidate_of
from nestmap.tuning.descriptions import COLUMNS, CONSTANTS, Description, described
from nestmap.tuning.elsewhere import Elsewhere
from nestmap.tuning.learned import LearnedModel
from nestmap.tuning.predicted_start import Start
from nestmap.tuning.statistics import relative_error
from nestmap.tuning.strategy import Refused, Source, ignore_refusals
from nestmap.tuning.transfer_features import transfer_row

#: Candidates asked for at once; generating and drawing what they are chosen from takes a while.
BATCH = 4
#: A space of mappings costs more to draw from than one of parameters: the pool grows by less.
SETTINGS = Settings(growth=16, pool=384)
#: Candidates whose kernels are kept, for they may be asked for.
_KEPT = 512
#: Random candidates that others are held against by what was learned of other layers.
_SIBLINGS = 24
_FRONT = Front()

Floats = NDArray[np.float64]


class GuidedStrategy:
    """A :class:`~nestmap.tuning.strategy.Strategy` that learns.

    Its order depends on the seed, the subjects, the device and what it is told, never on a
    clock. What the sources' history holds is learned first and never asked for. ``watch`` gives
    the limits that the solver keeps to; LimitError and Cancelled as it says. ``constants`` are the
    analytic model's; ``analytic`` tries what this model predicts to be best and learns nothing:
    among random candidates, their children, and what ``start`` finds where a space is too large
    to be listed. ``learned`` guesses instead. ``elsewhere`` tells, by the hash of a program, what
    its candidates took on other devices.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int,
        draw: Draw | None = None,
        refused: Refused = ignore_refusals,
        *,
        goal: Goal = _FRONT,
        settings: Settings = SETTINGS,
        watch: Callable[[], Watch] = Watch,
        constants: DeviceConstants = CONSTANTS,
        analytic: bool = False,
        start: Start | None = None,
        learned: LearnedModel | None = None,
        elsewhere: Mapping[str, Sequence[Elsewhere]] | None = None,
    ) -> None:
        knows = _Knowledge(device, constants, analytic, start, learned, elsewhere or {})
        if learned is not None:
            settings = replace(settings, trusted=True)
        self._searches = [
            _Search(source, knows, seed, draw, refused, goal, settings, watch) for source in sources
        ]
        self._start = settings.guessed_start
        self._turn = 0

    def ask(self) -> Candidate | None:
        """The next candidate; None when no subject has more."""
        while True:
            left = [search for search in self._searches if not search.exhausted]
            if not left:
                return None
            self._turn += 1
            candidate = self._whose_turn(left).next()
            if candidate is not None:
                return candidate

    def _whose_turn(self, left: Sequence[_Search]) -> _Search:
        learned = all(search.known >= self._start for search in left)
        if learned and self._turn % 2 == 0:
            return min(left, key=lambda search: search.best_ms)
        return left[(self._turn // 2 if learned else self._turn - 1) % len(left)]

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn what became of a candidate."""
        for search in self._searches:
            if search.index == candidate.subject_index:
                search.tell(candidate, outcome)


class _DrawnCandidates(SolvedCandidates):
    """Candidates of a space that somebody else draws from."""

    def __init__(self, source: Source, draw: Draw, watch: Callable[[], Watch]) -> None:
        super().__init__(source.space, watch)
        self._source = source
        self._draw = draw

    def draw(self, count: int, seed: int) -> list[Choice]:
        """See :class:`~mapper.search.candidates.Candidates`."""
        names = [name for name, _ in self._source.space.variables]
        drawn = self._draw(self._source.space, count, seed)
        return list(dict.fromkeys(tuple(found[name] for name in names) for found in drawn))


@dataclass(frozen=True, slots=True)
class _Knowledge:
    """What times are guessed from (:class:`GuidedStrategy`)."""

    device: DeviceProfile
    constants: DeviceConstants
    analytic: bool
    start: Start | None
    learned: LearnedModel | None
    elsewhere: Mapping[str, Sequence[Elsewhere]]


class _Search:
    """The search of one subject."""

    def __init__(
        self,
        source: Source,
        knows: _Knowledge,
        seed: int,
        draw: Draw | None,
        refused: Refused,
        goal: Goal,
        settings: Settings,
        watch: Callable[[], Watch],
    ) -> None:
        self.index = source.index
        self.exhausted = False
        self.known = 0
        self.best_ms = float("inf")
        self._source = source
        self._knows = knows
        self._refused = refused
        self._names = [name for name, _ in source.space.variables]
        self._candidates: OrderedDict[Choice, Candidate | None] = OrderedDict()
        self._descriptions: dict[Choice, Description] = {}
        self._siblings: Floats | None = None
        self._waiting: list[Choice] = []
        self._watch = watch
        self._ids: set[str] = set()
        solved = (
            SolvedCandidates(source.space, watch)
            if draw is None
            else _DrawnCandidates(source, draw, watch)
        )
        # By program, not by position: the order must not depend on what else is tuned.
        own_seed = derived_seed(seed, source.program_hash, len(source.history)) % 2**31
        self._solved, self._seed = solved, own_seed
        first = [self._choice(assignment) for assignment in source.known]
        self._elsewhere = tuple(knows.elsewhere.get(source.program_hash, ()))
        if self._elsewhere:
            settings = replace(
                settings, views=VIEWS_IN_DOUBT, views_of_trees=VIEWS_OF_TREES_IN_DOUBT
            )
        also = [self._choice(found) for device in self._elsewhere for found in device.fastest]
        self._search: Search = (
            PredictedFirst(
                solved,
                own_seed,
                describe=self._describe,
                space=source.space,
                goal=goal,
                first=first,
                start=None if knows.start is None else partial(self._start, knows.start, own_seed),
                pool=settings.pool,
                growth=settings.growth,
            )
            if knows.analytic
            else ModelGuided(
                solved,
                own_seed,
                space=source.space,
                goal=goal,
                describe=self._describe,
                first=first,
                also=also,
                settings=settings,
            )
        )
        for assignment, outcome, memory_bytes in source.history:
            self._learn(self._choice(assignment), outcome, memory_bytes)

    def _choice(self, assignment: Mapping[Variable, int]) -> Choice:
        return tuple(assignment[name] for name in self._names)

    def _start(self, start: Start, seed: int) -> list[Choice]:
        """What an analytic search looks at beside random candidates; nothing where that failed."""
        knows, source = self._knows, self._source
        try:
            found = start(source, knows.device, knows.constants, seed, self._watch())
        except LimitError as error:
            self._refused(source, error)
            return []
        return [self._choice(assignment) for assignment in found]

    def next(self) -> Candidate | None:
        """The next candidate; None where there are no more, which :attr:`exhausted` says too."""
        while True:
            if not self._waiting:
                # One at first, so that something is measured soon.
                count = BATCH if self.known else 1
                try:
                    self._waiting = self._search.ask(count)
                except (UnsatisfiableError, LimitError) as error:
                    self._refused(self._source, error)
                if not self._waiting:
                    self.exhausted = True
                    return None
            candidate = self._candidate(self._waiting.pop(0))
            # Different assignments may have one kernel.
            if candidate is not None and candidate.id not in self._ids:
                self._ids.add(candidate.id)
                return candidate

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        self._learn(self._choice(candidate.assignment), outcome, candidate.plan.memory_bytes)

    def _learn(self, choice: Choice, outcome: Outcome, memory_bytes: int) -> None:
        self.known += 1
        time_ms, noise = None, 0.0
        if isinstance(outcome, Timed) and outcome.time_ms > 0:
            time_ms, noise = outcome.time_ms, relative_error(outcome.trials_ns)
            self.best_ms = min(self.best_ms, time_ms)
        self._search.tell([(choice, Told(time_ms, memory_bytes, noise))])

    def _candidate(self, choice: Choice) -> Candidate | None:
        """The kernels of a choice; None where there are none, which is told once."""
        if choice not in self._candidates:
            source = self._source
            assignment = dict(zip(self._names, choice, strict=True))
            try:
                self._candidates[choice] = candidate_of(
                    source.index, source.subject, source.program_hash, assignment
                )
            except InputError as error:
                self._refused(source, error)
                self._candidates[choice] = None
            while len(self._candidates) > _KEPT:
                self._candidates.popitem(last=False)
        return self._candidates[choice]

    def _describe(self, rows: Choices) -> Described:
        """Bytes, sizes of the launches and the guess of candidates, from their kernels' plans."""
        choices = [tuple(row) for row in rows.tolist()]
        candidates = [self._candidate(choice) for choice in choices]
        known = np.array([candidate is not None for candidate in candidates])
        found = [
            self._described(choice, candidate)
            for choice, candidate in zip(choices, candidates, strict=True)
            if candidate is not None
        ]
        knows = self._knows
        # What was learned of other layers is one column more, and of each other device.
        learned = int(knows.learned is not None)
        columns = np.zeros((len(rows), COLUMNS + learned + len(self._elsewhere)))
        guess = np.zeros(len(rows))
        if found:
            guess[known] = self._guesses(found)
            columns[known, :COLUMNS] = [entry.columns(knows.constants) for entry in found]
            if learned:
                columns[known, COLUMNS] = guess[known]
            if self._elsewhere:
                told = self._transfer_rows(found)
                of_devices = [device.predict(told) for device in self._elsewhere]
                columns[known, COLUMNS + learned :] = np.stack(of_devices, axis=1)
        memory = [0 if c is None else c.plan.memory_bytes for c in candidates]
        return Described(np.array(memory, np.int64), columns, guess, known)

    def _guesses(self, found: Sequence[Description]) -> Floats:
        knows = self._knows
        if knows.analytic:
            return np.array([description.predicted(knows.constants) for description in found])
        if knows.learned is None:
            return np.array([description.guess(knows.constants) for description in found])
        rows = self._transfer_rows(found)
        if self._siblings is None:
            self._siblings = self._random_rows(rows)
        return knows.learned.predict(rows, self._siblings, found[0].parameter_names)

    def _random_rows(self, rows: Floats) -> Floats:
        """Features of random candidates, whatever else is known; ``rows`` where none can be had."""
        try:
            drawn = self._solved.draw(_SIBLINGS, self._seed)
        except (UnsatisfiableError, LimitError) as error:
            self._refused(self._source, error)
            return rows
        candidates = [(choice, self._candidate(choice)) for choice in drawn]
        found = [self._described(choice, made) for choice, made in candidates if made is not None]
        if not found:
            return rows
        return self._transfer_rows(found)

    def _transfer_rows(self, found: Sequence[Description]) -> Floats:
        return np.array([transfer_row(description, self._knows.device) for description in found])

    def _described(self, choice: Choice, candidate: Candidate) -> Description:
        if choice not in self._descriptions:
            subject = self._source.subject
            self._descriptions[choice] = described(subject, candidate, self._knows.device)
        return self._descriptions[choice]
