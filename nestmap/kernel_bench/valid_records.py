"""Records whose mappings are still valid: rules and variants change, files of records stay."""

from __future__ import annotations

from collections.abc import Iterable

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.tuning_records import TuningRecord, records_of
from nestmap.kernel_bench.proposals import readable
from nestmap.kernel_bench.search import quest


def best_valid(
    records: Iterable[TuningRecord],
    layer: LayerSpec,
    profile: DeviceProfile,
    max_extra_bytes: int | None = None,
) -> TuningRecord | None:
    """The fastest record of a layer that is valid on a device, and needs at most so many extra
    bytes; the fastest of all if none is valid; None if there is none."""
    fitting = sorted(
        (
            record
            for record in records_of(records, layer)
            if max_extra_bytes is None or record.extra_bytes <= max_extra_bytes
        ),
        key=lambda record: record.time_ms,
    )
    for record in fitting:
        if _is_valid(record, layer, profile):
            return record
    return fitting[0] if fitting else None


def _is_valid(record: TuningRecord, layer: LayerSpec, profile: DeviceProfile) -> bool:
    try:
        wanted = quest(layer, record.variant, profile)
    except InputError:
        return False
    return bool(readable(wanted.space, [record.choices]))
