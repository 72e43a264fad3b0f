"""The tuning run: draw, generate, measure, store at once; stop at any time and go on later."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from db.records import CandidateRecord, Study
from db.store import Store
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timeout
from mapper.pipeline import Subject, assignment_from_json, derive_space
from mapper.solver.limits import Watch
from mapper.solver.space import Space, check
from mapper.tuning_records import TuningRecord
from mapper.tuning_space.where import with_where
from nestmap.stated import NOTHING_STATED, Stated
from nestmap.tuning.candidates import Candidate, Draw, rebuild
from nestmap.tuning.events import (
    CandidateMeasured,
    CandidateRefused,
    Listener,
    RunEnded,
    RunStarted,
    State,
    silent,
)
from nestmap.tuning.finalists import Final, play_final
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.policy import (
    HOPELESS,
    INPUT_SEED,
    LOCAL_TIMEOUTS,
    TUNING_PROTOCOL,
    TimeoutPolicy,
    device_identity,
)
from nestmap.tuning.progress import Point
from nestmap.tuning.proposer import Proposer, generating_processes, solving_processes
from nestmap.tuning.reference import Workload, make_workload
from nestmap.tuning.sketch_search import is_of_several
from nestmap.tuning.sketch_subjects import Tuned, as_written, is_sketch, with_suits
from nestmap.tuning.solved_ahead import SolvedAhead, SpaceOf
from nestmap.tuning.sources import Source
from nestmap.tuning.starting_points import source_of
from nestmap.tuning.strategy import MakeStrategy
from nestmap.tuning.tuner import Trial, Tuner
from worker.devices.interface import MeasuringDevice
from worker.measuring import MeasureRequest, Protocol
from worker.measuring.settings import MAX_MS

#: Of the seconds, what is kept for the final.
FINAL_SHARE = 0.15
#: Seconds after the end of its time that a candidate under way is waited for.
_GRACE_S = 1.0
#: Seconds between two looks at the clock.
_LOOK_S = 0.2
#: How long a result is waited for while the device has room for a candidate that is coming.
_GLANCE_S = 0.01
#: Candidates that wait for each process that builds, so that none has nothing to do.
_AHEAD_OF_EACH = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """When a run ends. ``candidates`` counts stored ones too, so that a finished run that is
    started again measures nothing; ``seconds`` are of this run."""

    candidates: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None and self.candidates < 1:
            raise InputError(Problem("candidates", "must be positive", str(self.candidates)))
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(Problem("seconds", "must be positive", str(self.seconds)))


NO_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class FrontEntry:
    """A point of the front with what is needed to show, write and run it."""

    time_ms: float
    memory_bytes: int
    extra_bytes: int
    candidate: str
    subject: Subject
    record: CandidateRecord
    plan: HostPlan


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What a run leaves behind. ``refused`` are assignments without a kernel: defects.
    ``finals`` are the finalists, fastest first; none where no final was asked for."""

    reason: str
    state: State
    front: tuple[FrontEntry, ...]
    device_facts: Mapping[str, str]
    refused: tuple[str, ...] = ()
    finals: tuple[Final[FrontEntry], ...] = ()

    @property
    def winner(self) -> FrontEntry | None:
        """The fastest: of the final where one was played, else by what was first measured."""
        if self.finals:
            return self.finals[0].entry
        return self.front[0] if self.front else None


def tune(
    subjects: Sequence[Tuned],
    device: MeasuringDevice,
    store: Store,
    *,
    seed: int = 0,
    budget: Budget = NO_BUDGET,
    mode: Mode = Mode.STRICT,
    stated: Stated = NOTHING_STATED,
    listener: Listener = silent,
    draw: Draw | None = None,
    make: MakeStrategy = GuidedStrategy,
    finalists: int = 0,
    most_bytes: int | None = None,
    records: Sequence[TuningRecord] = (),
    timeouts: TimeoutPolicy = LOCAL_TIMEOUTS,
    protocol: Protocol = TUNING_PROTOCOL,
    clock: Callable[[], float] = time.monotonic,
) -> TuningResult:
    """Measure candidates of all subjects (variants of one thing) until the budget ends.

    Every outcome is in the store as soon as it is known. Ctrl-C ends the run like a spent budget.
    A run with the same subjects, device and seed goes on where the last one stopped and measures
    nothing twice, but for the final: the ``finalists`` fastest are measured again in turns, in what
    is kept of the seconds for it. ``records`` are the user's own, to start from beside the shipped
    ones. What is ``stated`` holds for all that is tried, and for what counts of earlier runs; its
    options may only leave less than the default ones.

    Raises InputError, DeviceError and StoreError.
    """
    if not subjects:
        raise InputError(Problem("subjects", "there is nothing to tune"))
    space_of = partial(_space_of, mode=mode, profile=device.profile(), stated=stated)
    with _solved_ahead(subjects, device, space_of) as ahead:
        run = _Run(
            subjects, device, store, seed, mode, stated, listener, clock, budget, records, ahead
        )
        tuner = Tuner(
            run.sources,
            run.profile,
            seed,
            make=make,
            draw=draw,
            refused=run.refuse,
            watch=run.watch,
            most_bytes=most_bytes,
        )
        return run.play(tuner, finalists, timeouts, protocol)


def _space_of(subject: Subject, mode: Mode, profile: DeviceProfile, stated: Stated) -> Space:
    space = derive_space(subject, mode, profile, with_suits(subject, stated.options))
    return with_where(space, stated.where)


def _solved_ahead(
    subjects: Sequence[Tuned], device: MeasuringDevice, space_of: SpaceOf
) -> AbstractContextManager[SolvedAhead | None]:
    """Processes that derive and solve the sketches, where that takes nothing from the kernels that
    are timed."""
    processes = solving_processes(device.size) if _has_own_cores(device) else 0
    ahead = [
        index
        for index, subject in enumerate(subjects)
        if is_sketch(subject) and not is_of_several(subject)
    ]
    if not processes or len(ahead) < 2:
        return nullcontext()
    return SolvedAhead(subjects, ahead, space_of, device.profile(), min(processes, len(ahead)))


def _has_own_cores(device: MeasuringDevice) -> bool:
    """Whether what is computed here disturbs nothing that is timed."""
    return device.facts().get("device.kind") != "cpu"


@dataclass(frozen=True, slots=True)
class _Open:
    """A candidate that is being measured; ``cut_s`` are its seconds where that is less than its
    due."""

    candidate: Candidate
    cut_s: float | None

    def was_cut_off(self, outcome: Timeout) -> bool:
        """Whether it was the end of the run that stopped it, not a stage that took too long."""
        return self.cut_s is not None and outcome.after_s >= 0.9 * self.cut_s


class _Run:
    """The state of one run."""

    def __init__(
        self,
        subjects: Sequence[Tuned],
        device: MeasuringDevice,
        store: Store,
        seed: int,
        mode: Mode,
        stated: Stated,
        listener: Listener,
        clock: Callable[[], float],
        budget: Budget,
        records: Sequence[TuningRecord],
        ahead: SolvedAhead | None,
    ) -> None:
        self._budget = budget
        self._device = device
        self._store = store
        self._listener = listener
        self._clock = clock
        self._started = clock()
        self._refused: list[str] = []
        self._over = threading.Event()
        self._workloads: dict[str, Workload] = {}
        # By the identity of subjects, which live as long as the run: making out which reference is
        # theirs takes a walk over the program.
        self._references: dict[int, tuple[str, Workload]] = {}
        self._open: dict[str, _Open] = {}
        self.profile: DeviceProfile = device.profile()
        self.facts = device.facts()
        self._device_id = store.add_device(self.profile.name, device_identity(self.facts))
        self._mode, self._seed = mode, seed
        self.sources: list[Source] = []
        self._studies: dict[int, Study] = {}
        begun = self._begun_before()
        for index, subject in enumerate(subjects):
            source = source_of(
                subject,
                partial(_space_of, mode=mode, profile=self.profile, stated=stated),
                self.profile,
                self.facts,
                index=index,
                own=records,
                ahead=None if ahead is None else ahead.sketch(index),
            )
            self.sources.append(source)
            # What is not derived yet has a history only if a study has its names.
            known = isinstance(subject, Subject) or (subject.label, subject.variant) in begun
            if known and source.exists:
                source.history = self._history(source, stated)

    def _begun_before(self) -> set[tuple[str, str]]:
        """Labels and variants that there are studies of, like those of this run."""
        like = (self._device_id, self._mode.value, self._seed)
        studies = (s for s in self._store.studies() if (s.device_id, s.mode, s.seed) == like)
        return {(study.label, study.variant) for study in studies}

    def _history(
        self, source: Source, stated: Stated
    ) -> tuple[tuple[Mapping[Variable, int], Outcome, int], ...]:
        return tuple(
            (assignment, row.outcome, row.memory_bytes)
            for row in self._store.measurements(self._study_of(source))
            if (assignment := self._assignment(source.space, row.candidate_id))
            # An earlier run of the study may have had what this one is not to try.
            and (stated == NOTHING_STATED or not check(source.space, assignment))
        )

    def _study_of(self, source: Source) -> Study:
        """The study of a subject, begun or resumed."""
        if source.index not in self._studies:
            subject = source.subject
            value = subject_json(subject)
            self._studies[source.index] = self._store.open_study(
                self._store.add_program(value["schema"], json.dumps(value)),
                self._device_id,
                mode=self._mode.value,
                seed=self._seed,
                label=subject.label,
                variant=subject.variant,
            )
        return self._studies[source.index]

    def _assignment(self, space: Space, candidate: str) -> Mapping[Variable, int]:
        return assignment_from_json(space, self._store.candidate(candidate).chosen)

    def watch(self) -> Watch:
        """Lets whoever draws know when nobody waits for it any more."""
        return Watch(cancelled=self._over.is_set)

    def refuse(self, source: Source, error: NestmapError) -> None:
        """Note an assignment that has no kernel, or a space that gives none."""
        self._refused.append(f"{source.name}: {error}")
        self._listener(CandidateRefused(source.name, str(error)))

    def play(
        self, tuner: Tuner, finalists: int, timeouts: TimeoutPolicy, protocol: Protocol
    ) -> TuningResult:
        """Measure, play the final, and say what came of it."""
        self._tuner, self._stored = tuner, tuner.tried
        variants = tuple(source.name for source in self.sources)
        self._listener(RunStarted(self.profile.name, variants, tuner.tried))
        try:
            reason = self._loop(finalists, timeouts, protocol)
        except KeyboardInterrupt:
            reason = "interrupted"
        finals: tuple[Final[FrontEntry], ...] = ()
        if finalists > 1 and reason != "interrupted":
            try:
                finals = self._final(finalists, timeouts, protocol)
            except KeyboardInterrupt:
                reason = "interrupted"
        result = self._result(reason, finals)
        self._listener(RunEnded(reason, result.state))
        return result

    def _loop(self, finalists: int, timeouts: TimeoutPolicy, protocol: Protocol) -> str:
        """Keep the device busy until something ends the search; the reason.

        Where a candidate is timed on the cores that compute what is measured next, that waits.
        """
        self._share = FINAL_SHARE if finalists > 1 else 0.0
        size = self._device.size
        ahead = 1 if size == 1 else size * _AHEAD_OF_EACH
        processes = generating_processes(size) if _has_own_cores(self._device) else 0
        with Proposer(self._tuner, self.refuse, processes, self._device.beside) as proposer:
            try:
                reason = self._search(proposer, ahead, timeouts, protocol)
            except BaseException:
                # Nobody waits for what is under way: not who pressed Ctrl-C.
                self._device.drop_queued()
                raise
            finally:
                self._over.set()
            self._device.drop_queued()
            self._drain()
        return reason

    def _search(
        self,
        proposer: Proposer,
        ahead: int,
        timeouts: TimeoutPolicy,
        protocol: Protocol,
    ) -> str:
        while True:
            left_s = self._search_left_s()
            if left_s is not None and left_s <= 0:
                return "seconds"
            missing = ahead - len(self._open) - proposer.coming
            if self._budget.candidates is not None:
                left = self._budget.candidates - self._tuner.tried
                if left <= 0:
                    return "candidates"
                missing = min(missing, left - len(self._open) - proposer.coming)
            if proposer.exhausted and not self._open:
                return "exhausted"
            if missing > 0 and not self._tuner.exhausted:
                proposer.ask(missing)
            wait_s = _LOOK_S if left_s is None else min(_LOOK_S, left_s)
            candidate = proposer.next(0.0 if self._open else wait_s)
            if candidate is not None:
                self._submit(candidate, timeouts, protocol)
            elif self._open:
                self._take(_GLANCE_S if proposer.coming else wait_s)

    def _search_left_s(self) -> float | None:
        """Seconds that are left for searching."""
        if self._budget.seconds is None:
            return None
        return (1 - self._share) * self._budget.seconds - self._elapsed()

    def _submit(
        self,
        candidate: Candidate,
        timeouts: TimeoutPolicy,
        protocol: Protocol,
    ) -> None:
        best = self._tuner.tally.best
        best_ms = best.time_ms if best else None
        # The reference is made at its first use, which takes of the time.
        key, workload = self._workload_of(candidate.subject, candidate.record.parameters)
        left_s = self._search_left_s()
        timeout_s = full_s = timeouts.timeout_s(best_ms)
        if left_s is not None:
            timeout_s = max(_LOOK_S, min(full_s, left_s))
        cutoff_ms = 0.0 if best_ms is None else min(HOPELESS * best_ms, MAX_MS)
        self._open[candidate.id] = _Open(candidate, timeout_s if timeout_s < full_s else None)
        self._device.submit(
            MeasureRequest(
                candidate.plan,
                workload=key,
                candidate=candidate.id,
                tolerance=workload.tolerance,
                protocol=replace(protocol, cutoff_ms=cutoff_ms),
                timeout_s=timeout_s,
                deadlines=timeouts.deadlines(best_ms),
            )
        )

    def _take(self, wait_s: float) -> None:
        """Store what is done within the time."""
        found = self._device.result(wait_s)
        if found is None:
            return
        name, outcome = found
        under_way = self._open.pop(name, None)
        if under_way is None:
            # An earlier run on this device has not waited for it.
            return
        candidate = under_way.candidate
        if isinstance(outcome, Timeout) and under_way.was_cut_off(outcome):
            # It had less than its due: that says nothing about it, and another run may tell.
            return
        study = self._study_of(self.sources[candidate.subject_index])
        memory = candidate.plan.memory_bytes
        self._store.add_measurement(study, candidate.record, outcome, memory)
        self._tuner.tell([Trial(candidate, outcome)])
        state = self._tuner.tally.state(self._elapsed(), self._left_s())
        self._listener(CandidateMeasured(candidate.id, candidate.variant, outcome, state))

    def _drain(self) -> None:
        """Take what is under way and done soon; the rest is as if it had never been asked for."""
        deadline = time.monotonic() + _GRACE_S
        while self._device.waiting and time.monotonic() < deadline:
            self._take(0.05)

    def _workload_of(self, subject: Subject, parameters: Mapping[str, int]) -> tuple[str, Workload]:
        """The reference of a subject, made and uploaded at its first use."""
        if id(subject) not in self._references:
            self._references[id(subject)] = self._make_reference(subject, parameters)
        return self._references[id(subject)]

    def _make_reference(
        self, subject: Subject, parameters: Mapping[str, int]
    ) -> tuple[str, Workload]:
        layer = subject.layer
        # All variants of a layer, or of a program, have the same inputs and the same reference.
        plain = as_written(subject)
        key = plain.hash() if layer is None else json.dumps(layer.to_json())
        if key not in self._workloads:
            own = {p.name: parameters[p.name] for p in plain.require_program().parameters}
            workload = make_workload(plain, INPUT_SEED, own)
            self._device.upload_workload(key, workload.inputs, workload.expected)
            self._workloads[key] = workload
        return key, self._workloads[key]

    def _final(
        self, count: int, timeouts: TimeoutPolicy, protocol: Protocol
    ) -> tuple[Final[FrontEntry], ...]:
        """The fastest candidates in turns; none where nobody is near the best."""
        points = self._tuner.finalists(count)
        if not points:
            return ()
        entries = [self._entry(point) for point in points]
        began = self._clock()
        left_s = max(0.0, (self._budget.seconds or 0.0) - self._elapsed())
        allowed_s = max(left_s, FINAL_SHARE * (self._budget.seconds or self._elapsed()))
        deadline = time.monotonic() + allowed_s

        def measure(of_a_round: Sequence[FrontEntry]) -> list[Outcome | None]:
            for entry in of_a_round:
                key, workload = self._workload_of(entry.subject, entry.record.parameters)
                self._device.submit(
                    MeasureRequest(
                        entry.plan,
                        workload=key,
                        candidate=entry.candidate,
                        tolerance=workload.tolerance,
                        protocol=protocol,
                        timeout_s=timeouts.timeout_s(entry.time_ms),
                        deadlines=timeouts.deadlines(entry.time_ms),
                    )
                )
            found: dict[str, Outcome] = {}
            while self._device.waiting and time.monotonic() < deadline + _GRACE_S:
                done = self._device.result(_LOOK_S)
                if done is not None:
                    found[done[0]] = done[1]
            self._device.drop_queued()
            return [found.get(entry.candidate) for entry in of_a_round]

        return play_final(entries, measure, more=lambda: self._clock() - began < allowed_s)

    def _result(self, reason: str, finals: tuple[Final[FrontEntry], ...] = ()) -> TuningResult:
        """The front, each point rebuilt from its row in the store."""
        return TuningResult(
            reason=reason,
            state=self._tuner.tally.state(self._elapsed()),
            front=tuple(self._entry(point) for point in self._tuner.front()),
            device_facts=self.facts,
            refused=tuple(self._refused),
            finals=finals,
        )

    def _entry(self, point: Point) -> FrontEntry:
        source = self.sources[point.subject_index]
        record = self._store.candidate(point.candidate)
        plan = rebuild(source.subject, source.space, record)
        return FrontEntry(
            point.time_ms,
            point.memory_bytes,
            plan.extra_bytes,
            point.candidate,
            source.subject,
            record,
            plan,
        )

    def _left_s(self) -> float | None:
        """Until the budget ends: its seconds, or what as many candidates have taken so far."""
        elapsed, budget = self._elapsed(), self._budget
        left = [] if budget.seconds is None else [budget.seconds - elapsed]
        fresh = self._tuner.tried - self._stored
        if budget.candidates is not None and fresh > 0:
            left.append((budget.candidates - self._tuner.tried) * elapsed / fresh)
        return max(0.0, min(left)) if left else None

    def _elapsed(self) -> float:
        return self._clock() - self._started


def subject_json(subject: Subject) -> dict[str, Any]:
    """The subject's program as a versioned JSON value; InputError for a bare nest tree."""
    subject.require_program()
    return subject.to_json()
