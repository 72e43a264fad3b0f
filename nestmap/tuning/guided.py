"""Model-guided search over the subjects of a run: what ``nestmap tune`` does by default.

Each subject (a variant of one layer, say) has a model of its own, which starts from the guess of
:mod:`nestmap.tuning.proxy` and learns from outcomes. Subjects take turns until each model has its
first outcomes; from then on every other turn goes to the subject with the best time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, UnsatisfiableError
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed
from mapper.pipeline import Subject
from mapper.search.candidates import Choices, SolvedCandidates
from mapper.search.goal import Front, Goal
from mapper.search.model_guided import ModelGuided, Settings
from mapper.search.pool import Described
from mapper.search.strategy import Choice
from mapper.search.strategy import Outcome as Told
from mapper.solver.limits import Watch
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import Candidate, Draw, candidate_of
from nestmap.tuning.proxy import guessed_cost
from nestmap.tuning.statistics import relative_error
from nestmap.tuning.strategy import Refused, Source, ignore_refusals

#: Candidates asked for at once; generating and drawing what they are chosen from takes a while.
BATCH = 4
#: A space of mappings costs more to draw from than one of parameters: the pool grows by less.
SETTINGS = Settings(start=12, growth=16, pool=384)
#: Candidates whose kernels are kept, for they may be asked for.
_KEPT = 512
_FRONT = Front()


class GuidedStrategy:
    """A :class:`~nestmap.tuning.strategy.Strategy` that learns.

    Its order depends on the seed, the subjects, the device and what it is told, never on a
    clock. What the sources' history holds is learned first and never asked for. ``watch`` gives
    the limits that the solver keeps to; LimitError and Cancelled as it says.
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
    ) -> None:
        self._searches = [
            _Search(source, device, seed, draw, refused, goal, settings, watch)
            for source in sources
        ]
        self._start = settings.start
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


class _Search:
    """The search of one subject."""

    def __init__(
        self,
        source: Source,
        device: DeviceProfile,
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
        self._device = device
        self._refused = refused
        self._names = [name for name, _ in source.space.variables]
        self._candidates: OrderedDict[Choice, Candidate | None] = OrderedDict()
        self._guesses: dict[Choice, tuple[float, ...]] = {}
        self._waiting: list[Choice] = []
        self._ids: set[str] = set()
        solved = (
            SolvedCandidates(source.space, watch)
            if draw is None
            else _DrawnCandidates(source, draw, watch)
        )
        # By program, not by position: the order must not depend on what else is tuned.
        own_seed = derived_seed(seed, source.program_hash, len(source.history)) % 2**31
        self._search = ModelGuided(
            solved,
            own_seed,
            space=source.space,
            goal=goal,
            describe=self._describe,
            first=[self._choice(assignment) for assignment in source.known],
            settings=settings,
        )
        for assignment, outcome, memory_bytes in source.history:
            self._learn(self._choice(assignment), outcome, memory_bytes)

    def _choice(self, assignment: Mapping[Variable, int]) -> Choice:
        return tuple(assignment[name] for name in self._names)

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
        found = [
            (0.0,) * (_COLUMNS + 1) if c is None else self._guess(choice, c)
            for choice, c in zip(choices, candidates, strict=True)
        ]
        numbers = np.array(found, np.float64).reshape(len(found), _COLUMNS + 1)
        memory = [0 if c is None else c.plan.memory_bytes for c in candidates]
        return Described(
            np.array(memory, np.int64),
            numbers,
            numbers[:, -1],
            np.array([c is not None for c in candidates]),
        )

    def _guess(self, choice: Choice, candidate: Candidate) -> tuple[float, ...]:
        if choice not in self._guesses:
            columns = described_columns(self._source.subject, candidate, self._device)
            self._guesses[choice] = columns
        return self._guesses[choice]


_COLUMNS = 6


def described_columns(
    subject: Subject, candidate: Candidate, device: DeviceProfile
) -> tuple[float, ...]:
    """What is known of a candidate without running it, as logarithms: work-items, work-groups,
    local, private and intermediate bytes, launches, and last the guess of its time."""
    guess = guessed_cost(subject.require_program(), candidate, device)
    return (*_plan_columns(candidate.plan), float(np.log(guess)))


def _plan_columns(plan: HostPlan) -> tuple[float, ...]:
    """Logarithms of a plan's work-items, work-groups, bytes of each kind, and its launches."""
    items = sum(float(np.prod(launch.global_size)) for launch in plan.launches)
    groups = sum(
        float(np.prod(launch.global_size)) / float(np.prod(launch.local_size))
        for launch in plan.launches
    )
    local = max(launch.local_bytes for launch in plan.launches)
    private = max(launch.private_bytes for launch in plan.launches)
    sizes = (items, groups, local, private, plan.extra_bytes, len(plan.launches))
    return tuple(float(np.log2(1 + size)) for size in sizes)
