"""What a program's candidates take on a device, told by what they took on other devices.

Other layers teach what makes a kernel fast on a device (:mod:`nestmap.tuning.learned`); another
device teaches which candidates of the same program are fast at all. Both tell ranks better than
times, so what is learned of each device is one more column of a candidate, and half of the
learners do not see it (:data:`~mapper.search.model_guided.VIEWS_IN_DOUBT`): a device may be like
another, or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.records import StoredMeasurement
from db.store import Store
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError, Problem
from mapper.measurement import Timed
from mapper.pipeline import Subject, assignment_from_json, derive_space
from mapper.solver.space import check
from nestmap.tuning.candidates import candidate_of
from nestmap.tuning.descriptions import described
from nestmap.tuning.policy import device_identity
from nestmap.tuning.transfer_features import transfer_row
from worker.devices.interface import MeasuringDevice

#: With fewer timed candidates a device teaches nothing.
LEAST = 30
#: Candidates of a device that teach of one program; describing one takes tens of milliseconds.
MOST = 200
#: In all, over programs and devices.
MOST_IN_ALL = 600
#: Devices that teach of one program: those with the most candidates.
MOST_DEVICES = 3
#: So many of the fastest there may be chosen here, whether a search would come upon them or not.
FASTEST = 24
#: What is slower than this quantile of the timed ones, or failed, need not be told apart.
_SLOW = 0.9
_TREES = 200
#: Stands for what is not known of a candidate.
_MISSING = -99.0

Floats = NDArray[np.float64]


class Elsewhere:
    """Logarithms of times on ``device``: of candidates that were measured there as they were, of
    others by extremely randomised trees over ``rows`` (n x features) and ``log_times`` (n, infinite
    where it failed). ``fastest`` are the best of them that are valid here too. InputError for fewer
    than :data:`LEAST` that were timed."""

    def __init__(
        self,
        device: str,
        rows: Floats,
        log_times: Floats,
        seed: int = 0,
        fastest: Sequence[Mapping[Variable, int]] = (),
    ) -> None:
        timed = np.isfinite(log_times)
        if timed.sum() < LEAST:
            raise InputError(
                Problem("measurements", f"are too few on {device}", str(int(timed.sum())),
                        f"{LEAST} timed")
            )  # fmt: skip
        self.device = device
        self.candidates = len(rows)
        self.fastest = tuple(fastest)
        values = np.minimum(log_times, np.quantile(log_times[timed], _SLOW))
        known = np.nan_to_num(rows, nan=_MISSING)
        # An untyped package, and slow to load; it takes seeds of 32 bits.
        ensemble: Any = import_module("sklearn.ensemble")
        trees: Any = ensemble.ExtraTreesRegressor(
            _TREES, min_samples_leaf=2, random_state=seed % 2**31, n_jobs=1
        )
        self._trees: Any = trees.fit(known, values)
        alike: dict[bytes, list[float]] = {}
        for row, value in zip(known, values.tolist(), strict=True):
            alike.setdefault(row.tobytes(), []).append(value)
        self._measured = {row: float(np.mean(found)) for row, found in alike.items()}

    def predict(self, rows: Floats) -> Floats:
        """Of n candidates, given by the same features."""
        known = np.nan_to_num(rows, nan=_MISSING)
        found = np.asarray(self._trees.predict(known), np.float64)
        for place, row in enumerate(known):
            found[place] = self._measured.get(row.tobytes(), found[place])
        return found


def known_elsewhere(
    store: Store, device: MeasuringDevice, subjects: Sequence[Subject], seed: int = 0
) -> Mapping[str, tuple[Elsewhere, ...]]:
    """For each program (by hash) what the store's other devices tell of its candidates; programs
    that none was timed for often enough are left out."""
    profile = device.profile()
    own = store.add_device(profile.name, device_identity(device.facts()))
    names = {found.id: found.name for found in store.devices()}
    by_program = {subject.hash(): _by_device(store, subject.hash(), own) for subject in subjects}
    teachers = sum(map(len, by_program.values()))
    share = min(MOST, max(LEAST, MOST_IN_ALL // max(1, teachers)))
    found: dict[str, tuple[Elsewhere, ...]] = {}
    for subject in subjects:
        of_devices: list[Elsewhere] = []
        for device_id, measured in by_program[subject.hash()]:
            taught = _taught(store, subject, profile, _spread(measured, share))
            if np.isfinite(taught.log_times).sum() >= LEAST:
                of_devices.append(
                    Elsewhere(names[device_id], taught.rows, taught.log_times, seed, taught.fastest)
                )
        if of_devices:
            found[subject.hash()] = tuple(of_devices)
    return found


def _by_device(
    store: Store, program_hash: str, own: int
) -> list[tuple[int, list[StoredMeasurement]]]:
    """What the other devices measured of a program, those with the most candidates first."""
    found: dict[int, list[StoredMeasurement]] = {}
    for study in store.studies():
        if study.program_hash == program_hash and study.device_id != own:
            try:
                found.setdefault(study.device_id, []).extend(store.measurements(study))
            except NestmapError:
                # Rows of another release.
                continue
    enough = [
        (device_id, measured)
        for device_id, measured in found.items()
        if sum(isinstance(one.outcome, Timed) for one in measured) >= LEAST
    ]
    return sorted(enough, key=lambda of_one: (-len(of_one[1]), of_one[0]))[:MOST_DEVICES]


def _log_time(measured: StoredMeasurement) -> float:
    outcome = measured.outcome
    return float(np.log(outcome.time_ms)) if isinstance(outcome, Timed) else np.inf


def _spread(measured: Sequence[StoredMeasurement], most: int) -> list[StoredMeasurement]:
    """So many of them, from the fastest to those that failed."""
    ordered = sorted(measured, key=_log_time)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round())
    return [ordered[int(place)] for place in places]


@dataclass(frozen=True)
class _Taught:
    """What :class:`Elsewhere` is made of."""

    rows: Floats
    log_times: Floats
    fastest: tuple[Mapping[Variable, int], ...]


def _taught(
    store: Store,
    subject: Subject,
    device: DeviceProfile,
    measured: Iterable[StoredMeasurement],
) -> _Taught:
    """Of what was measured, fastest first, that which can be described here."""
    space = derive_space(subject, Mode.STRICT, device, DEFAULT_OPTIONS)
    program_hash = subject.hash()
    rows: list[tuple[float, ...]] = []
    log_times: list[float] = []
    fastest: list[Mapping[Variable, int]] = []
    for one in measured:
        try:
            chosen = store.candidate(one.candidate_id).chosen
            assignment = assignment_from_json(space, chosen)
            candidate = candidate_of(0, subject, program_hash, assignment)
        except NestmapError:
            # Of another release, or with values that are none on this device.
            continue
        rows.append(transfer_row(described(subject, candidate, device), device))
        log_times.append(_log_time(one))
        timed = np.isfinite(log_times[-1])
        if timed and len(fastest) < FASTEST and not check(space, assignment):
            fastest.append(assignment)
    return _Taught(np.array(rows), np.array(log_times), tuple(fastest))
