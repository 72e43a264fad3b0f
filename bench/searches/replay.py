"""A strategy on a recording: which configurations it evaluates, and how good they are by then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.searches.layer_recording import SCHEMA as LAYER_SCHEMA
from bench.searches.layer_recording import (
    group_of_recording,
    known_columns,
    space_of_layer,
)
from bench.searches.published_kernel import known_of
from bench.searches.recording import Recording
from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.errors import InputError, Problem
from mapper.pareto.front import front_of, hypervolume
from mapper.search.candidates import Candidates, Choices, ListedCandidates, candidates_of
from mapper.search.pool import Describe, Described
from mapper.search.strategy import Outcome, Strategy
from mapper.solver.space import Space
from mapper.tuning_space.codec import SPACE_SCHEMA, space_from_json
from mapper.tuning_space.lowering import solver_space
from nestmap.tuning.descriptions import PREDICTED
from nestmap.tuning.learned import Group, LearnedModel, share_of_examples

Floats = NDArray[np.float64]
#: A point of the front must be within the reference: this much above the worst of all.
_MARGIN = 1e-3


@dataclass(frozen=True, eq=False)
class Arena:
    """What strategies get of a recording: its candidates, its space if it has one, its bytes,
    what is ``known`` of each row (rows x columns) without running it, a guess last, what was
    measured of other layers on the device (``teachers``), and the same space on other devices
    (``elsewhere``)."""

    recording: Recording
    candidates: Candidates
    space: Space | None
    known: Floats | None = None
    teachers: tuple[Group, ...] = ()
    elsewhere: tuple[Arena, ...] = ()

    @classmethod
    def of(cls, recording: Recording, others: Sequence[Recording] = ()) -> Arena:
        """Solve the recorded space, or list the recorded rows where they are only a part of it.

        Of ``others`` those :func:`teaching` it are kept. InputError if the solved space is not the
        recorded one.
        """
        if is_layer(recording):
            layer_space, recorded = space_of_layer(recording)
            listed = ListedCandidates(recorded, recording.values)
            teachers = teaching(recording, others)
            rows = slice(share_of_examples(len(teachers)))
            groups = tuple(group_of_recording(other, rows) for other in teachers)
            return cls(recording, listed, layer_space, known_columns(recording), groups)
        space = _space_of(recording)
        if space is None or not recording.complete:
            variables: list[tuple[Variable, tuple[int, ...]]] = (
                list(space.variables)
                if space is not None
                else [(ParameterVariable(name), values) for name, values in recording.variables]
            )
            return cls(recording, ListedCandidates(variables, recording.values), space)
        candidates = candidates_of(space)
        listed = candidates.listed
        found = 0 if listed is None else len(listed)
        known = listed is not None and all(tuple(r) in recording.row_of for r in listed.tolist())
        if not known or found != recording.rows:
            raise InputError(
                Problem(recording.name, "is not its whole space", f"{recording.rows} rows",
                        f"{found} valid configurations")
            )  # fmt: skip
        elsewhere = tuple(cls.of(other) for other in teaching(recording, others))
        return cls(recording, candidates, space, elsewhere=elsewhere)

    def places(self, rows: Choices) -> list[int]:
        """The recorded rows of candidates."""
        row_of = self.recording.row_of
        return [row_of[tuple(row)] for row in rows.tolist()]

    def describe(self, rows: Choices) -> Described:
        """The bytes that candidates allocate; of layers also sizes of launches and a guess."""
        places = self.places(rows)
        memory = self.recording.memory_bytes[places]
        if self.known is None:
            return Described(memory, np.zeros((len(rows), 0)))
        return Described(memory, self.known[places], self.known[places, -1])

    def describe_analytically(self, rows: Choices) -> Described:
        """As :meth:`describe`; the guess is the analytic model's time (constants of no device)."""
        described = self.describe(rows)
        return Described(described.memory_bytes, described.columns, described.columns[:, PREDICTED])

    def describe_kernel(self, rows: Choices) -> Described:
        """As :meth:`describe`, with what the published kernel's source says; no guess."""
        assert self.known_kernel is not None, "searches that need it take part elsewhere only"
        places = self.places(rows)
        return Described(self.recording.memory_bytes[places], self.known_kernel[places])

    def learned(self, seed: int) -> Describe:
        """As :meth:`describe`; the guess, which is one more column too, is what trees of this seed
        learned from the ``teachers``."""
        group = group_of_recording(self.recording)
        model = LearnedModel(self.teachers, seed)
        guesses = model.predict(group.rows, group.rows, group.parameters)

        def describe(rows: Choices) -> Described:
            described = self.describe(rows)
            guess = guesses[self.places(rows)]
            columns = np.column_stack([described.columns, guess])
            return Described(described.memory_bytes, columns, guess)

        return describe

    @cached_property
    def known_kernel(self) -> Floats | None:
        """Rows x columns of what a published kernel's source says; None where none is known."""
        return known_of(self.recording)

    @cached_property
    def reference(self) -> tuple[float, float]:
        """Above the worst recorded time and memory, as logarithms."""
        logs = self.points
        top = logs.max(axis=0)
        return float(top[0]) + _MARGIN, float(top[1]) + _MARGIN

    @cached_property
    def points(self) -> Floats:
        """Logarithms of times and bytes of the rows that were timed."""
        recording = self.recording
        timed = ~np.isnan(recording.time_ms)
        return np.stack(
            [np.log(recording.time_ms[timed]), np.log1p(recording.memory_bytes[timed])], axis=1
        )

    @cached_property
    def best_volume(self) -> float:
        """The hypervolume of everything recorded."""
        return hypervolume(front_of(self.points), self.reference)


def is_layer(recording: Recording) -> bool:
    """Whether rows are candidates of a layer, with plans that models can read."""
    return str(recording.document.get("schema")).startswith(LAYER_SCHEMA.rpartition("/")[0])


def teaching(recording: Recording, others: Iterable[Recording]) -> list[Recording]:
    """Of a layer those of other layers (in any variant, and of any size) on its device; of another
    whole space the same one on other devices."""
    if not is_layer(recording):
        return [
            other
            for other in others
            if other.complete
            and other.device != recording.device
            and other.document.get("name") == recording.document.get("name")
            and other.variables == recording.variables
        ]
    return [
        other
        for other in others
        if is_layer(other)
        and other.device == recording.device
        and layer_name(other) != layer_name(recording)
    ]


def layer_name(recording: Recording) -> str:
    """Of a recorded layer, without the variant, and without the sizes to which it was cut."""
    return recording.name.rpartition("/")[0].partition("@")[0]


def _space_of(recording: Recording) -> Space | None:
    document: Any = recording.document
    if document.get("schema") != SPACE_SCHEMA:
        return None
    return solver_space(space_from_json(dict(document)))


def replay(
    arena: Arena, make: Callable[[Arena], Strategy], evaluations: int, batch: int = 1
) -> list[int]:
    """The rows that a strategy evaluates, in order; fewer if it has no more to ask."""
    recording = arena.recording
    strategy = make(arena)
    rows: list[int] = []
    while len(rows) < evaluations:
        asked = strategy.ask(min(batch, evaluations - len(rows)))
        if not asked:
            break
        told: list[tuple[tuple[int, ...], Outcome]] = []
        for choice in asked:
            row = recording.row_of[choice]
            rows.append(row)
            told.append((choice, outcome_of(recording, row)))
        strategy.tell(told)
    return rows


def outcome_of(recording: Recording, row: int) -> Outcome:
    """What a strategy is told of a recorded row."""
    time_ms = float(recording.time_ms[row])
    memory = int(recording.memory_bytes[row])
    if np.isnan(time_ms):
        return Outcome(None, memory)
    return Outcome(time_ms, memory, float(recording.spread[row]))


def quality(recording: Recording, rows: Sequence[int], evaluations: int) -> Floats:
    """After 1, 2, … evaluations the best recorded time over the best found; 0 before any.

    A search that ended early keeps what it has.
    """
    found = np.zeros(evaluations)
    if len(rows):
        times = recording.time_ms[list(rows)[:evaluations]]
        least = np.minimum.accumulate(np.where(np.isnan(times), np.inf, times))
        found[: len(least)] = recording.best_ms / least
        found[len(least) :] = found[len(least) - 1]
    return found


def volume(arena: Arena, rows: Sequence[int], evaluations: int) -> Floats:
    """After 1, 2, … evaluations the hypervolume found over that of everything recorded."""
    recording = arena.recording
    found = np.zeros(evaluations)
    front = np.zeros((0, 2))
    share = 0.0
    for place in range(evaluations):
        if place < len(rows) and not np.isnan(recording.time_ms[rows[place]]):
            row = rows[place]
            point = [np.log(recording.time_ms[row]), np.log1p(recording.memory_bytes[row])]
            front = front_of(np.vstack([front, point]))
            share = hypervolume(front, arena.reference) / arena.best_volume
        found[place] = share
    return found


def first_at(curve: Floats, share: float) -> int | None:
    """The number of evaluations after which a curve is at least ``share``; None if never."""
    reached = np.flatnonzero(curve >= share)
    return int(reached[0]) + 1 if len(reached) else None


def seconds_of(recording: Recording, rows: Sequence[int]) -> Floats:
    """What evaluating the rows took together, after each, in seconds of the recorded machine."""
    return np.cumsum(recording.cost_ms[list(rows)]) / 1e3
