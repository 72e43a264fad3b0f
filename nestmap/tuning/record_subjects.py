"""Records as subjects: a layer under the very sketch that its record was measured under."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mapper.device_profile import DeviceProfile
from mapper.pipeline import Subject, subject_of_layer, subject_of_scheduled
from mapper.schedules.schedule_text import schedule_from_json, schedule_to_json
from mapper.schedules.scheduled import Scheduled
from mapper.tuning_records import TuningRecord
from mapper.variants import LAST_RESORT
from nestmap.tuning.sketch_subjects import layer_in

#: Behind the name of a sketch of another release, for the sketch of this name is another today.
_EARLIER = "-earlier"


def subject_of_record(record: TuningRecord, device: DeviceProfile) -> Subject:
    """What a record's choices are of: the layer in its variant, under the record's schedule, or,
    where it has none, under today's sketch of its name. InputError where that is not possible."""
    layer = record.layer
    if record.schedule is None:
        return layer_in(layer, record.variant, device)
    schedule = schedule_from_json(record.schedule)
    program = subject_of_layer(layer, LAST_RESORT).require_program()
    return replace(subject_of_scheduled(Scheduled(program, schedule), layer.name), layer=layer)


def as_earlier(subject: Subject) -> Subject:
    """A layer under a sketch of another release, named so that today's of its name is another."""
    scheduled = subject.scheduled
    if scheduled is None or scheduled.schedule.name.endswith(_EARLIER):
        return subject
    name = f"{scheduled.schedule.name}{_EARLIER}"
    renamed = replace(scheduled, schedule=replace(scheduled.schedule, name=name))
    return replace(subject, scheduled=renamed, variant=name)


def schedule_of(subject: Subject) -> dict[str, Any] | None:
    """``nestmap/schedule/1`` for a record of this subject; None where it has no schedule."""
    return None if subject.scheduled is None else schedule_to_json(subject.scheduled.schedule)


def is_of(record: TuningRecord, subject: Subject) -> bool:
    """Whether a record of the layer was measured under what the subject is."""
    if record.schedule is None or subject.scheduled is None:
        return record.variant == subject.variant
    return schedule_from_json(record.schedule).uses == subject.scheduled.schedule.uses
