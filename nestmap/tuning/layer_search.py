"""The search for a layer's fastest kernels: propose, build in parallel, time in turns, keep."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.measurement import Timed
from mapper.pipeline import Subject, assignment_to_json, derive_space, subject_of_layer
from mapper.rewrites.catalogue import CHAINS
from mapper.rewrites.families import family_of
from mapper.solver.restrictions import narrowed
from mapper.solver.space import Space
from mapper.tuning_records import TuningRecord, nearest, records_of
from nestmap.restrictions import read_restrictions
from nestmap.source_commit import commit
from nestmap.tuning.journal import Journal
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.pool import Pool
from nestmap.tuning.measuring.span import interquartile
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.proposals.sample_and_change import (
    Assignment,
    Proposals,
    SampleAndChange,
    readable,
    solver_processes,
)
from nestmap.tuning.proposals.shorter_vectors import fitting
from nestmap.tuning.reference import make_workload
from nestmap.tuning.same_turns import may_go_on, together
from nestmap.tuning.trial import Trial, choices_key, layer_key

INPUT_SEED = 0
#: A candidate that is this much slower than the best is run once only.
HOPELESS = 4.0
#: Milliseconds over which a candidate is run once only while no time is known.
_UNKNOWN_MS = 20.0
#: How many of the best, and of the best without extra memory, are timed again at the end.
_CONFIRMED = 8
_CONFIRMED_LEAN = 4
#: In turns: what slows a machine down for a while slows all of them down.
CONFIRMING = Repetition(warmup=10, repetitions=10, exact=True)
CONFIRMING_TURNS = 3
_QUEUED_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """When the search of one layer in one variant ends: whichever comes first. ``candidates``
    counts those of the journal, ``seconds`` are of this run."""

    seconds: float | None = None
    candidates: int | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a search may choose from: ``--pin`` and ``--forbid`` as they are written."""

    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()


@dataclass(slots=True)
class Progress:
    """How far a search is."""

    layer: LayerSpec
    variant: str
    kinds: Counter[str] = field(default_factory=Counter[str])
    best: Trial | None = None
    best_lean: Trial | None = None
    tried: int = 0
    seconds: float = 0.0

    def add(self, trial: Trial) -> None:
        """Count a trial."""
        self.tried += 1
        self.kinds[trial.kind] += 1
        if trial.time_ms is None:
            return
        if self.best is None or trial.time_ms < (self.best.time_ms or 0.0):
            self.best = trial
        lean = trial.extra_bytes == 0
        if lean and (self.best_lean is None or trial.time_ms < (self.best_lean.time_ms or 0.0)):
            self.best_lean = trial

    def text(self) -> str:
        """One line for people."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        best = "nothing timed yet"
        if self.best is not None and self.best.time_ms is not None:
            rate = tflops(self.layer, self.best.time_ms)
            best = f"best {self.best.time_ms:.4g} ms ({rate:.3g} TFLOP/s)"
        speed = self.tried / self.seconds if self.seconds > 0 else 0.0
        return (
            f"{self.layer.name} {self.variant}: {self.tried} tried ({kinds}), {best}, "
            f"{speed:.1f} candidates/s"
        )


Listener = Callable[[Progress], None]


def tflops(layer: LayerSpec, time_ms: float) -> float:
    """10^12 floating-point operations a second, a multiply and an add each counted."""
    return layer.operations / max(time_ms, 1e-9) / 1e9


def solver_count(workers: int) -> int:
    """Processes that propose beside so many that build."""
    return max(1, min(workers // 4, (os.cpu_count() or 2) // 4))


@dataclass(frozen=True, slots=True)
class Quest:
    """One search: a layer in a variant with its space."""

    layer: LayerSpec
    variant: str
    subject: Subject
    space: Space
    profile: DeviceProfile

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return layer_key(self.layer, self.variant)


def quest(layer: LayerSpec, variant: str, profile: DeviceProfile, wish: Wish = Wish()) -> Quest:
    """Derive the space of a layer in a variant under pins; raises InputError."""
    subject = subject_of_layer(layer, variant)
    space = derive_space(subject, Mode.STRICT, profile, RuleOptions())
    if wish.pins or wish.forbids:
        space = narrowed(space, read_restrictions(space, wish.pins, wish.forbids))
    return Quest(layer, variant, subject, space, profile)


def search(
    wanted: Quest,
    pool: Pool,
    journal: Journal,
    budget: Budget,
    *,
    known: Sequence[TuningRecord] = (),
    seed: int = 0,
    listener: Listener = lambda progress: None,
    proposals: Proposals | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[TuningRecord]:
    """Search until the budget ends, time the best again, and return them as records.

    Every trial is in the journal before it counts; those that are there already are not made
    again. Records of the layer among ``known`` are tried first and timed again. Ctrl-C ends a
    search like a spent budget, and then again. Raises DeviceError where the device fails.
    """
    run = _Run(wanted, pool, journal, listener, clock)
    seconds = budget.seconds
    pool.begin(wanted.layer, wanted.variant, make_workload(wanted.subject, INPUT_SEED, {}))
    of_layer = (r for r in records_of(known, wanted.layer) if r.variant == wanted.variant)
    stored = [r.choices for r in nearest(of_layer, wanted.profile.target)]
    firsts = fitting(wanted.subject, wanted.space, wanted.profile, stored)
    executor = None
    if proposals is None and wanted.variant in CHAINS:
        proposals = BlockedProposals(
            wanted.layer,
            wanted.variant,
            wanted.subject,
            wanted.space,
            wanted.profile,
            family_of(pool.device().facts),
            seed,
            firsts,
            recoded=True,
        )
    if proposals is None:
        # On a machine of two cores a process more would only be in the way of the timed ones.
        if pool.size > 2:
            executor = solver_processes(wanted.space, solver_count(pool.size))
        proposals = SampleAndChange(wanted.space, seed, firsts, executor)
    try:
        run.resume(proposals)
        run.loop(proposals, seconds, budget.candidates)
    except KeyboardInterrupt:
        listener(run.progress)
    finally:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
    pool.drop_queued()
    run.drain()
    return run.confirmed(firsts)


class _Run:
    """The state of one search."""

    def __init__(
        self,
        wanted: Quest,
        pool: Pool,
        journal: Journal,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._quest = wanted
        self._pool = pool
        self._journal = journal
        self._listener = listener
        self._clock = clock
        self._started = clock()
        self._open: dict[str, Assignment] = {}
        self._done: dict[str, Trial] = {}
        self._made = 0
        self.progress = Progress(wanted.layer, wanted.variant)

    def resume(self, proposals: Proposals) -> None:
        """Take over what the journal has of this quest."""
        trials = self._journal.trials(self._quest.key)
        by_key = {choices_key(trial.choices): trial for trial in trials}
        # Pins of this run may leave some of them out.
        for assignment in readable(self._quest.space, [t.choices for t in trials]):
            key = choices_key(assignment_to_json(assignment))
            if key in by_key:
                self._done[key] = by_key[key]
                self.progress.add(by_key[key])
                proposals.tell([(assignment, by_key[key])])

    def loop(self, proposals: Proposals, seconds: float | None, candidates: int | None) -> None:
        """Keep the pool busy until the budget ends or there is nothing new."""
        ahead = self._pool.size * _QUEUED_AHEAD + 2
        exhausted = False
        while seconds is None or self._clock() - self._started < seconds:
            room = ahead - len(self._open)
            if candidates is not None:
                room = min(room, candidates - len(self._done) - len(self._open))
            if room > 0 and not exhausted and len(self._open) <= ahead - self._pool.size // 2:
                exhausted = not self._submit(proposals.propose(room))
            if not self._open:
                if exhausted or (candidates is not None and len(self._done) >= candidates):
                    return
                continue
            self._take(proposals, 1.0)

    def _submit(self, assignments: Sequence[Assignment]) -> bool:
        for assignment in assignments:
            choices = assignment_to_json(assignment)
            key = choices_key(choices)
            if key in self._done or key in self._open:
                continue
            self._open[key] = assignment
            self._pool.submit(choices, self._how())
        return bool(assignments)

    def _how(self) -> Repetition:
        best = self.progress.best
        cutoff = _UNKNOWN_MS if best is None or best.time_ms is None else HOPELESS * best.time_ms
        return Repetition(cutoff_ms=cutoff)

    def _take(self, proposals: Proposals | None, timeout_s: float) -> bool:
        trial = self._pool.result(timeout_s)
        if trial is None:
            return False
        key = choices_key(trial.choices)
        assignment = self._open.pop(key)
        self._journal.add(self._quest.key, trial)
        self._done[key] = trial
        self._made += 1
        self.progress.add(trial)
        self.progress.seconds = self._clock() - self._started
        if proposals is not None:
            proposals.tell([(assignment, trial)])
        self._listener(self.progress)
        return True

    def drain(self) -> None:
        """Take what is still being measured; what was only queued is gone."""
        while self._pool.waiting:
            self._take(None, 1.0)
        self._open.clear()

    def confirmed(self, firsts: Sequence[Assignment]) -> list[TuningRecord]:
        """The best and the records timed again, longer, in a quiet pool; verified exactly."""
        timed = sorted(
            (trial for trial in self._done.values() if trial.time_ms is not None),
            key=lambda trial: trial.time_ms or 0.0,
        )
        lean = [trial for trial in timed if trial.extra_bytes == 0]
        chosen = {
            choices_key(choices): choices
            for choices in (
                *(trial.choices for trial in timed[:_CONFIRMED]),
                *(trial.choices for trial in lean[:_CONFIRMED_LEAN]),
                *(assignment_to_json(assignment) for assignment in firsts),
            )
        }
        facts = self._pool.device().facts
        records = (record_of(self._quest, trial, facts) for trial in self._in_turns(chosen))
        return [record for record in records if record is not None]

    def _in_turns(self, chosen: Mapping[str, Mapping[str, Any]]) -> list[Trial]:
        """Each of these with its times of all turns; as it failed if it did in one."""
        turns: dict[str, list[Trial]] = {key: [] for key in chosen}
        for _ in range(CONFIRMING_TURNS):
            for key, choices in chosen.items():
                if may_go_on(turns[key]):
                    turns[key].append(timed_alone(self._pool, choices))
        return list(together(turns).values())


def timed_alone(pool: Pool, choices: Mapping[str, Any]) -> Trial:
    """One at a time, so that nobody compiles beside a kernel that is timed."""
    pool.submit(choices, CONFIRMING)
    trial = None
    while trial is None:
        trial = pool.result(1.0)
    return trial


def record_of(
    wanted: Quest, trial: Trial, facts: Mapping[str, str], made_by: str = ""
) -> TuningRecord | None:
    """A trial that was timed and verified exactly, as a record; None of any other."""
    if not isinstance(trial.outcome, Timed):
        return None
    outcome = trial.outcome
    return TuningRecord(
        layer=wanted.layer,
        variant=wanted.variant,
        choices=dict(trial.choices),
        time_ms=outcome.time_ms,
        spread=round(interquartile(list(outcome.trials_ns)), 4),
        trials=len(outcome.trials_ns),
        tflops=round(tflops(wanted.layer, outcome.time_ms), 4),
        extra_bytes=trial.extra_bytes,
        prepared_bytes=trial.prepared_bytes,
        relative_error=trial.relative_error,
        source_hash=trial.source_hash,
        device=facts.get("device.name", ""),
        driver=facts.get("driver.version", ""),
        target=facts.get("device.target", ""),
        commit=made_by or commit(),
        date=datetime.now(UTC).date().isoformat(),
    )
