"""Records whose mappings are still valid: rules and sketches change, files of records stay."""

from __future__ import annotations

from collections.abc import Iterable

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, derive_space, generate_kernels
from mapper.solver.space import Space
from mapper.tuning_records import TuningRecord, best_record
from nestmap.tuning.record_subjects import subject_of_record
from nestmap.tuning.shorter_vectors import Assignment, fitting, readable


def best_valid(
    records: Iterable[TuningRecord],
    layer: LayerSpec,
    profile: DeviceProfile,
    max_extra_bytes: int | None = None,
) -> TuningRecord | None:
    """As :func:`~mapper.tuning_records.best_record`, among those that are valid on a device; the
    best of all if none is."""
    left = list(records)
    best = found = best_record(left, layer, max_extra_bytes, profile.target)
    while found is not None and not _is_valid(found, profile):
        left.remove(found)
        found = best_record(left, layer, max_extra_bytes, profile.target)
    return found or best


def _is_valid(record: TuningRecord, profile: DeviceProfile) -> bool:
    try:
        _, space = _derived(record, profile)
    except InputError:
        return False
    return bool(readable(space, [record.choices]))


def _derived(record: TuningRecord, profile: DeviceProfile) -> tuple[Subject, Space]:
    # A record may have been measured under another name of the layer.
    subject = subject_of_record(record, profile)
    return subject, derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)


def plan_of(record: TuningRecord, profile: DeviceProfile) -> HostPlan:
    """The kernels of a record, in vectors that the device has where there is such a form;
    NestmapError where its mapping is not valid any more."""
    subject, space = _derived(record, profile)
    assignment = as_recorded(subject, space, profile, record)
    if assignment is None:
        raise NestmapError("the record's mapping is not valid any more")
    return generate_kernels(subject, assignment)


def as_recorded(
    subject: Subject, space: Space, profile: DeviceProfile, record: TuningRecord
) -> Assignment | None:
    """A record's mapping, in vectors that the device has where there is such a form; None where it
    is not valid any more."""
    choices = [record.choices]
    found = fitting(subject, space, profile, choices) or readable(space, choices)
    return found[0] if found else None
