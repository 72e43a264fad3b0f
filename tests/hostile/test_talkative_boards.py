"""A board that tells very much ends nobody's run: what proposes hears the times alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from api.solver_child import MAX_REQUEST_BYTES
from db.canonical import canonical_json, content_hash
from db.farm.farm import Farm
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
    in_brief,
)
from nestmap.farm import proposing
from nestmap.farm.proposing import propose_request
from tests.unit.api.farm_data import PROGRAM, measure, new_run, propose

STATE = {"programs": [content_hash(canonical_json(json.loads(PROGRAM)))]}


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with Farm.open(tmp_path / "farm.sqlite3") as farm:
        yield farm


def asked(farm: Farm, board_id: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """What a child is asked after these outcomes."""
    run = new_run(farm, board_id)
    propose(farm, *[100] * len(outcomes), exhausted=True)
    measure(farm, board_id, *outcomes)
    history = replace(farm.runs.history(run.id), strategy_state=STATE)
    return propose_request(history, farm.boards.board(board_id), "/spool")


def told(request: dict[str, object]) -> list[list[object]]:
    history = request["history"]
    assert isinstance(history, dict)
    return history["measured"]


def test_trials_and_messages_do_not_reach_who_proposes(farm: Farm):
    board = farm.boards.add("liar", profile="pocl").board
    trials = tuple(10**5 + place for place in range(100_000))
    spans = tuple(3 * trial for trial in trials)
    timed = Timed(trials, 0.0, 1.0, {"fact": "x" * 20_000}, spans)
    much = [timed, timed, timed, CompileError("\N{SNOWMAN}" * 10_000), Crash(-11, "y" * 20_000)]
    request = asked(farm, board.id, much)
    assert len(told(request)) == 5
    assert len(json.dumps(request)) < 10_000


@pytest.mark.parametrize("number", [1, 2, 3, 6, 7])
def test_in_brief_the_times_are_the_same(number: int):
    trials = tuple(1_000 + place * 7919 % 13 for place in range(number))
    for spans in ((), tuple(2 * trial + 1 for trial in trials)):
        whole = Timed(trials, 0.5, 1.0, {"a": "b"}, spans)
        brief = in_brief(whole)
        assert isinstance(brief, Timed) and len(brief.trials_ns) <= 2
        assert (brief.time_ms, brief.kernel_ms) == (whole.time_ms, whole.kernel_ms)
        assert median(brief.times_ns) == median(whole.times_ns)


def test_in_brief_an_outcome_is_of_its_kind():
    for outcome in (Wrong(1.0, (1, 2), "w" * 999), CompileError("c"), ResourceError("r" * 201)):
        brief = in_brief(outcome)
        assert type(brief) is type(outcome)
        assert brief == replace(outcome, message=outcome.message[:200])
    assert in_brief(Timeout(2.0)) == Timeout(2.0)


def test_of_a_history_that_is_too_long_the_fastest_and_the_newest_are_told(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
):
    board = farm.boards.add("long", profile="pocl").board
    times_ms = [50, 1, 2, *range(60, 97)]
    outcomes: list[Outcome] = [Timed((10**6 * time,), 0.0, 1.0) for time in times_ms]
    assert len(told(asked(farm, board.id, outcomes))) == 40
    entry = len(json.dumps(told(asked(farm, board.id, outcomes))[0]))
    room = proposing._LIMITS_BYTES + 1_000 + 10 * entry
    monkeypatch.setattr(proposing, "MAX_REQUEST_BYTES", room)
    request = asked(farm, board.id, outcomes)
    assert len(json.dumps(request)) < room < MAX_REQUEST_BYTES
    kept = [entry[2]["trials_ns"][0] // 10**6 for entry in told(request)]  # pyright: ignore
    assert 4 <= len(kept) < 20
    assert kept[:3] == [50, 1, 2] and kept[-1] == 96
    assert kept == [time for time in times_ms if time in kept]
