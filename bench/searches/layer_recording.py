"""Recordings of layers: random candidates of a variant's space, each measured on a device.

The space cannot be listed, so a recording holds a sample of it, drawn as ``nestmap solve --sample``
draws, chosen by no search. Its document names layer, variant and device, from which the space is
derived again, and keeps what ``nestmap tune`` knows of each candidate without running it. Where
there is no such variant any more (those of the convolution template) it keeps what its variables
were and the sizes that its constraints spoke of, too: a search replays on these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.searches.recording import Recording
from bench.searches.terms import constraint_on, term_from_json, variable_of
from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome, Timed, Timeout, outcome_kind
from mapper.pipeline import Subject, derive_space, subject_of_layer
from mapper.profiles import profile_from_json, profile_to_json
from mapper.search.candidates import SolvedCandidates
from mapper.search.strategy import Choice
from mapper.solver.limits import Watch
from mapper.solver.space import Domain, Space
from nestmap.restrictions import option_name
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import Candidate, Draw, candidate_of
from nestmap.tuning.descriptions import Description, described
from nestmap.tuning.events import CandidateMeasured, Event
from nestmap.tuning.learned import Group
from nestmap.tuning.policy import TimeoutPolicy
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sources import Refused, Source
from nestmap.tuning.strategy import Strategy
from nestmap.tuning.transfer_features import transfer_row
from worker.devices.interface import MeasuringDevice

SCHEMA = "nestmap/recorded-layer/3"
#: Candidates drawn at a time.
_DRAWN = 32
#: Draws in a row without a new candidate after which a space is taken as exhausted.
_BARREN = 3
#: Seconds that a driver may build a candidate, and that one may take in all: at least and at most,
#: and in times of the best.
_BUILDING_S = 30.0
_LEAST_S, _MOST_S, _FACTOR = 30.0, 60.0, 20.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """A measured candidate: its values in the order of the space, what is known of it without
    running it, its bytes, and what became of it at which cost."""

    choice: Choice
    description: Description
    memory_bytes: int
    outcome: Outcome
    cost_ms: float


def record_layer(
    layer: LayerSpec,
    variant: str,
    device: MeasuringDevice,
    *,
    points: int,
    seconds: float,
    seed: int = 0,
    running_s: float = 5.0,
    after: Callable[[int], None] = lambda number: None,
    clock: Callable[[], float] = time.monotonic,
) -> Recording:
    """Measure up to ``points`` random candidates with different kernels, for ``seconds`` at most.

    Which these are depends on the seed alone, where no time runs out. Ctrl-C ends it with what
    there is. Of random candidates some run for seconds: those that take more than ``running_s``
    are given up. ``after`` is told the number of candidates so far. Bytes are those of the plan;
    what prepared launches do is not in the times. InputError where none of them was timed.
    """
    subject = subject_of_layer(layer, variant)
    asked: dict[str, Candidate] = {}
    outcomes: dict[str, Outcome] = {}
    spaces: list[Space] = []

    def hear(event: Event) -> None:
        if isinstance(event, CandidateMeasured):
            outcomes[event.candidate] = event.outcome
            after(len(outcomes))

    def make(
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int,
        draw: Draw | None,
        refused: Refused,
        *,
        watch: Callable[[], Watch],
    ) -> Strategy:
        spaces.append(sources[0].space)
        return _RandomCandidates(sources[0], seed, asked, watch)

    with TemporaryDirectory(prefix="nestmap-recording-") as folder:
        path = Path(folder) / "recording.sqlite3"
        with Store.open(path) as store:
            tune(
                [subject],
                device,
                store,
                seed=seed,
                budget=Budget(points, seconds),
                listener=hear,
                make=make,
                timeouts=TimeoutPolicy(_LEAST_S, _MOST_S, _FACTOR, _BUILDING_S, running_s),
                clock=clock,
            )
    profile, (space,) = device.profile(), spaces
    names = [name for name, _ in space.variables]
    rows = [
        Row(
            tuple(candidate.assignment[name] for name in names),
            described(subject, candidate, profile),
            candidate.plan.memory_bytes,
            outcomes[candidate.id],
            _cost_ms(outcomes[candidate.id]),
        )
        for candidate in asked.values()
        if candidate.id in outcomes
    ]
    return recording_of(subject, layer, profile, device.facts(), space, rows)


def _cost_ms(outcome: Outcome) -> float:
    """What building and running took, without the wait for others; 0 where that is not known."""
    match outcome:
        case Timed():
            return outcome.compile_ms + sum(outcome.trials_ns) / 1e6
        case Timeout():
            return outcome.after_s * 1e3
        case _:
            return 0.0


class _RandomCandidates:
    """A strategy that learns nothing: random candidates with different kernels, in ``asked``
    too."""

    def __init__(
        self,
        source: Source,
        seed: int,
        asked: dict[str, Candidate],
        watch: Callable[[], Watch],
    ) -> None:
        self._source = source
        self._seed = seed
        self._asked = asked
        self._watch = watch
        self._drawn: list[Mapping[Variable, int]] = []
        self._seen: set[str] = set()
        self._number = 0

    def ask(self) -> Candidate | None:
        """The next candidate; None once nothing new is drawn any more."""
        barren = 0
        while barren < _BARREN:
            if not self._drawn:
                self._drawn = self._draw(derived_seed(self._seed, self._number) % 2**31)
                self._number += 1
                barren += 1
            while self._drawn:
                source = self._source
                candidate = candidate_of(
                    source.index, source.subject, source.program_hash, self._drawn.pop(0)
                )
                # By what runs, not by what was chosen: different choices may have one kernel.
                if candidate.record.source_hash not in self._seen:
                    self._seen.add(candidate.record.source_hash)
                    self._asked[candidate.id] = candidate
                    return candidate
        return None

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Nothing is learned."""

    def _draw(self, seed: int) -> list[Mapping[Variable, int]]:
        space = self._source.space
        names = [name for name, _ in space.variables]
        drawn = SolvedCandidates(space, self._watch).draw(_DRAWN, seed)
        return [dict(zip(names, choice, strict=True)) for choice in drawn]


def recording_of(
    subject: Subject,
    layer: LayerSpec,
    profile: DeviceProfile,
    facts: Mapping[str, str],
    space: Space,
    rows: Sequence[Row],
) -> Recording:
    """The rows as a recording of a layer's variant on a device; InputError where none is timed."""
    if not any(isinstance(row.outcome, Timed) for row in rows):
        raise InputError(Problem(layer.name, "no candidate was timed", f"{len(rows)} tried"))
    values = np.array([row.choice for row in rows], np.int64)
    variables = tuple(
        (option_name(variable), tuple(np.unique(values[:, place]).tolist()))
        for place, (variable, _) in enumerate(space.variables)
    )
    positions = [
        np.searchsorted(np.array(found), values[:, place])
        for place, (_, found) in enumerate(variables)
    ]
    times = [row.outcome.time_ms if isinstance(row.outcome, Timed) else np.nan for row in rows]
    return Recording(
        f"{layer.name}/{subject.variant}",
        facts.get("device.name", profile.name),
        "nestmap bench search record",
        "",
        {
            "schema": SCHEMA,
            "layer": layer.to_json(),
            "variant": subject.variant,
            "profile": profile_to_json(profile),
            "facts": {name: facts[name] for name in sorted(facts) if "version" in name},
            **_described_json([row.description for row in rows], profile),
        },
        variables,
        np.stack(positions, axis=1).astype(np.int64),
        np.array(times, np.float64),
        {
            number: outcome_kind(row.outcome)
            for number, row in enumerate(rows)
            if not isinstance(row.outcome, Timed)
        },
        np.array([_spread(row.outcome) for row in rows]),
        np.array([row.cost_ms for row in rows]),
        np.array([row.memory_bytes for row in rows], np.int64),
        False,
    )


def _described_json(rows: Sequence[Description], profile: DeviceProfile) -> dict[str, Any]:
    return {
        "known": [_rounded(row.columns()) for row in rows],
        "features": [_rounded(transfer_row(row, profile)) for row in rows],
        "parameters": list(rows[0].parameter_names),
    }


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 3) for value in values]


def _spread(outcome: Outcome) -> float:
    if not isinstance(outcome, Timed) or len(outcome.trials_ns) < 4:
        return 0.0
    low, middle, high = np.quantile(np.array(outcome.trials_ns, np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / 2 / middle)


def is_archived(recording: Recording) -> bool:
    """Whether a layer's program cannot be made any more."""
    return "terms" in recording.document


def space_of_layer(recording: Recording) -> tuple[Space, list[tuple[Variable, Domain]]]:
    """The space that a layer was recorded from, and its variables with the recorded values; of one
    whose program cannot be made any more what was kept of it.

    InputError where today's rules give that layer other variables.
    """
    document: Any = recording.document
    if is_archived(recording):
        return _archived_space(recording)
    try:
        subject = subject_of_layer(LayerSpec.from_json(document["layer"]), document["variant"])
        profile = profile_from_json(document["profile"])
    except (KeyError, TypeError) as error:
        raise InputError(Problem(recording.name, "names no layer", str(error)[:200])) from error
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    names = [option_name(variable) for variable, _ in space.variables]
    recorded = [name for name, _ in recording.variables]
    if names != recorded:
        other = ", ".join(sorted(set(names) ^ set(recorded))) or "another order"
        raise InputError(Problem(recording.name, "was recorded from other variables", other))
    pairs = zip(space.variables, recording.variables, strict=True)
    return space, [(variable, values) for (variable, _), (_, values) in pairs]


def _archived_space(recording: Recording) -> tuple[Space, list[tuple[Variable, Domain]]]:
    document: Any = recording.document
    kinds, terms = document.get("kinds", ()), document["terms"]
    if len(kinds) != len(recording.variables):
        raise InputError(Problem(recording.name, "what its variables are", str(len(kinds)),
                                 str(len(recording.variables))))  # fmt: skip
    entries: list[tuple[Variable, Domain]] = [
        (variable_of(name, kind), values)
        for (name, values), kind in zip(recording.variables, kinds, strict=True)
    ]
    by_text = {str(variable): variable for variable, _ in entries}
    constraints = tuple(
        constraint_on(term_from_json(term, by_text), number) for number, term in enumerate(terms)
    )
    return Space(tuple(entries), constraints), entries


def described_rows(recording: Recording) -> tuple[DeviceProfile, tuple[Description, ...]]:
    """The profile that a layer was recorded with, and its rows described by today's generator
    (tens of milliseconds each). InputError as :func:`space_of_layer`, where the generator refuses a
    row, and where the program cannot be made any more."""
    document: Any = recording.document
    if is_archived(recording):
        raise InputError(Problem(recording.name, "its program cannot be made any more",
                                 str(document.get("variant"))))  # fmt: skip
    space, _ = space_of_layer(recording)
    subject = subject_of_layer(LayerSpec.from_json(document["layer"]), document["variant"])
    profile = profile_from_json(document["profile"])
    names = [variable for variable, _ in space.variables]
    program_hash = subject.hash()
    candidates = (
        candidate_of(0, subject, program_hash, dict(zip(names, row, strict=True)))
        for row in recording.values.tolist()
    )
    return profile, tuple(described(subject, found, profile) for found in candidates)


def described_anew(recording: Recording) -> Recording:
    """The same measurements, with what today's generator and models know of the rows. InputError
    as :func:`described_rows`."""
    profile, rows = described_rows(recording)
    document = {**recording.document, "schema": SCHEMA, **_described_json(rows, profile)}
    return replace(recording, document=document)


def known_columns(recording: Recording) -> Floats:
    """What was known of each row without running it; the last column is the guess."""
    columns = _columns(recording, "known")
    if not np.isfinite(columns).all():
        raise _not_described(recording, columns)
    return columns


def group_of_recording(recording: Recording, rows: slice = slice(None)) -> Group:
    """The rows of a recorded layer for a model to learn from, or some of them."""
    features = _columns(recording, "features")
    document: Any = recording.document
    parameters = tuple(str(name) for name in document.get("parameters", ()))
    if len(parameters) >= features.shape[1]:
        raise _not_described(recording, features)
    times = np.where(np.isnan(recording.time_ms), np.inf, recording.time_ms)
    return Group(recording.name, features[rows], np.log(times)[rows], parameters)


def _columns(recording: Recording, field: str) -> Floats:
    document: Any = recording.document
    columns = np.array(document.get(field, ()), np.float64)
    if columns.ndim != 2 or len(columns) != recording.rows:
        raise _not_described(recording, columns)
    return columns


def _not_described(recording: Recording, found: Floats) -> InputError:
    return InputError(
        Problem(recording.name, "what is known of its rows", str(found.shape), "rows x k",
                "nestmap bench search describe")
    )  # fmt: skip
