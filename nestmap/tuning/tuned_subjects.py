"""What is tuned where nobody says more: a layer in its variants and sketches, a program in its own.

On a GPU a layer is tuned as the program that it is, under its sketches, and in the variants of the
template that it has records in. Elsewhere in the template's variants, which are faster there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, subject_of_layer
from mapper.tuning_records import TuningRecord, records_of
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.tuning.sketch_subjects import MOST_SUBJECTS, layer_in, sketched_subjects
from nestmap.tuning.starting_points import is_plain_gpu, records_for, tuned_variants


def tuned_subjects(
    first: Subject,
    names: Sequence[str] | None,
    facts: Mapping[str, str],
    device: DeviceProfile,
    own: Iterable[TuningRecord] = (),
    most: int = MOST_SUBJECTS,
) -> tuple[Subject, ...]:
    """A layer or program in these variants or sketches, without any in those that are tuned on a
    device of these facts, ``most`` at most; most promising first. ``own`` are the user's records.

    InputError names what there is not.
    """
    layer = first.layer
    if layer is None:
        return sketched_subjects(first, device, names, most)
    if names:
        return tuple(layer_in(layer, name, device) for name in dict.fromkeys(names))
    if not is_plain_gpu(facts):
        return tuple(subject_of_layer(layer, name) for name in tuned_variants(facts, layer))
    recorded = [subject_of_layer(layer, name) for name in _recorded(layer, facts, own)]
    plain = subject_of_layer(layer, LAST_RESORT)
    return (*recorded, *sketched_subjects(plain, device, most=most - len(recorded)))


def _recorded(
    layer: LayerSpec, facts: Mapping[str, str], own: Iterable[TuningRecord]
) -> tuple[str, ...]:
    """The variants of the template that there are records of a layer in, fastest first."""
    found = sorted(records_of((*own, *records_for(facts)), layer), key=lambda r: r.time_ms)
    return tuple(dict.fromkeys(r.variant for r in found if r.variant in VARIANTS))
