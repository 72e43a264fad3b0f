"""Records of several variants are of the same turns, not of the minute in which each was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from mapper.measurement import CompileError, Timed
from mapper.tuning_records import TuningRecord
from nestmap.tuning.measuring.pool import Pool
from nestmap.tuning.same_turns import together
from nestmap.tuning.settling import (
    CONTENDING_TURNS,
    SETTLING_TURNS,
    finalists,
    in_the_same_turns,
)
from nestmap.tuning.trial import Trial, choices_key
from tests.unit.tuning.records import SMALL
from tests.unit.tuning.slowing_pool import SlowingPool, found
from worker.devices.null import NULL_PROFILE


def again(pool: SlowingPool, records: Sequence[TuningRecord]) -> list[TuningRecord]:
    return in_the_same_turns(SMALL, records, cast(Pool, pool), NULL_PROFILE)


def test_variants_take_turns_so_that_a_slow_minute_is_slow_for_all() -> None:
    # The slower variant was found in a quieter minute.
    before = [*found("direct", 2, 0.1), *found("partial", 1, 5.0)]
    pool = SlowingPool({"direct": 2.0, "partial": 1.0})
    settled = again(pool, before)
    order = [(r.variant, choices_key(r.choices)) for r in before]
    assert pool.measured == order * SETTLING_TURNS
    assert min(settled, key=lambda r: r.time_ms).variant == "partial"
    assert {r.trials for r in settled} == {5 * SETTLING_TURNS}


def test_those_near_the_best_have_more_turns() -> None:
    near, far = found("direct", 2, 1.0), found("partial", 1, 1.0)
    pool = SlowingPool({"direct": 1.0, "partial": 1.2}, steady=True)
    settled = again(pool, [*near, *far])
    trials = {r.variant: r.trials for r in settled}
    assert trials == {
        "direct": 5 * (SETTLING_TURNS + CONTENDING_TURNS), "partial": 5 * SETTLING_TURNS,
    }  # fmt: skip
    assert {r.variant: r.time_ms for r in settled} == {"direct": 1.0, "partial": 1.2}


def test_times_are_those_of_the_usual_turn() -> None:
    turns = {f"{n}": tuple(n * t for t in (1.0, 3.0, 1.1)) for n in (1, 2, 3, 4)}
    of_all = together({key: [trial(t) for t in times] for key, times in turns.items()})
    assert {key: one.time_ms for key, one in of_all.items()} == {
        "1": 1.1, "2": 2.2, "3": 3.3, "4": 4.4,
    }  # fmt: skip
    spread = of_all["1"].outcome
    assert isinstance(spread, Timed) and set(spread.trials_ns) == {1_100_000}, (
        "turns differ, not it"
    )


def test_what_befalls_one_alone_changes_nothing_for_the_others() -> None:
    steady = {f"{n}": [trial(float(n))] * 3 for n in (1, 2, 3, 4)}
    of_all = together({**steady, "late": [trial(1.0), trial(9.0), trial(1.0)]})
    assert [one.time_ms for one in of_all.values()] == [1.0, 2.0, 3.0, 4.0, 1.0]
    # Nor where one had fewer turns, or failed in one and came to nothing.
    failed = Trial({}, CompileError("no"))
    of_all = together({**steady, "few": [trial(2.0)], "failed": [trial(9.0), failed]})
    assert [one.time_ms for one in of_all.values()] == [1.0, 2.0, 3.0, 4.0, 2.0, None]
    assert of_all["failed"] is failed


def test_turns_that_only_contenders_had_are_taken_at_the_speed_of_those_that_all_had() -> None:
    """Else whoever had a few turns in a quiet minute would beat all that had more."""
    for slower in (1.2, 0.8):
        turns = {f"c{n}": [trial(t)] * 5 + [trial(t * slower)] * 6
                 for n, t in enumerate((1.0, 1.02))}  # fmt: skip
        turns |= {f"other{n}": [trial(1.06 + n / 100)] * 5 for n in range(6)}
        times = {key: one.time_ms for key, one in together(turns).items()}
        assert list(times.values()) == pytest.approx(
            [1.0, 1.02, *(1.06 + n / 100 for n in range(6))]
        )


def test_of_few_candidates_times_stay_as_they_were_measured() -> None:
    """A hiccup of one in two of three turns would make the other faster than it ever was."""
    of_all = together({
        "fast": [trial(1.0)] * 3, "hiccups": [trial(2.0), trial(6.0), trial(6.0)],
    })  # fmt: skip
    assert of_all["fast"].time_ms == 1.0
    failed = Trial({}, CompileError("no"))
    assert together({"failed": [failed]}) == {"failed": failed}


def trial(time_ms: float) -> Trial:
    return Trial({}, Timed((round(1e6 * time_ms),) * 3, 1e-7, 0.0))


def test_what_fails_now_or_is_not_valid_any_more_is_left_out() -> None:
    direct, partial = found("direct", 2, 1.0), found("partial", 1, 1.0)
    stale = replace(direct[0], choices={**direct[0].choices, "parameters": {"th": 3}})
    pool = SlowingPool({"direct": 1.0, "partial": None})
    settled = again(pool, [stale, direct[1], *partial])
    assert [choices_key(r.choices) for r in settled] == [choices_key(direct[1].choices)]
    assert [variant for variant, _ in pool.measured].count("partial") == 1, "it failed at once"


def test_finalists_are_the_fastest_of_each_variant_and_the_fastest_without_extra_memory() -> None:
    lean = replace(found("direct", 1, 9.0)[0], extra_bytes=0, choices={"mapping": {"lean": 0}})
    direct = found("direct", 7, 1.0)
    chosen = finalists([lean, *direct[::-1], *found("partial", 1, 7.5)], direct[:1])
    assert [record.time_ms for record in chosen] == [1.0, 2.0, 3.0, 4.0, 7.5, 9.0]


def test_nothing_that_is_known_or_on_the_front_keeps_figures_of_another_minute() -> None:
    direct = found("direct", 7, 1.0)
    between = replace(direct[6], time_ms=6.5, extra_bytes=10)
    known = direct[4:6]
    chosen = finalists([*direct[:4], between], known)
    assert [record.time_ms for record in chosen] == [1.0, 2.0, 3.0, 4.0, 6.5, 5.0, 6.0]
