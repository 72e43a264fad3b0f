"""Search over the subjects of a run: what ``nestmap tune`` does by default.

Each subject (a variant of one layer, say) has a search of its own. In the sketches of a program it
draws and changes solutions of their spaces (:mod:`nestmap.tuning.sketch_search`; one search for all
sketches of a program with several kernels); else a model starts from a guess (of
:mod:`nestmap.tuning.descriptions`, or of a model that learned from other layers) and learns from
outcomes.

Which subject comes next is a decision of the same search: the one that promises most
(:func:`promised_ms`). A search finds its best slowly, so one with few candidates may still become
much faster than it is, one with many hardly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.nodes import Program
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
from mapper.search.strategy import Strategy as SpaceSearch
from mapper.solver.limits import Watch
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import Candidate, Draw, candidate_of
from nestmap.tuning.descriptions import COLUMNS, CONSTANTS, Description, described
from nestmap.tuning.elsewhere import Elsewhere
from nestmap.tuning.learned import LearnedModel
from nestmap.tuning.predicted_start import Start
from nestmap.tuning.progress_share import progress_share
from nestmap.tuning.sketch_search import SketchSearch, is_of_several
from nestmap.tuning.sketch_subjects import what_is_done
from nestmap.tuning.solved_ahead import wait_for_any
from nestmap.tuning.sources import Refused, Source, ignore_refusals
from nestmap.tuning.statistics import relative_error
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

#: Every so many turns go to the subject whose right candidates need least memory, if the best of
#: them is within this factor of the fastest.
_LEAN_EVERY = 8
_LEAN_WITHIN = 4.0
_LEAST_MS = 1e-6
#: Sketches that are weighed by what their loops are expected to take, one a turn, and all that are
#: solved aside.
WEIGHED = 8


@dataclass(slots=True)
class Standing:
    """What a subject's search has brought so far."""

    promise: float
    asked: int = 0
    best_ms: float = float("inf")
    least_bytes: float = float("inf")

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Standing:
        """The standing that earlier runs leave, of sources that have one search."""
        history = [past for source in sources for past in source.history]
        standing = cls(_promise_of(sources), asked=len(history))
        for _, outcome, memory_bytes in history:
            standing.add(outcome, memory_bytes)
        return standing

    def add(self, outcome: Outcome, memory_bytes: int) -> None:
        """Count what became of a candidate."""
        if isinstance(outcome, Timed):
            # A clock that ticks coarsely may tell of no time at all.
            self.best_ms = min(self.best_ms, max(outcome.time_ms, _LEAST_MS))
            self.least_bytes = min(self.least_bytes, memory_bytes)

    def promised_ms(self, best_ms: float, of_all: int = 0) -> float:
        """The time that one more candidate may bring the subject to, in the end; all subjects
        together had ``of_all`` candidates."""
        if self.best_ms < float("inf"):
            return self.best_ms * progress_share(self.asked, of_all)
        # Nothing was right so far: the more was tried, the less is hoped for.
        known_ms = best_ms if best_ms < float("inf") else 1.0
        hoped_ms = self.promise * known_ms * (1 + self.asked) ** 0.5
        return hoped_ms * progress_share(self.asked, of_all)


def _promise_of(sources: Sequence[Source]) -> float:
    """Of sources that have one search: of the best of them."""
    return min(source.promise for source in sources)


class Search(Protocol):
    """The search of one subject, or of several."""

    exhausted: bool

    def next(self) -> Candidate | None:
        """The next candidate; None where there are no more, which ``exhausted`` says too."""
        ...

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn what became of a candidate."""
        ...


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
        # Who predicts, or has learned elsewhere, is to be asked in every variant.
        told = analytic or learned is not None or bool(elsewhere)

        def search_of(own: Sequence[Source]) -> Search:
            source = own[0]
            if source.is_sketch and not told:
                return SketchSearch(own, device, seed, goal, refused, watch)
            return _Search(source, knows, seed, draw, refused, goal, settings, watch)

        # Sources by their searches.
        self._sources = [[source] for source in sources] if told else _together(sources)
        self._places = {source.index: k for k, own in enumerate(self._sources) for source in own}
        self._search_of = search_of
        self._searches: dict[int, Search | None] = {}
        self._watch = watch
        self._refused = refused
        self._standings = [Standing.of(own) for own in self._sources]
        self._seeks_front = isinstance(goal, Front)
        self._turn = 0
        self._expected: dict[int, float] = {}
        self._to_weigh = [
            place
            for place, own in enumerate(self._sources)
            # What there are records of promises what these say.
            if own[0].is_sketch and not own[0].has_record and not told
            and (place < WEIGHED or own[0].ahead is not None)
        ]  # fmt: skip
        # What the sketches do that were derived so far.
        self._done: set[Hashable] = set()

    def ask(self) -> Candidate | None:
        """The next candidate; None when no subject has more."""
        while True:
            left = [
                place
                for place in range(len(self._sources))
                if place not in self._to_weigh and not self._is_exhausted(place)
            ]
            next_one = self._next_to_weigh(wait=not left or not self._expected)
            if next_one is not None:
                self._to_weigh.remove(next_one)
                self._weigh(next_one)
                continue
            if not left:
                return None
            place = self._whose_turn(left)
            search = self._search(place)
            candidate = None if search is None else search.next()
            if candidate is not None:
                self._turn += 1
                self._standings[place].asked += 1
                return candidate

    def _next_to_weigh(self, wait: bool) -> int | None:
        """The sketch to be weighed now: one that was solved aside, else one a turn."""
        ahead = {place: self._sources[place][0].ahead for place in self._to_weigh}
        aside = {place: one for place, one in ahead.items() if one is not None}
        here = [place for place, one in ahead.items() if one is None]
        if wait and aside and not here:
            wait_for_any(aside.values(), self._watch)
        solved = [place for place, one in aside.items() if one.is_begun]
        due = wait or self._turn >= len(self._expected)
        return next(chain(solved, here if due else ()), None)

    def _weigh(self, place: int) -> None:
        """Sketches promise what their loops are expected to take beside one another, wherever they
        stand in the order of their maker."""
        search = self._search(place)
        if search is None:
            return
        assert isinstance(search, SketchSearch)
        self._expected[place] = search.expected_ms
        least_ms = min(self._expected.values())
        if 0.0 < least_ms < float("inf"):
            for known, time_ms in self._expected.items():
                self._standings[known].promise = time_ms / least_ms

    def _search(self, place: int) -> Search | None:
        """The search of a subject, begun when it is first asked: a space takes a while. None where
        there is no such sketch, or another one does the same."""
        if place not in self._searches:
            self._searches[place] = self._begun(self._sources[place])
        return self._searches[place]

    def _begun(self, own: Sequence[Source]) -> Search | None:
        if not own[0].exists:
            if (refusal := own[0].refusal) is not None:
                self._refused(own[0], refusal)
            return None
        done = [what_is_done(source.subject) for source in own if source.is_sketch]
        if done and self._done.issuperset(done):
            return None
        self._done.update(done)
        return self._search_of(own)

    def _is_exhausted(self, place: int) -> bool:
        if place not in self._searches:
            return False
        search = self._searches[place]
        return search is None or search.exhausted

    def _whose_turn(self, left: Sequence[int]) -> int:
        """The place of the search that promises most; now and then of one that needs less memory
        than the fastest, where the front is wanted."""
        standings = self._standings
        best_ms = min(standing.best_ms for standing in standings)
        if self._seeks_front and self._turn % _LEAN_EVERY == _LEAN_EVERY - 1:
            lean = [place for place in left if standings[place].best_ms <= _LEAN_WITHIN * best_ms]
            if lean:
                return min(lean, key=lambda place: (standings[place].least_bytes, place))
        asked = sum(standing.asked for standing in standings)
        return min(left, key=lambda place: (standings[place].promised_ms(best_ms, asked), place))

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn what became of a candidate."""
        place = self._places.get(candidate.subject_index)
        search = None if place is None else self._search(place)
        if place is not None and search is not None:
            self._standings[place].add(outcome, candidate.plan.memory_bytes)
            search.tell(candidate, outcome)


def _together(sources: Sequence[Source]) -> list[list[Source]]:
    """Sources in order, those of one program's combinations of structures as one."""
    found: list[list[Source]] = []
    for source in sources:
        if is_of_several(source.tuned):
            others = (own for own in found if is_of_several(own[0].tuned))
            known = next((o for o in others if _written(o[0]) == _written(source)), None)
            if known is not None:
                known.append(source)
                continue
        found.append([source])
    return found


def _written(source: Source) -> Program | None:
    """The program that a source's schedule rewrites."""
    scheduled = source.subject.scheduled
    return None if scheduled is None else scheduled.program


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
        self.exhausted = False
        self.known = 0
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
        first = [self._choice(found) for found in source.known]
        self._elsewhere = tuple(knows.elsewhere.get(source.program_hash, ()))
        if self._elsewhere:
            settings = replace(
                settings, views=VIEWS_IN_DOUBT, views_of_trees=VIEWS_OF_TREES_IN_DOUBT
            )
        also = [self._choice(found) for device in self._elsewhere for found in device.fastest]
        self._search: SpaceSearch = (
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
            time_ms, noise = outcome.time_ms, relative_error(outcome.times_ns)
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
