"""What is tuned where nobody says more: a program under its sketches.

A layer is a program too; on a GPU it is tuned like one, beginning with what there are records of.
On a processor its default are still the variants of the template, behind sketches with records
(docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.pipeline import Subject
from mapper.tuning_records import TuningRecord, records_of
from nestmap.tuning.record_subjects import as_earlier, is_of, subject_of_record
from nestmap.tuning.sketch_subjects import (
    PossibleSketch,
    Tuned,
    layer_in,
    possible_subjects,
    sketched_subjects,
)
from nestmap.tuning.starting_points import is_gpu, records_for, tuned_variants


def tuned_subjects(
    first: Subject,
    names: Sequence[str] | None,
    facts: Mapping[str, str],
    device: DeviceProfile,
    own: Iterable[TuningRecord] = (),
) -> tuple[Tuned, ...]:
    """A layer or program in these variants or sketches, without any in those that are tuned on a
    device of these facts, most promising first; then sketches may not be derived yet. ``own`` are
    the user's records.

    InputError names what there is not.
    """
    layer = first.layer
    if layer is None:
        if not names:
            return possible_subjects(first, device)
        return sketched_subjects(first, device, names)
    if names:
        return tuple(layer_in(layer, name, device) for name in dict.fromkeys(names))
    sketches = {s.variant: s for s in possible_subjects(first, device)}
    template = tuned_variants(facts, layer)
    records = sorted(records_of((*own, *records_for(facts)), layer), key=lambda r: r.time_ms)
    found: dict[str, Tuned] = {}
    if records and records[0].schedule is not None:
        # Of others it is not looked whether their sketches are today's: it takes a derivation.
        today = sketches.get(records[0].variant)
        fastest = _recorded(replace(records[0], layer=layer), today, device)
        found |= {} if fastest is None else {fastest.variant: fastest}
    for name in dict.fromkeys(r.variant for r in records):
        if name in template and name not in found:
            found[name] = layer_in(layer, name, device)
        elif name in sketches:
            found.setdefault(name, sketches[name])
    for name in sketches if is_gpu(facts) else template:
        if name not in found:
            found[name] = sketches[name] if name in sketches else layer_in(layer, name, device)
    return tuple(found.values())


def _recorded(record: TuningRecord, today: Tuned | None, device: DeviceProfile) -> Tuned | None:
    """What a record with a schedule is of: today's sketch of its name, or that of another release,
    whose kernel is not to be lost. None where that does not apply any more."""
    sketch = today.derive() if isinstance(today, PossibleSketch) else today
    if sketch is not None and is_of(record, sketch):
        return sketch
    try:
        return as_earlier(subject_of_record(record, device))
    except InputError:
        return None
