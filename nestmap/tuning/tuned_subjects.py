"""What is tuned where nobody says more: a program under its sketches.

A layer is a program too, and is tuned like one, beginning with what there are records of. On a Mali
the variants of the papers, which were measured there, come before its sketches; a device that is
invented has these variants alone, for its times say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.pipeline import Subject
from mapper.tuning_records import TuningRecord, records_of
from mapper.variants import variants_of
from nestmap.tuning.record_subjects import as_earlier, is_of, subject_of_record
from nestmap.tuning.sketch_subjects import (
    PossibleSketch,
    Tuned,
    layer_in,
    possible_subjects,
    sketched_subjects,
)
from nestmap.tuning.starting_points import (
    is_invented,
    is_mali,
    paper_variants,
    records_for,
)


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
    computing = variants_of(layer)
    # Of those without a schedule some are of variants that are gone.
    records = sorted(
        (r for r in records_of((*own, *records_for(facts)), layer)
         if r.schedule is not None or r.variant in sketches or r.variant in computing),
        key=lambda r: r.time_ms,
    )  # fmt: skip
    found: dict[str, Tuned] = {}
    if records and records[0].schedule is not None:
        # Of others it is not looked whether their sketches are today's: it takes a derivation.
        today = sketches.get(records[0].variant)
        fastest = _recorded(replace(records[0], layer=layer), today, device)
        found |= {} if fastest is None else {fastest.variant: fastest}
    for name in dict.fromkeys(r.variant for r in records):
        if name in sketches or name in computing:
            found.setdefault(name, sketches.get(name) or layer_in(layer, name, device))
    papers = paper_variants(layer) if is_mali(facts) or is_invented(facts) else ()
    for name in papers if is_invented(facts) else (*papers, *sketches):
        if name not in found:
            found[name] = sketches.get(name) or layer_in(layer, name, device)
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
