"""What a search of a layer starts from on a device: candidates to try first, and what is promised.

What was fast before comes first: records of the very layer, also of another device of the same
kind. They are a start, never an answer: all is measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome
from mapper.pipeline import Subject
from mapper.solver.space import Space
from mapper.tuning_records import (
    TuningRecord,
    nearest,
    record_devices,
    records_of,
    shipped_records,
)
from mapper.variants import LAST_RESORT, variants_of
from nestmap.tuning.record_files import device_folder
from nestmap.tuning.record_subjects import is_of
from nestmap.tuning.shorter_vectors import fitting
from nestmap.tuning.sketch_subjects import Tuned, promise_of
from nestmap.tuning.solved_ahead import SketchAhead
from nestmap.tuning.sources import Source

#: What there are records of promises a little more than the first sketch.
_LIKELY = 0.9
#: By how much the best of each of the papers' variants is likely to be slower than the best of
#: all. On a Mali, whose local memory is ordinary memory, they come first.
_PROMISES = {"direct": 20.0, "partial": 20.0}
_MALI_PROMISES = {"direct": 0.9, "partial": 1.0}
#: The folder of records that are of processors.
_OF_PROCESSORS = "pocl"


def paper_variants(layer: LayerSpec) -> tuple[str, ...]:
    """The variants of the two papers that compute a layer; where none does, the one that computes
    all."""
    return tuple(name for name in variants_of(layer) if name in _PROMISES) or (LAST_RESORT,)


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

    mine = records_of((*own, *records_for(facts)), layer)
    if any(
        r.variant == subject.variant or (isinstance(subject, Subject) and is_of(r, subject))
        for r in mine
    ):
        return source(known=known, promise=_LIKELY, has_record=True)
    promises = _MALI_PROMISES if is_mali(facts) else _PROMISES
    return source(promise=promises.get(subject.variant) or promise_of(subject, index))


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


def records_for(facts: Mapping[str, str]) -> tuple[TuningRecord, ...]:
    """Shipped records to start from on a device: its own, else those of the devices of its kind."""
    processor = facts.get("device.kind") == "cpu"
    folder = device_folder(facts)
    if (folder == _OF_PROCESSORS) == processor and (own := shipped_records(folder)):
        return own
    if facts.get("device.kind") not in ("cpu", "gpu") or is_mali(facts):
        return ()
    devices = [name for name in record_devices() if (name == _OF_PROCESSORS) == processor]
    return tuple(record for name in devices for record in shipped_records(name))


def is_invented(facts: Mapping[str, str]) -> bool:
    """Whether a device only says that it is one: it runs nothing."""
    return facts.get("device.kind") == "null"


def is_mali(facts: Mapping[str, str]) -> bool:
    """Whether a device is a GPU of this family, whose local memory is ordinary memory."""
    return "mali" in facts.get("device.name", "").lower()
