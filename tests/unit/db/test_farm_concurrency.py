"""Many at once: two claimers, one key twice, one code twice, two proposals with shared rows."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest

from db.farm.errors import CodeGone, ConflictError, StaleLease
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.leases import take
from db.farm.records import IdempotencyKey
from db.farm.run_records import NewRun
from db.farm.states import JobKind, JobState, RunState
from tests.unit.db.farm_values import (
    UNBOUNDED,
    claim,
    finish,
    propose,
    some_board,
    some_proposal,
    some_run,
)

THREADS = 6


@pytest.fixture
def farm(farm_url: str):
    """An empty farm on each database, with the real clock."""
    with Farm.open(farm_url, connections=THREADS) as farm:
        yield farm


def at_once(act: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """What ``act(0)``, ``act(1)``, … gave or raised, begun together in threads."""
    found: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait(30)
        try:
            found[number] = act(number)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return found


@pytest.mark.parametrize("first_has_one_each", [True, False])
def test_a_claim_of_one_each_sees_the_claim_before_it(
    farm: Farm, monkeypatch: pytest.MonkeyPatch, first_has_one_each: bool
):
    for _ in range(3):
        farm.jobs.enqueue(NewJob({}, "greedy"))
    has_taken, looked = threading.Event(), threading.Event()

    def take_slowly(*of: Any) -> Any:
        found = take(*of)
        if not has_taken.is_set():
            has_taken.set()
            looked.wait(0.5)
        return found

    monkeypatch.setattr("db.farm.jobs.take", take_slowly)

    def act(number: int) -> Any:
        if number:
            has_taken.wait(30)
        one_each = first_has_one_each or number > 0
        found = farm.jobs.claim_work([JobKind.SOLVE], "s", lease_s=30, one_each=one_each)
        looked.set()
        return found

    first, second = at_once(act, 2)
    assert first.job.principal == "greedy"
    assert second is None


@pytest.mark.parametrize("told", [False, True])
def test_of_claims_for_one_board_one_gets_a_lease(farm: Farm, told: bool):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, range(8))
    for _ in range(4):
        claims = at_once(lambda _: farm.jobs.claim_for_board(board.id, lease_s=30, told=told))
        assert not [each for each in claims if isinstance(each, Exception)]
        (won,) = [each for each in claims if each is not None]
        assert finish(farm, won).stored


def test_workers_share_the_queue(farm: Farm):
    ids = {farm.jobs.enqueue(NewJob({"n": n}, "me")).value.id for n in range(THREADS * 2)}
    claimed: list[str] = []
    for _ in range(3):
        for each in at_once(lambda n: farm.jobs.claim_work([JobKind.SOLVE], str(n), lease_s=30)):
            assert not isinstance(each, Exception)
            claimed += [each.job.id] if each else []
    assert sorted(claimed) == sorted(ids)


def test_a_repeated_result_is_stored_once(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(2))
    won = claim(farm, board)
    ended = at_once(lambda _: finish(farm, won))
    assert sorted(each.stored for each in ended) == [False] * (THREADS - 1) + [True]
    assert farm.runs.run(run.id).progress.measured == 1


def test_duplicate_requests_create_one_run(farm: Farm):
    board = some_board(farm)
    key = IdempotencyKey("me", "k", "0" * 64)
    made = at_once(lambda _: farm.runs.create(NewRun(board.id, "x", "me", {}, **UNBOUNDED), key))
    assert {each.value.id for each in made} == {farm.runs.page()[0].id}
    assert len(farm.runs.page()) == 1
    assert sorted(each.repeated for each in made) == [False] + [True] * (THREADS - 1)
    assert len({str(each.response) for each in made}) == 1


def test_an_owner_has_no_more_open_runs_for_asking_at_once(farm: Farm):
    board = some_board(farm)
    bounds: dict[str, Any] = {**UNBOUNDED, "most_open": 3}
    new = NewRun(board.id, "x", "me", {}, **bounds)
    made = at_once(lambda _: farm.runs.create(new))
    made += at_once(lambda _: farm.runs.create(new))
    refused = [each for each in made if isinstance(each, ConflictError)]
    assert len(farm.runs.page()) == 3 == len(made) - len(refused)


def test_a_code_lets_one_board_in(farm: Farm):
    code = farm.enrolments.create().code
    found = at_once(
        lambda n: farm.enrolments.redeem(code, name=f"b{n}", agent_version="", facts={})
    )
    gone = [each for each in found if isinstance(each, CodeGone)]
    assert len(gone) == THREADS - 1
    assert len(farm.boards.page()) == 1


def test_the_end_of_a_run_is_reached_once_whoever_comes_first(farm: Farm):
    board = some_board(farm)
    for _ in range(3):
        run = some_run(farm, board)
        propose(farm, range(3))
        won = claim(farm, board)
        acts = [
            lambda won=won: finish(farm, won),
            lambda run=run: farm.runs.cancel(run.id),
            lambda run=run: farm.runs.pause(run.id),
            lambda: farm.jobs.expire(),
            lambda: farm.jobs.claim_for_board(board.id, lease_s=30),
            lambda won=won: farm.jobs.heartbeat(won.lease, lease_s=30),
        ]
        found = at_once(lambda n, acts=acts: acts[n]())
        assert found[0].stored  # a measurement is never lost to a cancel
        unexpected = [
            each
            for each in found
            if isinstance(each, Exception)
            and "cannot become" not in str(each)
            and not isinstance(each, StaleLease)
        ]
        assert unexpected == []
        held = found[4]
        if held is not None:
            finish(farm, held)
        assert farm.runs.cancel(run.id).state is RunState.CANCELLED
        assert {job.state for job in farm.jobs.of_run(run.id)} <= {
            JobState.DONE,
            JobState.CANCELLED,
        }


def test_proposals_with_shared_candidates_do_not_wait_in_a_circle(farm: Farm):
    boards = [some_board(farm, f"b{n}") for n in range(THREADS)]
    for board in boards:
        some_run(farm, board, low_water=1)
    claims = [farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) for _ in boards]
    orders = [list(range(40)), list(reversed(range(40)))]

    def end(number: int) -> Any:
        claimed = claims[number]
        assert claimed is not None
        return farm.results.finish_propose(claimed.lease, some_proposal(orders[number % 2]))

    ended = at_once(end)
    assert [each.run.progress.proposed for each in ended] == [40] * THREADS


def test_events_of_a_run_appear_in_the_order_of_their_numbers(farm: Farm):
    """Who has read up to an id has missed none before it, while others write."""
    boards = [some_board(farm, f"b{n}") for n in range(3)]
    runs = [some_run(farm, board, low_water=1) for board in boards]
    for _ in runs:
        propose(farm, range(10))
    seen: dict[str, list[int]] = {run.id: [] for run in runs}
    writing = threading.Event()
    writing.set()

    def read() -> None:
        while writing.is_set():
            for run in runs:
                after = seen[run.id][-1] if seen[run.id] else 0
                page = farm.events.events_after(run.id, after, limit=3)
                seen[run.id] += [event.id for event in page.events]

    reader = threading.Thread(target=read)
    reader.start()
    try:
        at_once(lambda n: [finish(farm, claim(farm, boards[n])) for _ in range(10)], count=3)
    finally:
        writing.clear()
        reader.join(60)
    for run in runs:
        everything = [event.id for event in farm.events.events_after(run.id).events]
        assert seen[run.id] == everything[: len(seen[run.id])]
        assert len(everything) >= 13


def measure_all(url: str, board_ids: list[str], results: Any) -> None:
    """A process of the test below: claims for any of the boards until nothing is left."""
    stored = 0
    with Farm.open(url) as farm:
        while farm.jobs.counts().get((JobKind.MEASURE, JobState.QUEUED), 0):
            for board_id in board_ids:
                won = farm.jobs.claim_for_board(board_id, lease_s=30)
                if won is not None:
                    stored += finish(farm, won).stored
    results.put(stored)


def test_processes_measure_everything_once(farm: Farm, farm_url: str):
    boards = [some_board(farm, f"b{n}") for n in range(2)]
    runs = [some_run(farm, board, low_water=1) for board in boards]
    for _ in runs:
        propose(farm, range(15), exhausted=True)
    context = multiprocessing.get_context("spawn")
    results: Any = context.SimpleQueue()
    arguments = (farm_url, [board.id for board in boards], results)
    workers = [context.Process(target=measure_all, args=arguments) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert sum(results.get() for _ in workers) == 30
    for run in runs:
        ended = farm.runs.run(run.id)
        assert (ended.state, ended.progress.measured) == (RunState.FINISHED, 15)
        assert all(len(farm.jobs.attempts(job.id)) == 1 for job in farm.jobs.of_run(run.id))
    results.close()
