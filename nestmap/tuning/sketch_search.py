"""The search of a program under its sketches: mappings and sizes that the solver draws.

A program of one kernel has a search for each sketch. One of several kernels has a single search
over all combinations of its kernels' structures: each kernel's solutions are drawn, ordered and
timed by themselves (:mod:`nestmap.tuning.part_search`), combinations that have a kernel alike share
what is known of it, and a candidate changes one kernel, the others being the fastest known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from statistics import median

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, NestmapError, UnsatisfiableError
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed, launch_ms
from mapper.search.goal import Goal
from mapper.solver.limits import Watch
from mapper.solver.sampling import checked
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import MOST_TOO_LARGE, Candidate, fits
from nestmap.tuning.drawing import Drawn, Opened
from nestmap.tuning.kernel_parts import KernelPart, PartKey, kernel_parts
from nestmap.tuning.part_search import PartSearch
from nestmap.tuning.progress_share import progress_share
from nestmap.tuning.sketch_subjects import PossibleSketch, Tuned
from nestmap.tuning.sources import Refused, Source

#: The fastest of each kernel together are tried where they are expected to be so much faster than
#: all that was measured.
_TOGETHER = 0.98


@dataclass(eq=False, slots=True)
class _Form:
    """One of the sources, with its parts once it is begun, and with its kernels in each part."""

    source: Source
    parts: tuple[PartSearch, ...] = ()
    kernels: tuple[frozenset[str], ...] = ()
    names: tuple[str, ...] = ()
    over: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a candidate is made of; ``fresh`` are the parts that are in it for the first time."""

    form: _Form
    chosen: tuple[Drawn, ...]
    fresh: tuple[int, ...]


@dataclass(slots=True)
class _Known:
    """What was measured of whole candidates."""

    told: int = 0
    best_ms: float = inf
    given: dict[str, _Trial] = field(default_factory=dict[str, _Trial])


class SketchSearch:
    """A :class:`~nestmap.tuning.guided.Search` of one sketch of a program, or of several: most
    promising first, and then all of them of several kernels."""

    def __init__(
        self,
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int,
        goal: Goal,
        refused: Refused,
        watch: Callable[[], Watch] = Watch,
    ) -> None:
        self.exhausted = False
        self._forms = [_Form(source) for source in sources]
        self._device = device
        self._seed = seed
        self._goal = goal
        self._refused = refused
        self._watch = watch
        self._parts: dict[PartKey, PartSearch] = {}
        self._known = _Known()

    @property
    def expected_ms(self) -> float:
        """What the fastest that was drawn of the first is expected to take, before any was timed;
        infinite where there is none."""
        form = self._forms[0]
        try:
            return sum(part.expected_ms for part in self._begun(form))
        except (UnsatisfiableError, LimitError) as error:
            self._fail(form, error)
            return inf

    def next(self) -> Candidate | None:
        """The next candidate; None where there are no more, which :attr:`exhausted` says too."""
        too_large = 0
        while too_large < MOST_TOO_LARGE:
            self._watch().look()
            trial = self._trial()
            if trial is None:
                break
            candidate = self._candidate(trial)
            if self._admits(trial.form.source, candidate):
                return candidate
            too_large += 1
        self.exhausted = True
        return None

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn what became of a candidate."""
        known = self._known
        known.told += 1
        trial = known.given.get(candidate.id)
        if trial is None:
            return
        if isinstance(outcome, Timed):
            known.best_ms = min(known.best_ms, outcome.time_ms)
            for place, time_ms in _part_times(trial, candidate, outcome).items():
                trial.form.parts[place].tell(trial.chosen[place], time_ms)
            self.exhausted = False
            for form in self._forms:
                form.over = form.failed
        elif len(trial.fresh) > 1:
            for place in trial.fresh:
                trial.form.parts[place].doubt(trial.chosen[place])

    # Which sketch, and what of it

    def _trial(self) -> _Trial | None:
        while (form := self._most_promising()) is not None:
            try:
                trial = self._trial_of(form)
            except (UnsatisfiableError, LimitError) as error:
                self._fail(form, error)
                continue
            if trial is not None:
                return trial
            form.over = True
        return None

    def _most_promising(self) -> _Form | None:
        """The sketch whose kernels may become fastest together; begun if it was not."""
        while left := [form for form in self._forms if not form.over]:
            if len(left) == 1:
                form = left[0]
            else:
                factor = self._calibration()
                form = min(left, key=lambda form: self._promised_ms(form, factor))
            if form.parts:
                return form
            try:
                self._begun(form)
                for part in form.parts:
                    part.promised_ms(1.0, 0)
            except (UnsatisfiableError, LimitError) as error:
                self._fail(form, error)
        return None

    def _promised_ms(self, form: _Form, factor: float) -> float:
        told = self._known.told
        if form.parts:
            return sum(part.promised_ms(factor, told) for part in form.parts)
        begun = [other for other in self._forms if other.parts and not other.failed]
        if not begun:
            return form.source.promise
        # What is not begun is as far behind the first as its place says.
        first = begun[0]
        of_first = sum(min(part.best_ms, factor * part.first_ms) for part in first.parts)
        behind = form.source.promise / first.source.promise
        return behind * of_first * progress_share(0, told)

    def _calibration(self) -> float:
        """How much longer kernels take than they cost, about."""
        logs = [log(c) for part in self._parts.values() if (c := part.calibration)]
        return exp(median(logs)) if logs else 1.0

    def _trial_of(self, form: _Form) -> _Trial | None:
        """New solutions of the parts that have none yet, or of the one that has most to gain; the
        others are the fastest known. None where there is nothing new."""
        told = self._known.told
        parts = form.parts
        best = [part.best for part in parts]
        lacking = [place for place, drawn in enumerate(best) if drawn is None]
        if not lacking and len(parts) > 1:
            together = _Trial(form, tuple(drawn for drawn in best if drawn), ())
            expected_ms = sum(part.best_ms for part in parts)
            if expected_ms < _TOGETHER * self._known.best_ms and not self._is_given(together):
                return together
        if not lacking:
            for place in sorted(range(len(parts)), key=lambda k: -parts[k].gain_ms(told)):
                if (drawn := parts[place].next()) is not None:
                    best[place] = drawn
                    return _Trial(form, tuple(drawn for drawn in best if drawn), (place,))
            return None
        fresh: list[int] = []
        for place in lacking:
            drawn = parts[place].next()
            if drawn is not None:
                fresh.append(place)
            # The only one there is may be under way.
            best[place] = drawn or parts[place].latest
        if not fresh or None in best:
            for place in fresh:
                if (drawn := best[place]) is not None:
                    parts[place].unused(drawn)
            return None
        return _Trial(form, tuple(drawn for drawn in best if drawn), tuple(fresh))

    def _is_given(self, trial: _Trial) -> bool:
        return self._made(trial).id in self._known.given

    # The parts of a sketch

    def _begun(self, form: _Form) -> tuple[PartSearch, ...]:
        if form.parts:
            return form.parts
        source = form.source
        program = source.subject.require_program()
        begun = None if source.ahead is None else source.ahead.begun(self._watch)
        found = begun.parts if begun else kernel_parts(program, source.space)
        searches: list[PartSearch] = []
        for number, part in enumerate(found):
            key = part.key
            if key not in self._parts:
                solve = begun.opener(number) if begun else None
                self._parts[key] = self._part_search(form, part, number, len(found), solve)
            searches.append(self._parts[key])
        form.kernels = tuple(frozenset(k.name for k in part.kernels) for part in found)
        form.names = tuple(kernel.name for kernel in program.kernels)
        form.parts = tuple(searches)
        return form.parts

    def _part_search(
        self,
        form: _Form,
        part: KernelPart,
        number: int,
        of: int,
        solve: Callable[[Watch], Opened] | None,
    ) -> PartSearch:
        source = form.source
        alone = of == 1 and len(self._forms) == 1
        # A history's candidates are tried no more; of several kernels they are told of again, which
        # takes no measurement.
        known = [assignment for assignment, _, _ in source.history] if alone else []
        seed = derived_seed(self._seed, source.program_hash, len(known) if alone else number)
        cost = part.cost(self._device)
        search = PartSearch(part.space, cost, seed, known, self._watch, solve, part.idle)
        names = [name for name, _ in part.space.variables]
        search.begin_with({name: found[name] for name in names} for found in source.known)
        return search

    # Candidates

    def _made(self, trial: _Trial) -> Candidate:
        source = trial.form.source
        whole: dict[Variable, int] = {}
        for drawn in trial.chosen:
            whole |= drawn.assignment
        ordered = {variable: whole[variable] for variable, _ in source.space.variables}
        return Candidate(source.index, source.subject, source.program_hash, ordered)

    def _candidate(self, trial: _Trial) -> Candidate:
        """A solution as a candidate, after plain Python agreed that it is one."""
        candidate = self._made(trial)
        checked(trial.form.source.space, dict(candidate.assignment))
        self._known.given[candidate.id] = trial
        return candidate

    def _admits(self, source: Source, candidate: Candidate) -> bool:
        try:
            return fits(candidate, self._goal)
        except InputError as error:
            self._refused(source, error)
            return False

    def _fail(self, form: _Form, error: NestmapError) -> None:
        form.over = form.failed = True
        self._refused(form.source, error)


def _part_times(trial: _Trial, candidate: Candidate, outcome: Timed) -> dict[int, float]:
    """What each part took, by its launches; where they were not timed one by one, what the others
    are known to take goes off the sum, and the rest is of what is new, by what it costs."""
    form = trial.form
    if len(form.parts) == 1:
        return {0: outcome.time_ms}
    by_kernel = _kernel_times(form.names, candidate.plan, outcome)
    if by_kernel is not None:
        return {
            place: sum(by_kernel[name] for name in names)
            for place, names in enumerate(form.kernels)
        }
    known = [k for k in range(len(form.parts)) if k not in trial.fresh]
    rest_ms = outcome.time_ms - sum(form.parts[k].best_ms for k in known)
    costs = {k: trial.chosen[k].cost_ms for k in trial.fresh}
    return {k: rest_ms * cost / sum(costs.values()) for k, cost in costs.items()}


def _kernel_times(
    names: Sequence[str], plan: HostPlan, outcome: Timed
) -> Mapping[str, float] | None:
    """By kernel of the program; of those that are prepared no time at all. None where the launches
    were not timed one by one."""
    found: dict[str, float] = {}
    for name, launch in zip(names, plan.launches, strict=True):
        time_ms = 0.0 if launch.prepared else launch_ms(outcome, launch.kernel)
        if time_ms is None:
            return None
        found[name] = time_ms
    return found


def is_of_several(subject: Tuned) -> bool:
    """Whether a subject is a combination of structures of a program's kernels, or of kernels that
    copy its views."""
    scheduled = None if isinstance(subject, PossibleSketch) else subject.scheduled
    return scheduled is not None and (
        len(scheduled.program.kernels) > 1
        or any(use.primitive == "copy_views" for use in scheduled.schedule.uses)
    )
