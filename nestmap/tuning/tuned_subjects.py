"""What is tuned where nobody says more: a layer in its variants, a program under its sketches.

A layer is a program too, and what there are records of under its sketches is tuned first. Its other
sketches are tuned where they are named: from nothing they are slower to search than the template's
variants (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject
from mapper.tuning_records import TuningRecord, records_of
from mapper.variants import VARIANTS
from nestmap.tuning.sketch_subjects import layer_in, sketched_subjects
from nestmap.tuning.starting_points import records_for, tuned_variants


def tuned_subjects(
    first: Subject,
    names: Sequence[str] | None,
    facts: Mapping[str, str],
    device: DeviceProfile,
    own: Iterable[TuningRecord] = (),
) -> tuple[Subject, ...]:
    """A layer or program in these variants or sketches, without any in those that are tuned on a
    device of these facts, most promising first. ``own`` are the user's records.

    InputError names what there is not.
    """
    layer = first.layer
    if layer is None:
        return sketched_subjects(first, device, names)
    if names:
        return tuple(layer_in(layer, name, device) for name in dict.fromkeys(names))
    template = (layer_in(layer, name, device) for name in tuned_variants(facts, layer))
    return (*_recorded(layer, facts, device, own), *template)


def _recorded(
    layer: LayerSpec,
    facts: Mapping[str, str],
    device: DeviceProfile,
    own: Iterable[TuningRecord],
) -> Iterator[Subject]:
    """A layer under the sketches that there are records of it under, fastest first; sketches of
    another release are left out."""
    found = sorted(records_of((*own, *records_for(facts)), layer), key=lambda r: r.time_ms)
    for name in dict.fromkeys(r.variant for r in found if r.variant not in VARIANTS):
        with suppress(InputError):
            yield layer_in(layer, name, device)
