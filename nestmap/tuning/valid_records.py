"""Records whose mappings are still valid: rules and variants change, files of records stay."""

from __future__ import annotations

from collections.abc import Iterable

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, generate_kernels
from mapper.solver.space import Space
from mapper.tuning_records import TuningRecord, best_record
from nestmap.tuning.layer_search import quest
from nestmap.tuning.proposals.sample_and_change import Assignment, readable
from nestmap.tuning.proposals.shorter_vectors import fitting


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
        wanted = quest(record.layer, record.variant, profile)
    except InputError:
        return False
    return bool(readable(wanted.space, [record.choices]))


def plan_of(record: TuningRecord, profile: DeviceProfile) -> HostPlan:
    """The kernels of a record, in vectors that the device has where there is such a form;
    NestmapError where its mapping is not valid any more."""
    # A record may have been measured under another name of the layer.
    wanted = quest(record.layer, record.variant, profile)
    assignment = as_recorded(wanted.subject, wanted.space, profile, record)
    if assignment is None:
        raise NestmapError("the record's mapping is not valid any more")
    return generate_kernels(wanted.subject, assignment)


def as_recorded(
    subject: Subject, space: Space, profile: DeviceProfile, record: TuningRecord
) -> Assignment | None:
    """A record's mapping, in vectors that the device has where there is such a form; None where it
    is not valid any more."""
    choices = [record.choices]
    found = fitting(subject, space, profile, choices) or readable(space, choices)
    return found[0] if found else None
