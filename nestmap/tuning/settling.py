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
from mapper.tuning_records import TuningRecord, front_of
from nestmap.tuning.layer_search import (
    INPUT_SEED,
    Quest,
    quest,
    record_of,
    timed_alone,
)
from nestmap.tuning.measuring.pool import Pool
from nestmap.tuning.proposals.sample_and_change import readable
from nestmap.tuning.reference import make_workload
from nestmap.tuning.same_turns import may_go_on, together
from nestmap.tuning.trial import Trial, choices_key

#: Of each variant so many of the fastest.
_FASTEST = 4
SETTLING_TURNS = 5
#: More turns for those that may be the best: within this factor of it after the first.
CONTENDING_TURNS = 6
_CONTENDING = 1.05

#: A variant, and a candidate's key.
_Key = tuple[str, str]


def finalists(results: Sequence[TuningRecord], known: Sequence[TuningRecord]) -> list[TuningRecord]:
    """Of all the fastest of each variant, by their times so far, and the front of time and extra
    memory; and all that is ``known``, for figures of other minutes must not stand beside these.
    Each once."""
    by_time = sorted([*results, *known], key=lambda record: record.time_ms)
    by_variant: dict[str, dict[str, TuningRecord]] = {}
    for record in by_time:
        by_variant.setdefault(record.variant, {}).setdefault(choices_key(record.choices), record)
    fastest = [record for of in by_variant.values() for record in list(of.values())[:_FASTEST]]
    chosen: dict[_Key, TuningRecord] = {}
    for record in (*fastest, *front_of(by_time), *known):
        chosen.setdefault((record.variant, choices_key(record.choices)), record)
    return list(chosen.values())


def in_the_same_turns(
    layer: LayerSpec, records: Sequence[TuningRecord], pool: Pool, profile: DeviceProfile
) -> list[TuningRecord]:
    """These records of a layer as they were timed now, variant after variant in each turn.

    Those that are not valid any more, fail or are wrong are left out.
    """
    facts = pool.device().facts
    quests: dict[str, Quest] = {}
    chosen: dict[_Key, Mapping[str, Any]] = {}
    for variant in dict.fromkeys(record.variant for record in records):
        try:
            quests[variant] = quest(layer, variant, profile)
        except InputError:
            continue
        stored = [record.choices for record in records if record.variant == variant]
        valid = map(assignment_to_json, readable(quests[variant].space, stored))
        chosen |= {(variant, choices_key(value)): value for value in valid}
    begun = {
        variant: pool.begin(layer, variant, make_workload(wanted.subject, INPUT_SEED, {}))
        for variant, wanted in quests.items()
    }
    turns: dict[_Key, list[Trial]] = {key: [] for key in chosen}
    wanted = list(chosen)
    for turn in range(SETTLING_TURNS + CONTENDING_TURNS):
        if turn == SETTLING_TURNS and len(wanted := _contenders(turns)) < 2:
            break
        for variant, number in begun.items():
            keys = [key for key in wanted if key[0] == variant and may_go_on(turns[key])]
            if keys:
                pool.resume(number)
            for key in keys:
                turns[key].append(timed_alone(pool, chosen[key]))
    settled = together(turns)
    found = [record_of(quests[variant], settled[variant, key], facts) for variant, key in settled]
    return [record for record in found if record is not None]


def _contenders(turns: Mapping[_Key, Sequence[Trial]]) -> list[_Key]:
    """Those near the best so far."""
    times = {key: trial.time_ms for key, trial in together(turns).items()}
    best = min((time for time in times.values() if time is not None), default=0.0)
    return [key for key, time in times.items() if time is not None and time <= _CONTENDING * best]
