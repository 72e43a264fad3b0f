"""The best kernels of a layer's variants, timed again in the same turns.

The searches of variants follow each other, and a machine that others use is faster in one minute
than in another by more than variants differ: records of different minutes cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_to_json
from mapper.tuning_records import TuningRecord
from nestmap.kernel_bench.pool import Pool
from nestmap.kernel_bench.proposals import readable
from nestmap.kernel_bench.same_turns import together
from nestmap.kernel_bench.search import (
    INPUT_SEED,
    Quest,
    quest,
    record_of,
    timed_alone,
)
from nestmap.kernel_bench.trial import Trial, choices_key
from nestmap.tuning.reference import make_workload

#: Of each variant so many of the fastest, and of the fastest without extra memory.
_FASTEST = 4
_LEAN = 1
SETTLING_TURNS = 5


def finalists(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The fastest of each variant and the fastest of each without extra memory, by their times so
    far; each once."""
    by_variant: dict[str, dict[str, TuningRecord]] = {}
    for record in sorted(records, key=lambda record: record.time_ms):
        by_variant.setdefault(record.variant, {}).setdefault(choices_key(record.choices), record)
    chosen: list[TuningRecord] = []
    for found in by_variant.values():
        lean = [record for record in found.values() if record.extra_bytes == 0][:_LEAN]
        fastest = list(found.values())[:_FASTEST]
        chosen += [*fastest, *(record for record in lean if record not in fastest)]
    return chosen


def in_the_same_turns(
    layer: LayerSpec, records: Sequence[TuningRecord], pool: Pool, profile: DeviceProfile
) -> list[TuningRecord]:
    """These records of a layer as they were timed now, variant after variant in each turn.

    Those that are not valid any more, fail or are wrong are left out.
    """
    facts = pool.device().facts
    quests: dict[str, Quest] = {}
    chosen: dict[str, dict[str, Mapping[str, Any]]] = {}
    for variant in dict.fromkeys(record.variant for record in records):
        try:
            quests[variant] = quest(layer, variant, profile)
        except InputError:
            continue
        stored = [record.choices for record in records if record.variant == variant]
        valid = map(assignment_to_json, readable(quests[variant].space, stored))
        chosen[variant] = {choices_key(value): value for value in valid}
    turns: dict[str, dict[str, list[Trial]]] = {
        variant: {key: [] for key in of_variant} for variant, of_variant in chosen.items()
    }
    workloads = {v: make_workload(wanted.subject, INPUT_SEED, {}) for v, wanted in quests.items()}
    for _ in range(SETTLING_TURNS):
        for variant, of_variant in turns.items():
            pool.begin(layer, variant, workloads[variant])
            for key, made in of_variant.items():
                if not made or made[-1].time_ms is not None:
                    made.append(timed_alone(pool, chosen[variant][key]))
    made_of_all = {(v, key): made for v, of in turns.items() for key, made in of.items()}
    found = [
        record_of(quests[variant], trial, facts)
        for (variant, _), trial in together(made_of_all).items()
    ]
    return [record for record in found if record is not None]
