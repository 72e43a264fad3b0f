"""Layers recorded by many processes: some draw candidates, others build them, one is timed at
a time.

Which candidates a layer's recording holds depends on the seed alone (where no time runs out): the
chunks that processes draw have numbers, and are taken in their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Protocol

from bench.searches.layer_recording import Row, recording_of
from bench.searches.recording import Recording
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome, Timed, Timeout
from mapper.pipeline import Subject, assignment_to_json, derive_space, subject_of_layer
from mapper.rewrites.catalogue import CHAINS
from mapper.rewrites.families import Family, family_of
from mapper.solver.space import Space
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.descriptions import Description, described
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.pool import Deadlines, DeviceState
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.proposals.sample_and_change import drawn
from nestmap.tuning.reference import Workload, make_workload
from nestmap.tuning.trial import Trial, choices_key

_BUILDING_S = 30.0
#: Times the best from which on a candidate is run once only.
_SLOW = 20.0
_CHUNK = 8
#: Chunks that are drawn ahead for a layer beyond what its points need: kernels come twice.
_SPARE_CHUNKS = 4
#: Chunks in a row without a new kernel after which a space is taken as exhausted.
_BARREN = 8
_WARMUP, _REPETITIONS = 2, 9
_LOOK_S = 0.2


class TimingPool(Protocol):
    """The part of :class:`~nestmap.tuning.measuring.pool.Pool` that recording needs."""

    @property
    def waiting(self) -> int: ...
    def device(self) -> DeviceState: ...
    def begin(self, layer: LayerSpec, variant: str, workload: Workload) -> object: ...
    def submit(self, choices: Mapping[str, Any], how: Repetition) -> None: ...
    def result(self, timeout_s: float) -> Trial | None: ...
    def drop_queued(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A candidate without its kernels: these would fill the pipes between processes."""

    choice: tuple[int, ...]
    choices: Mapping[str, Any]
    description: Description
    memory_bytes: int
    source_hash: str


def record_layers(
    wanted: Sequence[tuple[LayerSpec, str]],
    pool: TimingPool,
    executor: Executor,
    *,
    points: int,
    seconds: float,
    seed: int = 0,
    after: Callable[[int], None] = lambda number: None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Recording]:
    """A recording of each layer in its variant, up to ``points`` random candidates with different
    kernels, for ``seconds`` at most each; ``executor`` draws.

    Bytes are those of the plan; what prepared launches do (packing weights) is not in the times.
    InputError where no candidate of a layer was timed; DeviceError as the pool raises it.
    """
    state = pool.device()
    assert state.profile is not None
    family = family_of(state.facts)
    draws = [
        _Draws(executor, layer, variant, state.profile, family, seed) for layer, variant in wanted
    ]
    for draw in draws:
        draw.ahead(-(-points // _CHUNK) + _SPARE_CHUNKS)
    for (layer, variant), draw in zip(wanted, draws, strict=True):
        subject, space = _space(layer, variant, state.profile)
        pool.begin(layer, variant, make_workload(subject, INPUT_SEED, {}))
        rows = _timed(pool, draw, points, clock() + seconds, clock, after)
        draw.stop()
        yield recording_of(subject, layer, state.profile, state.facts, space, rows)


def deadlines(running_s: float) -> Deadlines:
    """Of random candidates some run for seconds: they are far from the best, and all others
    wait. A first run holds what a driver compiles late (PoCL does)."""
    return Deadlines(building=_BUILDING_S, running=running_s)


def drawing_processes(count: int) -> ProcessPoolExecutor:
    """Processes for :func:`record_layers`; to be shut down by the caller."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def _timed(
    pool: TimingPool,
    draw: _Draws,
    points: int,
    ends: float,
    clock: Callable[[], float],
    after: Callable[[int], None],
) -> list[Row]:
    """What became of the drawn candidates, in the order of the draws."""
    asked: dict[str, DrawnRow] = {}
    outcomes: dict[str, Outcome] = {}
    best_ms = 0.0
    drawing = True
    while drawing or pool.waiting:
        if clock() >= ends:
            pool.drop_queued()
            drawing = False
        if drawing:
            row = draw.next(_LOOK_S)
            if row is not None:
                asked[choices_key(row.choices)] = row
                pool.submit(row.choices, Repetition(_WARMUP, _REPETITIONS, _SLOW * best_ms))
            drawing = not draw.exhausted and len(asked) < points
        while pool.waiting and (trial := pool.result(0.0 if drawing else _LOOK_S)) is not None:
            if trial.outcome is None:
                raise InputError(Problem("candidate", "has no kernels", trial.refused))
            outcomes[choices_key(trial.choices)] = trial.outcome
            if trial.time_ms is not None:
                best_ms = min(best_ms or trial.time_ms, trial.time_ms)
            after(1)
    return [
        Row(row.choice, row.description, row.memory_bytes, outcomes[key], _cost_ms(outcomes[key]))
        for key, row in asked.items()
        if key in outcomes
    ]


def _cost_ms(outcome: Outcome) -> float:
    """What building and running took, without the wait for others; 0 where that is not known."""
    match outcome:
        case Timed():
            return outcome.compile_ms + sum(outcome.trials_ns) / 1e6
        case Timeout():
            return outcome.after_s * 1e3
        case _:
            return 0.0


class _Draws:
    """The random candidates of a layer, as other processes draw them."""

    def __init__(
        self,
        executor: Executor,
        layer: LayerSpec,
        variant: str,
        profile: DeviceProfile,
        family: Family,
        seed: int,
    ) -> None:
        self.exhausted = False
        self._executor = executor
        self._of = (layer, variant, profile, family)
        self._seed = seed
        self._chunks: list[Future[list[DrawnRow]]] = []
        self._number = 0
        self._rows: list[DrawnRow] = []
        self._seen: set[str] = set()
        self._barren = 0

    def ahead(self, chunks: int) -> None:
        """Have so many more chunks drawn."""
        for _ in range(chunks):
            seed = derived_seed(self._seed, self._number) % 2**31
            self._chunks.append(self._executor.submit(draw_chunk, *self._of, _CHUNK, seed))
            self._number += 1

    def next(self, timeout_s: float) -> DrawnRow | None:
        """The next candidate; None if none is there in time, or ever (:attr:`exhausted`)."""
        while not self._rows and self._barren < _BARREN:
            if not self._chunks:
                self.ahead(_SPARE_CHUNKS)
            try:
                found = self._chunks[0].result(timeout_s)
            except TimeoutError:
                return None
            del self._chunks[0]
            for row in found:
                # By what runs, not by what was chosen: different choices may have one kernel.
                if row.source_hash not in self._seen:
                    self._seen.add(row.source_hash)
                    self._rows.append(row)
            self._barren = 0 if self._rows else self._barren + 1
        self.exhausted = not self._rows
        return self._rows.pop(0) if self._rows else None

    def stop(self) -> None:
        """Draw no more of what has not been begun."""
        for chunk in self._chunks:
            chunk.cancel()


# In drawing processes


def draw_chunk(
    layer: LayerSpec, variant: str, profile: DeviceProfile, family: Family, count: int, seed: int
) -> list[DrawnRow]:
    """Up to ``count`` random candidates; fewer where the solver reaches a limit.

    Of a blocked variant they have codes of the family and random tiles, as its searches begin
    (:mod:`nestmap.tuning.proposals.blocked_proposals`): uniform draws hardly ever suit a device.
    """
    subject, space = _space(layer, variant, profile)
    program_hash = subject.hash()
    names = [name for name, _ in space.variables]
    found: list[DrawnRow] = []
    assignments = (
        BlockedProposals(layer, variant, subject, space, profile, family, seed).propose(count)
        if variant in CHAINS
        else drawn(space, count, seed)
    )
    for assignment in assignments:
        candidate = candidate_of(0, subject, program_hash, assignment)
        found.append(
            DrawnRow(
                tuple(assignment[name] for name in names),
                assignment_to_json(assignment),
                described(subject, candidate, profile),
                candidate.plan.memory_bytes,
                candidate.record.source_hash,
            )
        )
    return found


@lru_cache(maxsize=4)
def _space(layer: LayerSpec, variant: str, profile: DeviceProfile) -> tuple[Subject, Space]:
    subject = subject_of_layer(layer, variant)
    return subject, derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
