"""What no database can hold is refused by name, before the database says it in its own words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from db.farm.errors import AbsentError
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.records import IdempotencyKey, Keyset
from db.farm.run_records import DeviceState, NewRun, StudySpec
from db.farm.states import JobKind, Scope
from mapper.errors import InputError, LimitError
from mapper.measurement import CompileError, Timed, Wrong
from tests.unit.db.farm_values import (
    FACTS,
    PROGRAM,
    UNBOUNDED,
    Clock,
    claim,
    propose,
    some_board,
    some_proposal,
    some_run,
)

BAD_TEXTS = ("nul \0", "half \udc80 of a pair", "x" * 100_000)
BAD_JSON = ({"x": float("nan")}, {"x": float("inf")}, {"x": {1, 2}}, {"x": b"bytes"})
BAD_INTEGERS: tuple[Any, ...] = (2**63, -(2**70), 1.5, True, float("nan"))
# Escapes hold any text in JSON, and integers of any size are JSON.
FINE_JSON = {"nul": "a\0b", "half": "\udc80", "big": 2**80, "deep": [[[[None]]]]}


@pytest.mark.parametrize("bad", BAD_TEXTS, ids=["nul", "surrogate", "long"])
def test_texts(farm: Farm, bad: str):
    board = some_board(farm)
    for act in (
        lambda: farm.boards.add(bad),
        lambda: farm.boards.add("n", profile=bad),
        lambda: farm.boards.add("n", agent_version=bad),
        lambda: farm.boards.find(bad),
        lambda: farm.boards.seen(board.id, agent_version=bad),
        lambda: farm.boards.quarantine(board.id, "x", by=bad),
        lambda: farm.tokens.create(Scope.USER, label=bad),
        lambda: farm.enrolments.create(principal=bad),
        lambda: farm.enrolments.create(profile=bad),
        lambda: some_run(farm, board, label=bad),
        lambda: some_run(farm, board, principal=bad),
        lambda: farm.runs.page(label=bad),
        lambda: farm.runs.page(after=Keyset(datetime.now().astimezone(), bad)),
        lambda: farm.jobs.enqueue(NewJob({}, bad)),
        lambda: farm.idempotency.find(IdempotencyKey("me", bad, "0" * 64)),
        lambda: farm.idempotency.find(IdempotencyKey(bad, "k", "0" * 64)),
        lambda: farm.artifacts.find(bad),
    ):
        with pytest.raises(InputError) as caught:
            act()
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()
    assert len(farm.boards.page()) == 1


@pytest.mark.parametrize("bad", ["nul \0", "half \udc80"], ids=["nul", "surrogate"])
def test_an_identifier_that_no_row_can_have_names_nothing(farm: Farm, bad: str):
    for act in (
        lambda: farm.boards.board(bad),
        lambda: farm.boards.seen(bad),
        lambda: farm.boards.release(bad, by="me"),
        lambda: farm.runs.run(bad),
        lambda: farm.runs.cancel(bad),
        lambda: farm.jobs.job(bad),
        lambda: farm.jobs.cancel(bad),
        lambda: farm.jobs.claim_for_board(bad, lease_s=1),
        lambda: farm.tokens.revoke(bad),
        lambda: farm.events.events_after(bad),
        lambda: farm.tokens.create(Scope.DEVICE, board_id=bad),
    ):
        with pytest.raises(AbsentError, match="no such"):
            act()
    assert farm.jobs.claim_work([JobKind.SOLVE], "s", lease_s=1, job_id=bad) is None
    assert farm.jobs.attempts(bad) == ()
    assert farm.events.of_board(bad) == ()
    assert farm.boards.history(bad) == ()


def test_reasons_of_drivers_are_spelled_out(farm: Farm):
    board = some_board(farm)
    found = farm.boards.quarantine(board.id, "CL \0 \udc80 " + "x" * 10_000, by="me")
    assert found.reason.startswith("CL \\x00 \\udc80 xxx")
    assert len(found.reason) == 2_000
    run = some_run(farm, board)
    assert farm.runs.fail(run.id, "\0\udc80").reason == "\\x00\\udc80"


@pytest.mark.parametrize("bad", BAD_JSON, ids=["nan", "inf", "set", "bytes"])
def test_values_that_are_no_json(farm: Farm, bad: dict[str, Any]):
    board = some_board(farm)
    run = some_run(farm, board, low_water=1)
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    assert claimed is not None
    fine = some_proposal([0])
    for act in (
        lambda: farm.boards.add("n", facts=bad),
        lambda: farm.boards.seen(board.id, facts=bad),
        lambda: farm.boards.seen(board.id, health=bad),
        lambda: some_run(farm, board, request=bad),
        lambda: farm.jobs.enqueue(NewJob(bad, "me")),
        lambda: farm.results.finish_propose(claimed.lease, replace(fine, strategy_state=bad)),
        lambda: farm.results.finish_propose(claimed.lease, replace(fine, report=bad)),
        lambda: farm.results.finish_propose(
            claimed.lease, replace(fine, device=DeviceState("d", bad))
        ),
        lambda: farm.results.finish_propose(
            claimed.lease, replace(fine, candidates=(replace(fine.candidates[0], payload=bad),))
        ),
    ):
        with pytest.raises(InputError, match="not a JSON value"):
            act()
    assert farm.runs.run(run.id).progress.proposed == 0
    farm.results.finish_propose(claimed.lease, fine)
    measuring = claim(farm, board)
    with pytest.raises(InputError, match="not a JSON value"):
        farm.results.finish_measure(measuring.lease, Timed((1,), 0.0, 1.0), facts=bad)
    solving = farm.jobs.enqueue(NewJob({}, "me")).value
    work = farm.jobs.claim_work([JobKind.SOLVE], "s", lease_s=30, job_id=solving.id)
    assert work is not None
    with pytest.raises(InputError, match="not a JSON value"):
        farm.results.finish_solve(work.lease, bad)


def test_any_json_comes_back_as_it_was(farm: Farm):
    board = farm.boards.add("n", facts=FINE_JSON).board
    assert farm.boards.board(board.id).facts == FINE_JSON
    run = some_run(farm, board, request=FINE_JSON)
    assert farm.runs.run(run.id).request == FINE_JSON
    propose(farm, [0], report=FINE_JSON, strategy_state=FINE_JSON)
    assert farm.runs.history(run.id).strategy_state == FINE_JSON
    assert farm.events.events_after(run.id).events[1].payload["report"] == FINE_JSON
    job = farm.jobs.enqueue(NewJob(FINE_JSON, "me")).value
    assert farm.jobs.job(job.id).payload == FINE_JSON


def test_too_much_is_a_limit(farm: Farm):
    board = some_board(farm)
    with pytest.raises(LimitError, match="facts: is too large"):
        farm.boards.seen(board.id, facts={"x": "y" * (65 << 10)})
    with pytest.raises(LimitError, match="request: is too large"):
        some_run(farm, board, request={"x": "y" * (5 << 20)})
    some_run(farm, board)
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    assert claimed is not None
    with pytest.raises(LimitError, match="proposal: is too large"):
        farm.results.finish_propose(claimed.lease, some_proposal(range(501)))


def test_numbers(farm: Farm):
    board = some_board(farm)
    for bad in BAD_INTEGERS:
        for act in (
            lambda bad=bad: some_run(farm, board, budget_candidates=bad),
            lambda bad=bad: some_run(farm, board, priority=bad),
            lambda bad=bad: some_run(farm, board, low_water=bad),
            lambda bad=bad: farm.jobs.enqueue(NewJob({}, "me", priority=bad)),
            lambda bad=bad: farm.jobs.enqueue(NewJob({}, "me", max_attempts=bad)),
            lambda bad=bad: farm.runs.page(limit=bad),
        ):
            with pytest.raises(InputError, match="no integer within bounds"):
                act()
    for bad in (float("nan"), float("inf"), -1.0, 0.0):
        for act in (
            lambda bad=bad: some_run(farm, board, budget_seconds=bad),
            lambda bad=bad: farm.jobs.claim_for_board(board.id, lease_s=bad),
            lambda bad=bad: farm.jobs.claim_work([JobKind.SOLVE], "s", lease_s=bad),
            lambda bad=bad: farm.tokens.create(Scope.USER, lifetime_s=bad),
        ):
            with pytest.raises(InputError, match="no number within bounds"):
                act()
    for bad in (-1, 2**63):
        run = some_run(farm, board)
        with pytest.raises(InputError, match="after: is no integer"):
            farm.events.events_after(run.id, after=bad)
    with pytest.raises(InputError, match="no time zone"):
        farm.jobs.enqueue(NewJob({}, "me", not_before=datetime(2026, 1, 1)))


@pytest.mark.parametrize(
    "change", [{"seed": 2**63}, {"variant": "\0"}, {"mode": "x" * 65}, {"program_json": "{NaN"}]
)
def test_studies_that_cannot_be_stored(farm: Farm, change: dict[str, Any]):
    some_run(farm, some_board(farm))
    values: dict[str, Any] = {
        "program_schema": "nestmap/program/1",
        "program_json": PROGRAM,
        "variant": "direct",
        "mode": "strict",
        "seed": 1,
    }
    with pytest.raises(InputError, match="studies/0/" + next(iter(change))):
        propose(farm, [], studies=(StudySpec(**(values | change)),))


@pytest.mark.parametrize("change", [{"memory_bytes": 2**63}, {"source_hash": "x"}])
def test_candidates_that_cannot_be_stored(farm: Farm, change: dict[str, Any]):
    some_run(farm, some_board(farm))
    fine = some_proposal([0])
    (candidate,) = fine.candidates
    wrong = replace(candidate, record=replace(candidate.record, **change))
    with pytest.raises(InputError, match="candidates/0/record/" + next(iter(change))):
        propose(farm, [], candidates=(wrong,))


def test_outcomes_with_hostile_messages_come_back(farm: Farm):
    board = some_board(farm)
    some_run(farm, board, low_water=1)
    propose(farm, range(2))
    outcomes = (CompileError("line 1: \0 \udc80 µ"), Wrong(float("inf"), (0, 2**70), "\0"))
    for outcome in outcomes:
        done = farm.results.finish_measure(claim(farm, board).lease, outcome, facts=FACTS)
        assert done.stored
    (study,) = farm.store.studies()
    assert tuple(m.outcome for m in farm.store.measurements(study)) == outcomes


def test_an_outcome_that_no_column_holds_leaves_the_lease(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, low_water=1)
    propose(farm, [0])
    claimed = claim(farm, board)
    with pytest.raises(LimitError, match="outcome: is too large"):
        farm.results.finish_measure(claimed.lease, CompileError("x" * 70_000), facts=FACTS)
    assert farm.runs.run(run.id).progress.measured == 0
    assert farm.results.finish_measure(claimed.lease, CompileError("x"), facts=FACTS).stored


def test_a_run_on_a_hostile_board_name(farm: Farm):
    with pytest.raises(InputError):
        farm.runs.create(NewRun("dev_\0", "x", "me", {}, **UNBOUNDED))


@pytest.mark.parametrize("stated", ["[" * 60_000, '{"a":' * 9_000, "1" * 5_000, "NaN", "{", ""])
def test_a_board_that_states_no_profile_is_taken_at_its_word(farm: Farm, stated: str):
    """Whoever reads a profile refuses it: brackets were a RecursionError in runs of that board."""
    board = farm.boards.add("liar", facts={"profile": stated}).board
    assert farm.boards.board(board.id).limits == stated
