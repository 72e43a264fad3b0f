"""The tuning run: draw, generate, measure, store at once; stop at any time and go on later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.records import CandidateRecord, Study
from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timeout
from mapper.pipeline import Subject, assignment_from_json, derive_space
from mapper.solver.space import Space
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
from nestmap.tuning.finalists import NEAR, Final, play_final
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.policy import (
    DEFAULT_TIMEOUTS,
    INPUT_SEED,
    TUNING_PROTOCOL,
    TimeoutPolicy,
    device_identity,
)
from nestmap.tuning.progress import Point, Tally
from nestmap.tuning.reference import Workload, make_workload
from nestmap.tuning.starting_points import starting_candidates
from nestmap.tuning.strategy import Refused, Source, Strategy
from worker.devices.interface import MeasuringDevice
from worker.measuring import Protocol

#: Of the seconds, what the final may take beyond them.
FINAL_SHARE = 0.1


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


#: ``make(sources, device, seed, draw, refused)``; without ``draw`` a strategy draws itself.
MakeStrategy = Callable[[Sequence[Source], DeviceProfile, int, Draw | None, Refused], Strategy]


def tune(
    subjects: Sequence[Subject],
    device: MeasuringDevice,
    store: Store,
    *,
    seed: int = 0,
    budget: Budget = NO_BUDGET,
    mode: Mode = Mode.STRICT,
    options: RuleOptions = DEFAULT_OPTIONS,
    listener: Listener = silent,
    draw: Draw | None = None,
    make: MakeStrategy = GuidedStrategy,
    finalists: int = 0,
    timeouts: TimeoutPolicy = DEFAULT_TIMEOUTS,
    protocol: Protocol = TUNING_PROTOCOL,
    clock: Callable[[], float] = time.monotonic,
) -> TuningResult:
    """Measure candidates of all subjects (variants of one thing) in turns until the budget ends.

    Every outcome is in the store before the next candidate starts. Ctrl-C ends the run like
    a spent budget. A run with the same subjects, device and seed goes on where the last one
    stopped and measures nothing twice, but for the final: the ``finalists`` fastest are measured
    again in turns, within what is left of the seconds or a tenth of them. Raises InputError,
    DeviceError and StoreError.
    """
    if not subjects:
        raise InputError(Problem("subjects", "there is nothing to tune"))
    run = _Run(subjects, device, store, seed, mode, options, listener, clock, budget)
    strategy = make(run.sources, run.profile, seed, draw, run.refuse)
    try:
        reason = run.loop(strategy, budget, timeouts, protocol)
    except KeyboardInterrupt:
        reason = "interrupted"
    finals: tuple[Final[FrontEntry], ...] = ()
    if finalists > 1 and reason != "interrupted":
        try:
            finals = run.final(finalists, budget, timeouts, protocol)
        except KeyboardInterrupt:
            reason = "interrupted"
    result = run.result(reason, finals)
    listener(RunEnded(reason, result.state))
    return result


class _Run:
    """The state of one run."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        device: MeasuringDevice,
        store: Store,
        seed: int,
        mode: Mode,
        options: RuleOptions,
        listener: Listener,
        clock: Callable[[], float],
        budget: Budget,
    ) -> None:
        self._budget = budget
        self._device = device
        self._store = store
        self._listener = listener
        self._clock = clock
        self._started = clock()
        self._refused: list[str] = []
        self._workloads: dict[str, Workload] = {}
        self.profile: DeviceProfile = device.profile()
        self.facts = device.facts()
        device_id = store.add_device(self.profile.name, device_identity(self.facts))
        variants = tuple(subject.variant or subject.label for subject in subjects)
        self._tally = Tally(variants)
        self._measured: list[dict[str, Outcome]] = []
        self.sources: list[Source] = []
        self.studies: list[Study] = []
        for index, subject in enumerate(subjects):
            value = subject_json(subject)
            program_hash = store.add_program(value["schema"], json.dumps(value))
            study = store.open_study(
                program_hash,
                device_id,
                mode=mode.value,
                seed=seed,
                label=subject.label,
                variant=subject.variant,
            )
            self.studies.append(study)
            stored = store.measurements(study)
            self._measured.append({row.candidate_id: row.outcome for row in stored})
            for row in stored:
                self._tally.add(index, row.candidate_id, row.outcome, row.memory_bytes)
            space = derive_space(subject, mode, self.profile, options)
            known = starting_candidates(subject, space, self.profile, self.facts)
            history = tuple(
                (self._assignment(space, row.candidate_id), row.outcome, row.memory_bytes)
                for row in stored
            )
            self.sources.append(
                Source(index, subject, space, program_hash, len(stored), known, history)
            )
        self._stored = self._tally.tried
        listener(RunStarted(self.profile.name, variants, self._tally.tried))

    def _assignment(self, space: Space, candidate: str) -> Mapping[Variable, int]:
        return assignment_from_json(space, self._store.candidate(candidate).chosen)

    def refuse(self, source: Source, error: NestmapError) -> None:
        """Note an assignment that has no kernel, or a space that gives none."""
        variant = source.subject.variant or source.subject.label
        self._refused.append(f"{variant}: {error}")
        self._listener(CandidateRefused(variant, str(error)))

    def loop(
        self,
        strategy: Strategy,
        budget: Budget,
        timeouts: TimeoutPolicy,
        protocol: Protocol,
    ) -> str:
        """Measure until something ends the run; the reason."""
        while True:
            if budget.candidates is not None and self._tally.tried >= budget.candidates:
                return "candidates"
            if budget.seconds is not None and self._elapsed() >= budget.seconds:
                return "seconds"
            candidate = strategy.ask()
            if candidate is None:
                return "exhausted"
            stored = self._measured[candidate.subject_index].get(candidate.id)
            if stored is not None:
                strategy.tell(candidate, stored)
                continue
            timeout_s = timeouts.timeout_s(self._tally.best.time_ms if self._tally.best else None)
            left_s = timeout_s
            if budget.seconds is not None:
                left_s = budget.seconds - self._elapsed()
                if left_s <= 0:
                    return "seconds"
            if not self._measure(candidate, strategy, min(timeout_s, left_s), timeout_s, protocol):
                return "seconds"

    def _measure(
        self,
        candidate: Candidate,
        strategy: Strategy,
        timeout_s: float,
        full_timeout_s: float,
        protocol: Protocol,
    ) -> bool:
        """Measure and store; False when the run's end cut the candidate off."""
        key, workload = self._workload(candidate)
        outcome = self._device.measure(
            candidate.plan,
            workload=key,
            candidate=candidate.id,
            tolerance=workload.tolerance,
            protocol=protocol,
            timeout_s=timeout_s,
        )
        if isinstance(outcome, Timeout) and timeout_s < full_timeout_s:
            # It had less than its due: that says nothing about it, and another run may tell.
            return False
        study = self.studies[candidate.subject_index]
        self._store.add_measurement(study, candidate.record, outcome, candidate.plan.memory_bytes)
        self._measured[candidate.subject_index][candidate.id] = outcome
        memory = candidate.plan.memory_bytes
        self._tally.add(candidate.subject_index, candidate.id, outcome, memory)
        strategy.tell(candidate, outcome)
        state = self._tally.state(self._elapsed(), self._left_s())
        self._listener(CandidateMeasured(candidate.id, candidate.variant, outcome, state))
        return True

    def _workload(self, candidate: Candidate) -> tuple[str, Workload]:
        subject = self.sources[candidate.subject_index].subject
        return self._workload_of(subject, candidate.record.parameters)

    def _workload_of(self, subject: Subject, parameters: Mapping[str, int]) -> tuple[str, Workload]:
        """The reference of a subject, made and uploaded at its first use."""
        layer = subject.layer
        # All variants of a layer have the same inputs and the same reference.
        key = subject.hash() if layer is None else json.dumps(layer.to_json())
        if key not in self._workloads:
            workload = make_workload(subject, INPUT_SEED, dict(parameters))
            self._device.upload_workload(key, workload.inputs, workload.expected)
            self._workloads[key] = workload
        return key, self._workloads[key]

    def final(
        self, count: int, budget: Budget, timeouts: TimeoutPolicy, protocol: Protocol
    ) -> tuple[Final[FrontEntry], ...]:
        """The fastest candidates in turns; none where nobody is near the best."""
        best = self._tally.best
        near = [p for p in self._tally.fastest if best and p.time_ms <= NEAR * best.time_ms]
        if best is None or len(near) < 2:
            return ()
        entries = [self._entry(point) for point in near[:count]]
        timeout_s = timeouts.timeout_s(best.time_ms)
        started = self._clock()
        left_s = max(0.0, (budget.seconds or 0.0) - self._elapsed())
        allowed_s = max(left_s, FINAL_SHARE * (budget.seconds or self._elapsed()))

        def measure(entry: FrontEntry) -> Outcome:
            key, workload = self._workload_of(entry.subject, entry.record.parameters)
            return self._device.measure(
                entry.plan,
                workload=key,
                candidate=entry.candidate,
                tolerance=workload.tolerance,
                protocol=protocol,
                timeout_s=timeout_s,
            )

        return play_final(entries, measure, more=lambda: self._clock() - started < allowed_s)

    def result(self, reason: str, finals: tuple[Final[FrontEntry], ...] = ()) -> TuningResult:
        """The front, each point rebuilt from its row in the store."""
        return TuningResult(
            reason=reason,
            state=self._tally.state(self._elapsed()),
            front=tuple(self._entry(point) for point in self._tally.front),
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
        fresh = self._tally.tried - self._stored
        if budget.candidates is not None and fresh > 0:
            left.append((budget.candidates - self._tally.tried) * elapsed / fresh)
        return max(0.0, min(left)) if left else None

    def _elapsed(self) -> float:
        return self._clock() - self._started


def subject_json(subject: Subject) -> dict[str, Any]:
    """The subject's program as a versioned JSON value; InputError for a bare nest tree."""
    subject.require_program()
    return subject.to_json()
