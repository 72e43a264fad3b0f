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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from db.records import StoredMeasurement
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

if TYPE_CHECKING:  # SQLAlchemy takes as long to import as all the rest
    from db.store import Store

#: With fewer timed candidates a device teaches nothing.
LEAST = 30
#: Candidates of a device that teach of one program.
MOST = 200
#: In all, over programs and devices.
MOST_IN_ALL = 600
#: Devices that teach of one program: those with the most candidates.
MOST_DEVICES = 3
#: So many of the fastest there may be chosen here, whether a search would come upon them or not.
FASTEST = 24
#: What an eighth of the candidates may be: those that failed.
_FAILED = 8
#: Of so many at least :data:`LEAST` are timed.
_LEAST_SHARE = 40
#: What is slower than this quantile of the timed ones, or failed, need not be told apart.
_SLOW = 0.9
_TREES = 200
#: Stands for what is not known of a candidate.
_MISSING = -99.0

Floats = NDArray[np.float64]
#: The logarithm of a time (infinite for a failure), and whose it is.
_Measured = tuple[float, str]


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
    store: Store,
    device: MeasuringDevice,
    subjects: Sequence[Subject],
    seed: int = 0,
    *,
    most: int = MOST_IN_ALL,
) -> Mapping[str, tuple[Elsewhere, ...]]:
    """For each program (by hash) what the store's other devices tell of its candidates, of which
    ``most`` in all are described; programs that none was timed for often enough are left out. Times
    of devices that are none (``device.kind`` null) teach such devices alone."""
    profile = device.profile()
    own = store.add_device(profile.name, device_identity(device.facts()))
    real = device.facts().get("device.kind") != "null"
    names = {
        found.id: found.name
        for found in store.devices()
        if found.id != own and not (real and found.facts.get("device.kind") == "null")
    }
    by_hash = {subject.hash(): subject for subject in subjects}
    teachers = [
        (program_hash, device_id, measured)
        for program_hash in by_hash
        for device_id, measured in _by_device(store, program_hash, names)
    ]
    # As many as each can have a share of candidates that is enough to teach.
    teachers = sorted(teachers, key=lambda one: -len(one[2]))[: most // _LEAST_SHARE]
    share = min(MOST, most // max(1, len(teachers)))
    found: dict[str, tuple[Elsewhere, ...]] = {}
    for program_hash, device_id, measured in teachers:
        taught = _taught(store, by_hash[program_hash], profile, _spread(measured, share))
        if np.isfinite(taught.log_times).sum() >= LEAST:
            known = Elsewhere(names[device_id], taught.rows, taught.log_times, seed, taught.fastest)
            found[program_hash] = (*found.get(program_hash, ()), known)
    return found


def _by_device(
    store: Store, program_hash: str, devices: Iterable[int]
) -> list[tuple[int, list[_Measured]]]:
    """What each of these devices measured of a program, fastest first: those with the most
    candidates."""
    found: dict[int, dict[str, list[float]]] = {device_id: {} for device_id in devices}
    for study in store.studies():
        if study.program_hash != program_hash or study.device_id not in found:
            continue
        try:
            measured = store.measurements(study)
        except NestmapError:
            # Rows of another release.
            continue
        for one in measured:
            times = found[study.device_id].setdefault(one.candidate_id, [])
            times.append(_log_time(one))
    enough = [
        (device_id, sorted((float(np.median(t)), one) for one, t in times.items()))
        for device_id, times in found.items()
        if sum(np.isfinite(np.median(t)) for t in times.values()) >= LEAST
    ]
    return sorted(enough, key=lambda of_one: (-len(of_one[1]), of_one[0]))[:MOST_DEVICES]


def _log_time(measured: StoredMeasurement) -> float:
    outcome = measured.outcome
    if isinstance(outcome, Timed) and outcome.time_ms > 0:
        return float(np.log(outcome.time_ms))
    return np.inf


def _spread(measured: Sequence[_Measured], most: int) -> list[_Measured]:
    """So many of them at most, fastest first: the fastest, some of those that failed, and of the
    rest from all that there is."""
    timed = [one for one in measured if np.isfinite(one[0])]
    failed = [one for one in measured if not np.isfinite(one[0])][: most // _FAILED]
    fastest, rest = timed[:FASTEST], timed[FASTEST:]
    wanted = min(max(0, most - len(failed) - len(fastest)), len(rest))
    places = np.linspace(0, len(rest) - 1, wanted).round().astype(int) if wanted else ()
    return [*fastest, *(rest[place] for place in places), *failed]


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
    measured: Iterable[_Measured],
) -> _Taught:
    """Of what was measured, fastest first, that which can be described here."""
    space = derive_space(subject, Mode.STRICT, device, DEFAULT_OPTIONS)
    program_hash = subject.hash()
    rows: list[tuple[float, ...]] = []
    log_times: list[float] = []
    fastest: list[Mapping[Variable, int]] = []
    for log_time, candidate_id in measured:
        try:
            chosen = store.candidate(candidate_id).chosen
            assignment = assignment_from_json(space, chosen)
            candidate = candidate_of(0, subject, program_hash, assignment)
            row = transfer_row(described(subject, candidate, device), device)
            wanted = np.isfinite(log_time) and len(fastest) < FASTEST
            if wanted and not check(space, assignment):
                fastest.append(assignment)
        except InputError:
            # Of another release: other rules, or another generator.
            continue
        rows.append(row)
        log_times.append(log_time)
    return _Taught(np.array(rows), np.array(log_times), tuple(fastest))
