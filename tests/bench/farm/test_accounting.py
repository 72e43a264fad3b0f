"""Figures and accounts of the farm's bench: what was lost or stored twice is never overlooked."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.farm.accounting import account, pick_ups_ms, results_a_second
from bench.farm.crews import Seen
from bench.farm.figures import percentile, summary
from bench.farm.load import Ending, Injected

MS = 1_000_000
DONE = Ending("done", 1, 1)


def injected(candidate: str, claimable_ms: int = 0, board: str = "dev") -> Injected:
    return Injected(board, (candidate,), 0, 0, claimable_ms * MS)


def got(candidate: str, at_ms: int, board: str = "dev") -> dict[str, Any]:
    return {"board": board, "job": f"job {candidate}", "candidate": candidate, "t": at_ms * MS}


def sent(candidate: str, at_ms: int, stored: bool = True, board: str = "dev") -> dict[str, Any]:
    return {"board": board, "job": f"job {candidate}", "stored": stored, "t": at_ms * MS}


def test_percentiles_are_values_of_the_sample() -> None:
    sample = [float(n) for n in range(1, 101)]
    assert [percentile(sample, share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]
    assert percentile([7.0], 0.95) == 7.0
    assert math.isnan(percentile([], 0.5))
    assert summary([])["p95"] is None
    assert summary([3.0, 1.0])["max"] == 3.0


def test_a_job_measured_once_is_neither_lost_nor_doubled() -> None:
    seen = Seen(got=[got("a", 1)], sent=[sent("a", 2), sent("a", 3, stored=False)])
    found = account([injected("a")], {"a": DONE}, seen)
    assert (found.accepted, found.measured, found.repeats) == (1, 1, 1)
    assert not found.lost
    assert not found.duplicated


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(None, id="no job at all"),
        pytest.param(Ending("queued", 1, 0), id="still waiting"),
        pytest.param(Ending("done", 1, 0), id="ended without its measurement"),
        pytest.param(Ending("failed", 3, 0), id="given up"),
    ],
)
def test_a_job_without_its_measurement_is_lost(ending: Ending | None) -> None:
    endings = {} if ending is None else {"a": ending}
    assert account([injected("a")], endings, Seen()).lost == ("a",)


def test_an_answer_of_stored_without_a_row_is_a_loss() -> None:
    seen = Seen(got=[got("a", 1)], sent=[sent("a", 2)])
    assert account([injected("a")], {"a": Ending("cancelled", 1, 0)}, seen).lost == ("a",)


def test_a_cancelled_job_is_not_lost() -> None:
    found = account([injected("a")], {"a": Ending("cancelled", 0, 0)}, Seen())
    assert (found.lost, found.cancelled) == ((), 1)


@pytest.mark.parametrize(
    ("ending", "answers"),
    [
        pytest.param(Ending("done", 2, 2), 1, id="two rows"),
        pytest.param(Ending("done", 2, 1), 2, id="two boards were told"),
    ],
)
def test_what_was_stored_twice_is_told(ending: Ending, answers: int) -> None:
    seen = Seen(got=[got("a", 1)], sent=[sent("a", n) for n in range(answers)])
    found = account([injected("a")], {"a": ending}, seen)
    assert found.duplicated == ("a",)
    assert found.handed_out_again == 1


def test_waiting_begins_when_the_job_can_be_had() -> None:
    seen = Seen(got=[got("a", 130), got("b", 520)], sent=[sent("a", 500)])
    waited = pick_ups_ms([injected("a", 100), injected("b", 200)], seen)
    # b became claimable while its board was at work on a.
    assert waited == [30.0, 20.0]


def test_the_work_of_other_boards_does_not_shorten_a_wait() -> None:
    seen = Seen(got=[got("a", 130)], sent=[sent("z", 120, board="other")])
    assert pick_ups_ms([injected("a", 100)], seen) == [30.0]


def test_only_what_was_stored_within_the_span_counts() -> None:
    entries = [sent("a", 1), sent("b", 500), sent("b", 600, stored=False), sent("c", 2_000)]
    assert results_a_second(Seen(sent=entries), 0, 2_000 * MS) == 1.0
