"""What a search of a layer starts from on a device: variants, and candidates to try first.

Uniform draws from the space of a blocked variant hardly ever have codes that suit a device, and
there is no need to learn which do (:mod:`mapper.rewrites.families`). What was fast before comes
first: records of the very layer, then the tiles of layers like it, also of another device of the
same kind. They are a start, never an answer: all is measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import log2

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome
from mapper.pipeline import Subject
from mapper.rewrites.families import LINE, Family, family_of
from mapper.solver.space import Space
from mapper.tuning_records import (
    TuningRecord,
    nearest,
    record_devices,
    records_of,
    same_layer,
    shipped_records,
)
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.tuning.proposals.shorter_vectors import fitting
from nestmap.tuning.record_files import device_folder
from nestmap.tuning.record_subjects import is_of
from nestmap.tuning.sketch_subjects import Tuned, is_sketch, promise_of
from nestmap.tuning.solved_ahead import SketchAhead
from nestmap.tuning.sources import Source

#: By how much a variant's best is usually slower than the best of all, on devices of a kind.
#: First those of the template, from the variants of the shipped records' fastest.
_PROCESSOR_PROMISES = {
    "channelwise": 0.9,
    "blocked": 1.0,
    "blocked-in-place": 1.0,
    "blocked-bands": 1.2,
    "blocked-bands-in-place": 1.2,
    "direct": 20.0,
    "partial": 20.0,
}
_GPU_PROMISES = {
    "tiled-slices": 1.0,
    "tiled-vectors-slices": 1.0,
    "tiled": 1.15,
    "tiled-split": 1.25,
    "tiled-slices-split": 1.25,
    "tiled-vectors-split": 1.25,
    "tiled-reread": 1.5,
    "tiled-in-place": 1.5,
    "direct": 8.0,
    "partial": 12.0,
}
#: Where local memory is ordinary memory, what stages nothing in it comes first.
_MALI_PROMISES = {"direct": 1.0, "partial": 1.2, "tiled-in-place": 1.5, "tiled": 2.0}
_INVENTED_PROMISES = {"direct": 1.0, "partial": 1.0}
#: The folder of records that are of processors.
_OF_PROCESSORS = "pocl"
#: What the fastest of a like layer were made by promises more.
_LIKELY = 0.9
#: Layers like this one that are asked, and tiles that are taken of each variant.
_LIKE = 8
_HINTS = 6


def tuned_variants(facts: Mapping[str, str], layer: LayerSpec | None = None) -> tuple[str, ...]:
    """The variants of a layer that are tuned on a device unless others are asked for, those that
    promise most first.

    Of a ``layer`` those that compute it: ``high-level``, which computes all, where none of the
    others does.
    """
    promises = promises_on(facts, layer)
    return tuple(promises) or ("high-level",)


def promises_on(facts: Mapping[str, str], layer: LayerSpec | None = None) -> dict[str, float]:
    """By how much the best of each variant is likely to be slower than the best of all, least
    first: by the kind of the device, and by what was fastest for layers like this one."""
    usual = _promises_of_kind(facts)
    if layer is None:
        return usual
    likely = dict.fromkeys(record.variant for record in _like(facts, layer))
    # Among the variants of like layers those that are in front stay in front.
    known = {name: _LIKELY for name in likely}
    promises = {**usual, **{name: min(known[name], usual.get(name, 1.0)) for name in known}}
    found = {n: p for n, p in promises.items() if n in VARIANTS and not VARIANTS[n].applies(layer)}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _promises_of_kind(facts: Mapping[str, str]) -> dict[str, float]:
    if facts.get("device.kind") == "null":
        return _INVENTED_PROMISES
    if family_of(facts) is Family.SINGLE:
        return _PROCESSOR_PROMISES
    if _is_mali(facts):
        return _MALI_PROMISES
    return _GPU_PROMISES


def source_of(
    subject: Tuned,
    space: Space | Callable[[Subject], Space],
    profile: DeviceProfile,
    facts: Mapping[str, str],
    program_hash: str = "",
    *,
    index: int = 0,
    history: Sequence[tuple[Mapping[Variable, int], Outcome, int]] = (),
    own: Iterable[TuningRecord] = (),
    ahead: SketchAhead | None = None,
) -> Source:
    """A subject with all that its search starts from on a device. ``own`` are records of the user's
    beside the shipped ones; ``ahead`` derives and solves a sketch aside."""
    layer, own = subject.layer, tuple(own)
    source = partial(
        Source, index, subject, space, program_hash, history=tuple(history), ahead=ahead
    )
    if layer is None:
        return source(promise=promise_of(subject, index))

    def known(derived: Subject, its: Space) -> tuple[Mapping[Variable, int], ...]:
        return _known(derived, profile, facts, own, its)

    # Where a layer is tuned under its sketches, it is a program like others as it is written, too.
    as_written = subject.variant == LAST_RESORT and is_gpu(facts)
    if is_sketch(subject) or as_written:
        mine = records_of((*own, *records_for(facts)), layer)
        if any(
            r.variant == subject.variant or (isinstance(subject, Subject) and is_of(r, subject))
            for r in mine
        ):
            return source(known=known, promise=_LIKELY, has_record=True)
        return source(promise=promise_of(subject, index))
    return source(
        known=known,
        hints=_hints(layer, subject.variant, facts, own),
        promise=promises_on(facts, layer).get(subject.variant, 1.0),
        family=family_of(facts),
    )


def _known(
    subject: Subject,
    profile: DeviceProfile,
    facts: Mapping[str, str],
    own: Iterable[TuningRecord],
    space: Space,
) -> tuple[Mapping[Variable, int], ...]:
    """Records of a layer in this variant, fastest first. All lie in ``space``, and none has longer
    vectors than ``profile``."""
    assert subject.layer is not None
    records = [*records_of((*own, *records_for(facts)), subject.layer)]
    of_subject = (record for record in records if is_of(record, subject))
    near = sorted(nearest(of_subject, profile.target), key=lambda record: record.time_ms)
    return tuple(fitting(subject, space, profile, (record.choices for record in near)))


def _hints(
    layer: LayerSpec, variant: str, facts: Mapping[str, str], own: Iterable[TuningRecord]
) -> tuple[Mapping[str, int], ...]:
    """Tuning parameters of layers like this one in this variant, those of the likest first."""
    found: dict[tuple[tuple[str, int], ...], None] = {}
    for record in _like(facts, layer, own, variant):
        sizes = record.choices.get("local_sizes", {})
        line = next((int(size[0]) for size in sizes.values()), 1) if len(sizes) == 1 else 1
        values = {**record.choices.get("parameters", {}), LINE: line}
        found.setdefault(tuple(sorted(values.items())))
    return tuple(dict(values) for values in list(found)[:_HINTS])


def _like(
    facts: Mapping[str, str],
    layer: LayerSpec,
    own: Iterable[TuningRecord] = (),
    variant: str | None = None,
) -> list[TuningRecord]:
    """The fastest records of the layers most like this one, the likest first."""
    known = [r for r in (*own, *records_for(facts)) if variant is None or r.variant == variant]
    known = nearest(known, facts.get("device.target", ""))
    fastest: dict[LayerSpec, TuningRecord] = {}
    for record in known:
        other = same_layer(record.layer)
        if other not in fastest or record.time_ms < fastest[other].time_ms:
            fastest[other] = record
    by_likeness = sorted(fastest.items(), key=lambda item: unlikeness(layer, item[0]))
    return [record for _, record in by_likeness[:_LIKE]]


def unlikeness(one: LayerSpec, other: LayerSpec) -> float:
    """How little the tiles of one layer say of another: doublings between their sizes, and what
    changes the shape of a loop nest at a price of its own."""
    sizes = (
        (one.channels / one.groups, other.channels / other.groups),
        (one.filters / one.groups, other.filters / other.groups),
        (one.groups, other.groups),
        (one.output_height, other.output_height),
        (one.output_width, other.output_width),
        (one.batch, other.batch),
    )
    doublings = sum(abs(log2(ours / its)) for ours, its in sizes)
    shapes = (
        (one.kernel_height, other.kernel_height),
        (one.kernel_width, other.kernel_width),
        (one.stride_y, other.stride_y),
        (one.stride_x, other.stride_x),
        (one.dilation_y, other.dilation_y),
    )
    differing = sum(2.0 for ours, its in shapes if ours != its)
    stored = sum(1.5 for f in ("layout", "dtype") if getattr(one, f) != getattr(other, f))
    return doublings + differing + stored


def records_for(facts: Mapping[str, str]) -> tuple[TuningRecord, ...]:
    """Shipped records to start from on a device: its own, else those of the devices of its kind."""
    processor = family_of(facts) is Family.SINGLE
    folder = device_folder(facts)
    if (folder == _OF_PROCESSORS) == processor and (own := shipped_records(folder)):
        return own
    if facts.get("device.kind") not in ("cpu", "gpu") or _is_mali(facts):
        return ()
    devices = [name for name in record_devices() if (name == _OF_PROCESSORS) == processor]
    return tuple(record for name in devices for record in shipped_records(name))


def is_gpu(facts: Mapping[str, str]) -> bool:
    """Whether a device is a GPU with memory of its own."""
    return facts.get("device.kind") == "gpu" and not _is_mali(facts)


def _is_mali(facts: Mapping[str, str]) -> bool:
    return "mali" in facts.get("device.name", "").lower()
