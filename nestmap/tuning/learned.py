"""Times of a new layer's candidates, learned from what was measured of other layers and devices.

Gradient-boosted trees (scikit-learn's histograms) over what is known of a candidate without
running it. Layers differ in size more than their candidates do, so times and features are taken
relative to their medians over the candidates of one layer, variant and device (a *group*): what
is learned is what makes a candidate faster than its siblings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.records import Study
from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError, Problem
from mapper.measurement import Timed
from mapper.pipeline import Subject, assignment_from_json, derive_space
from nestmap.subjects import subject_of_document
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.descriptions import Description, described
from nestmap.tuning.policy import device_identity
from worker.devices.interface import MeasuringDevice

#: Of one study; describing a candidate takes tens of milliseconds.
MOST_OF_A_STUDY = 150
#: In all.
MOST_EXAMPLES = 1500
#: Groups with fewer timed candidates say little about what is usual in them.
LEAST_OF_A_GROUP = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Candidates of one layer and variant on one device: n rows of features, and n logarithms of
    times, infinite where measuring failed."""

    name: str
    rows: Floats
    log_times: Floats

    @property
    def timed(self) -> int:
        """How many have a time."""
        return int(np.isfinite(self.log_times).sum())


def transfer_row(description: Description, device: DeviceProfile) -> tuple[float, ...]:
    """What trees learn from: the plan, the analytic model's prediction and counts, the proxy,
    and sizes of the device (these as they are: they are constant in a group)."""
    counts = np.log2(1 + description.counts.row())
    sizes = (device.compute_units, device.local_bytes, device.max_work_group_size)
    known = (*description.plan, description.predicted(), description.proxy, *counts.tolist())
    return (*known, *np.log2(1 + np.array(sizes)).tolist())


#: Columns at the end of a row that describe the device.
_OF_DEVICE = 3


class LearnedModel:
    """Fitted to groups, then asked for the candidates of another. InputError where no group has
    enough timed candidates."""

    def __init__(self, groups: Sequence[Group], seed: int = 0) -> None:
        used = [group for group in groups if group.timed >= LEAST_OF_A_GROUP]
        if not used:
            most = max((group.timed for group in groups), default=0)
            raise InputError(
                Problem("measurements", "are too few of any layer to learn from", f"{most}",
                        f"{LEAST_OF_A_GROUP} timed of one")
            )  # fmt: skip
        self.groups = tuple(group.name for group in used)
        # An untyped package, and slow to load.
        ensemble: Any = import_module("sklearn.ensemble")
        rows = np.vstack([relative(group.rows, group.rows) for group in used])
        times = np.concatenate([_relative_times(group.log_times) for group in used])
        # Every layer counts alike, however much was measured of it.
        weights = np.concatenate([np.full(len(g.rows), 1 / len(g.rows)) for g in used])
        self._trees: Any = ensemble.HistGradientBoostingRegressor(
            max_iter=150,
            learning_rate=0.06,
            max_leaf_nodes=12,
            min_samples_leaf=8,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=seed,
        )
        with _one_thread():
            self._trees.fit(rows, times, sample_weight=weights / weights.mean())

    def predict(self, rows: Floats, siblings: Floats) -> Floats:
        """Logarithms of times of n candidates, relative to the median of their ``siblings`` (m
        rows of random candidates of the same layer)."""
        with _one_thread():
            found: Any = self._trees.predict(relative(rows, siblings))
        return np.asarray(found, np.float64)


def _one_thread() -> Any:
    """Trees of a thousand rows are small: threads would only wait for one another (a hundred
    times as long, on a busy machine)."""
    pools: Any = import_module("threadpoolctl")
    return pools.threadpool_limits(limits=1, user_api="openmp")


def relative(rows: Floats, siblings: Floats) -> Floats:
    """Rows less the medians of their siblings, but for what is said of the device."""
    shifted = rows - np.median(siblings, axis=0)
    shifted[:, -_OF_DEVICE:] = rows[:, -_OF_DEVICE:]
    return shifted


def _relative_times(log_times: Floats) -> Floats:
    """Failures count as the slowest."""
    timed = log_times[np.isfinite(log_times)]
    return np.minimum(log_times, timed.max()) - float(np.median(timed))


def learned_for(
    store: Store, device: MeasuringDevice, subjects: Sequence[Subject], seed: int = 0
) -> LearnedModel:
    """A model of what a store holds of a device, but of these subjects. InputError where that is
    too little."""
    profile = device.profile()
    device_id = store.add_device(profile.name, device_identity(device.facts()))
    without = [subject.hash() for subject in subjects]
    return LearnedModel(list(groups_of_store(store, device_id, profile, without=without)), seed)


def groups_of_store(
    store: Store, device_id: int, device: DeviceProfile, *, without: Sequence[str] = ()
) -> Iterator[Group]:
    """What a store holds of a device, latest studies first: :data:`MOST_EXAMPLES` at most, none
    of the programs ``without``. Studies that cannot be read any more are left out."""
    left = MOST_EXAMPLES
    for study in reversed(store.studies()):
        if left <= 0:
            return
        if study.device_id != device_id or study.program_hash in without:
            continue
        try:
            group = _group_of(store, study, device, min(left, MOST_OF_A_STUDY))
        except NestmapError:
            # Of another release: other rules, or another generator.
            continue
        left -= len(group.rows)
        yield group


def _group_of(store: Store, study: Study, device: DeviceProfile, most: int) -> Group:
    value = json.loads(store.program(study.program_hash).json_text)
    measured = (
        (
            store.candidate(found.candidate_id).chosen,
            found.outcome.time_ms if isinstance(found.outcome, Timed) else None,
        )
        for found in store.measurements(study)[:most]
    )
    subject = subject_of_document(value, study.label)
    return group_of(f"{study.label}/{study.variant}", subject, Mode(study.mode), device, measured)


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
    for chosen, time_ms in measured:
        assignment = assignment_from_json(space, dict(chosen))
        candidate = candidate_of(0, subject, program_hash, assignment)
        rows.append(transfer_row(described(subject, candidate, device), device))
        log_times.append(float(np.log(time_ms)) if time_ms else np.inf)
    return Group(name, np.array(rows), np.array(log_times))
