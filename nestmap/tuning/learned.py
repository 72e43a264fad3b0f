"""Times of a new layer's candidates, learned from what was measured of other layers and devices.

Gradient-boosted trees (scikit-learn's histograms) and extremely randomised ones, whose answers are
averaged, over what is known of a candidate without running it
(:mod:`nestmap.tuning.transfer_features`). Layers differ in size more than their candidates do, so
times are taken relative to their median over the candidates of one layer, variant and device (a
*group*): what is learned is what makes a candidate faster than its siblings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from db.records import StoredMeasurement, Study
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError, Problem
from mapper.layer_sets import is_layer_name, layer_of_name
from mapper.measurement import Timed
from mapper.pipeline import Subject, assignment_from_json, derive_space, subject_of_layer
from mapper.variants import VARIANTS
from nestmap.subjects import subject_of_document
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.descriptions import described
from nestmap.tuning.policy import device_identity
from nestmap.tuning.transfer_features import aligned, relative, transfer_row
from worker.devices.interface import MeasuringDevice

if TYPE_CHECKING:  # SQLAlchemy takes as long to import as all the rest
    from db.store import Store

#: Of one study; describing a candidate takes tens of milliseconds.
MOST_OF_A_STUDY = 150
#: In all.
MOST_EXAMPLES = 1500
#: In all where nobody asked for it, and so many timed ones are needed then: on the development
#: layers 40 of each of seven others still halve what a search needs (docs/benchmarks.md).
UNASKED_EXAMPLES = 300
UNASKED_LEAST = 60
#: Of a study, if there are that many.
LEAST_SHARE = 20
#: Seconds that describing a stored candidate takes, about.
DESCRIBING_S = 0.045
#: Groups with fewer timed candidates say little about what is usual in them.
LEAST_OF_A_GROUP = 8
#: Ensembles of boosted trees.
_BOOSTED = 6
#: Twice the median, as a logarithm: slower ones are not told apart.
_SLOW = 0.7

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Candidates of one layer and variant on one device: n rows of features
    (:func:`~nestmap.tuning.transfer_features.transfer_row`), the last of which are of tuning
    ``parameters``, and n logarithms of times, infinite where measuring failed."""

    name: str
    rows: Floats
    log_times: Floats
    parameters: tuple[str, ...] = ()

    @property
    def timed(self) -> int:
        """How many have a time."""
        return int(np.isfinite(self.log_times).sum())


class LearnedModel:
    """Fitted to groups, then asked for the candidates of another. InputError where no group has
    enough timed candidates."""

    def __init__(self, groups: Sequence[Group], seed: int = 0) -> None:
        # As many bits as scikit-learn takes.
        seed %= 2**31
        used = [group for group in groups if group.timed >= LEAST_OF_A_GROUP]
        if not used:
            most = max((group.timed for group in groups), default=0)
            raise _too_few(most, LEAST_OF_A_GROUP)
        self.groups = tuple(group.name for group in used)
        # An untyped package, and slow to load.
        ensemble: Any = import_module("sklearn.ensemble")
        self._parameters = sorted({name for group in used for name in group.parameters})
        rows = np.vstack([self._columns(g.rows, g.rows, g.parameters) for g in used])
        times = np.concatenate([_relative_times(group.log_times) for group in used])
        # Every layer counts alike, however much was measured of it.
        weights = np.concatenate([np.full(len(g.rows), 1 / len(g.rows)) for g in used])
        whole = weights / weights.mean()
        generator = np.random.default_rng(seed)
        self._trees: list[Any] = []
        with _one_thread():
            # Each of another draw of the examples: alone one follows chance ones too closely.
            for number in range(_BOOSTED):
                drawn = generator.choice(len(times), len(times))
                boosted: Any = ensemble.HistGradientBoostingRegressor(
                    max_iter=150,
                    learning_rate=0.06,
                    max_leaf_nodes=12,
                    min_samples_leaf=8,
                    l2_regularization=1.0,
                    early_stopping=False,
                    random_state=seed + number,
                )
                self._trees.append(boosted.fit(rows[drawn], times[drawn], whole[drawn]))
            random: Any = ensemble.ExtraTreesRegressor(
                200, min_samples_leaf=3, max_features=0.5, random_state=seed, n_jobs=1
            )
            self._random: Any = random.fit(rows, times, whole)

    def predict(self, rows: Floats, siblings: Floats, parameters: Sequence[str] = ()) -> Floats:
        """Logarithms of times of n candidates, relative to the median of their ``siblings`` (m
        rows of candidates of the same layer); the last columns of both are of these
        ``parameters``."""
        columns = self._columns(rows, siblings, parameters)
        with _one_thread():
            boosted: list[Any] = [trees.predict(columns) for trees in self._trees]
            random: Any = self._random.predict(columns)
        found = (np.mean(np.array(boosted, np.float64), axis=0) + random) / 2
        return np.asarray(found, np.float64)

    def _columns(self, rows: Floats, siblings: Floats, parameters: Sequence[str]) -> Floats:
        names = self._parameters
        own, others = (aligned(found, parameters, names) for found in (rows, siblings))
        return relative(own, others, len(names))


def _one_thread() -> Any:
    """Trees of a thousand rows are small: threads would only wait for one another (a hundred
    times as long, on a busy machine)."""
    pools: Any = import_module("threadpoolctl")
    return pools.threadpool_limits(limits=1, user_api="openmp")


def _relative_times(log_times: Floats) -> Floats:
    """What is slow, or failed, need not be told from what is very slow."""
    median = float(np.median(log_times[np.isfinite(log_times)]))
    return np.minimum(log_times - median, _SLOW)


def learned_for(
    store: Store,
    device: MeasuringDevice,
    subjects: Sequence[Subject],
    seed: int = 0,
    *,
    most: int = MOST_EXAMPLES,
    least: int = LEAST_OF_A_GROUP,
) -> LearnedModel:
    """A model of what a store holds of a device, but of these subjects: of ``most`` candidates.
    InputError where fewer than ``least`` were timed."""
    profile = device.profile()
    device_id = store.add_device(profile.name, device_identity(device.facts()))
    without = [subject.hash() for subject in subjects]
    examples = list(_examples(store, device_id, without, most))
    # Before any is described, which takes tens of milliseconds each.
    timed = [sum(isinstance(m.outcome, Timed) for m in measured) for _, measured in examples]
    enough = sum(number for number in timed if number >= LEAST_OF_A_GROUP)
    if enough < least:
        raise _too_few(enough, least)
    return LearnedModel(list(_groups(store, profile, examples)), seed)


def _too_few(found: int, least: int) -> InputError:
    return InputError(
        Problem("measurements", "are too few of any layer to learn from", str(found),
                f"{least} timed")
    )  # fmt: skip


def share_of_examples(studies: int, most: int = MOST_EXAMPLES) -> int:
    """How many candidates of each of so many studies are learned from."""
    return min(most, max(LEAST_SHARE, min(MOST_OF_A_STUDY, most // max(1, studies))))


def groups_of_store(
    store: Store,
    device_id: int,
    device: DeviceProfile,
    *,
    without: Sequence[str] = (),
    most: int = MOST_EXAMPLES,
) -> Iterator[Group]:
    """What a store holds of a device, latest studies first: as many candidates of each, ``most`` in
    all, none of the programs ``without``. Studies that cannot be read any more are left out."""
    yield from _groups(store, device, _examples(store, device_id, without, most))


def _examples(
    store: Store, device_id: int, without: Sequence[str], most: int
) -> Iterator[tuple[Study, tuple[StoredMeasurement, ...]]]:
    """Studies of a device, latest first, no more than can have a share of ``most`` candidates, with
    that share of what they measured."""
    studies = [
        study
        for study in reversed(store.studies())
        if study.device_id == device_id and study.program_hash not in without
    ][: max(1, most // LEAST_SHARE)]
    share = share_of_examples(len(studies), most)
    for study in studies:
        try:
            yield study, store.measurements(study)[:share]
        except NestmapError:
            # Rows of another release.
            continue


def _groups(
    store: Store,
    device: DeviceProfile,
    examples: Iterable[tuple[Study, Sequence[StoredMeasurement]]],
) -> Iterator[Group]:
    for study, measured in examples:
        try:
            yield _group_of(store, study, device, measured)
        except NestmapError:
            # Of another release: other rules, or another generator.
            continue


def _group_of(
    store: Store, study: Study, device: DeviceProfile, measured: Sequence[StoredMeasurement]
) -> Group:
    value = json.loads(store.program(study.program_hash).json_text)
    pairs = (
        (
            store.candidate(found.candidate_id).chosen,
            found.outcome.time_ms if isinstance(found.outcome, Timed) else None,
        )
        for found in measured
    )
    subject = with_layer(subject_of_document(value, study.label), study.label, study.variant)
    return group_of(f"{study.label}/{study.variant}", subject, Mode(study.mode), device, pairs)


def with_layer(subject: Subject, label: str, variant: str) -> Subject:
    """A stored program as the subject of the layer whose name it was stored under, if it is that
    layer's in this variant; else as it is."""
    if not is_layer_name(label) or variant not in VARIANTS:
        return subject
    try:
        found = subject_of_layer(layer_of_name(label), variant)
    except InputError:
        return subject
    return found if found.hash() == subject.hash() else subject


def group_of(
    name: str,
    subject: Subject,
    mode: Mode,
    device: DeviceProfile,
    measured: Iterable[tuple[Mapping[str, Any], float | None]],
) -> Group:
    """Candidates of a program on a device, as they were ``CandidateRecord.chosen``, with their
    times in ms, None (or 0) where measuring failed. InputError for those that today's rules or
    generator do not know."""
    space = derive_space(subject, mode, device, DEFAULT_OPTIONS)
    program_hash = subject.hash()
    rows: list[tuple[float, ...]] = []
    log_times: list[float] = []
    parameters: tuple[str, ...] = ()
    for chosen, time_ms in measured:
        assignment = assignment_from_json(space, dict(chosen))
        description = described(subject, candidate_of(0, subject, program_hash, assignment), device)
        parameters = description.parameter_names
        rows.append(transfer_row(description, device))
        log_times.append(float(np.log(time_ms)) if time_ms else np.inf)
    return Group(name, np.array(rows), np.array(log_times), parameters)
