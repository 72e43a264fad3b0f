"""What is struck counts nowhere until it is brought back, and then as before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from db.farm.errors import AbsentError, ConflictError
from db.farm.farm import Farm
from db.farm.selection import Selection
from db.farm.states import EventKind
from db.farm.tables import JobRow, StruckRow
from db.tables import MeasurementRow
from mapper.errors import InputError
from mapper.measurement import Timed
from tests.unit.db.farm_values import (
    FACTS,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_run,
    timed,
)


def measured(farm: Farm, clock: Clock, times_ns: list[int], name: str = "hikey", budget: int = 50):
    """A board and a run in which candidate n took the n-th time, a minute apart."""
    board = some_board(farm, name)
    run = some_run(farm, board, budget_candidates=budget)
    propose(farm, range(len(times_ns)))
    for time_ns in times_ns:
        finish(farm, claim(farm, board), time_ns)
        clock.advance(60)
    return board, run


def test_struck_times_leave_fronts_best_and_learning(farm: Farm, clock: Clock) -> None:
    board, run = measured(farm, clock, [5_000, 1, 7_000])
    lied = farm.runs.run(run.id).progress
    assert lied.best_ms == 1e-6
    before = farm.measurements.page(Selection(run_id=run.id))
    strike = farm.strikes.strike(board.id, "a nanosecond", by="tok_admin",
                                 since=clock() - timedelta(seconds=130),
                                 until=clock() - timedelta(seconds=65))  # fmt: skip
    assert (strike.measurements, strike.lifted_at) == (1, None)
    progress = farm.runs.run(run.id).progress
    assert progress.best_ms == 5e-3
    assert progress.measured == lied.measured  # the budget stays spent
    assert farm.fronts.front(Selection(run_id=run.id))[0].time_ms == 5e-3
    best = farm.fronts.fastest(Selection(board_id=board.id))
    assert best is not None and best.time_ms == 5e-3
    history = farm.runs.history(run.id)
    assert sorted(o.trials_ns for o in history.measured.values() if isinstance(o, Timed)) == [
        (5_000,), (7_000,),
    ]  # fmt: skip
    # Not known, and not asked for again.
    (gone,) = {m.measurement.candidate_id for m in before} - {
        candidate for _, candidate in history.measured
    }
    assert gone in {candidate for _, candidate in history.lost_candidates}
    told = farm.events.of_board(board.id, limit=10)[-1]
    assert (told.kind, told.payload["by"]) == (EventKind.STRUCK, "tok_admin")


def test_lifted_strike_leaves_everything_as_it_was(farm: Farm, clock: Clock) -> None:
    board, run = measured(farm, clock, [5_000, 1, 7_000])
    before = farm.measurements.page(Selection(run_id=run.id))
    progress = farm.runs.run(run.id).progress
    strike = farm.strikes.strike(board.id, "all of it", by="me")
    assert strike.measurements == 3
    assert farm.runs.run(run.id).progress.best_ms is None
    assert farm.measurements.page(Selection(run_id=run.id)) == ()
    lifted = farm.strikes.lift(board.id, strike.id, by="you")
    assert (lifted.lifted_by, lifted.measurements) == ("you", 3)
    assert farm.measurements.page(Selection(run_id=run.id)) == before
    assert farm.runs.run(run.id).progress == progress
    assert farm.strikes.lift(board.id, strike.id, by="again") == lifted
    assert farm.strikes.of_board(board.id) == (lifted,)


def test_run_goes_on_after_a_strike_and_ids_given_anew_do_no_harm(farm: Farm, clock: Clock) -> None:
    board, run = measured(farm, clock, [5_000, 1])
    strike = farm.strikes.strike(board.id, "x", by="me")
    propose(farm, [7])
    finish(farm, claim(farm, board), 9_000)
    assert farm.runs.run(run.id).progress.best_ms == 9e-3
    farm.strikes.lift(board.id, strike.id, by="me")
    found = farm.measurements.page(Selection(run_id=run.id))
    outcomes = [m.measurement.outcome for m in found]
    assert sorted(o.trials_ns[0] for o in outcomes if isinstance(o, Timed)) == [1, 5_000, 9_000]
    assert farm.runs.run(run.id).progress.best_ms == 1e-6


def test_boards_are_struck_apart(farm: Farm, clock: Clock) -> None:
    liar, of_liar = measured(farm, clock, [1], "liar", 1)
    _, of_honest = measured(farm, clock, [5_000], "honest")
    assert farm.strikes.strike(liar.id, "lies", by="me").measurements == 1
    assert farm.strikes.strike(liar.id, "lies", by="me").measurements == 0
    assert farm.runs.run(of_liar.id).progress.best_ms is None
    assert farm.runs.run(of_honest.id).progress.best_ms == 5e-3


def test_what_cannot_be_struck_is_named(farm: Farm, clock: Clock) -> None:
    board, _ = measured(farm, clock, [5_000])
    with pytest.raises(AbsentError):
        farm.strikes.strike("dev_nobody", "x", by="me")
    with pytest.raises(AbsentError):
        farm.strikes.lift(board.id, 99, by="me")
    later = clock() + timedelta(seconds=5)
    backwards = farm.strikes.strike(board.id, "x", by="me", since=later, until=clock())
    assert (backwards.since, backwards.until) == (clock(), later)
    with pytest.raises(InputError, match="reason"):
        farm.strikes.strike(board.id, "", by="me")
    other = some_board(farm, "other")
    strike = farm.strikes.strike(board.id, "x", by="me")
    with pytest.raises(AbsentError):
        farm.strikes.lift(other.id, strike.id, by="me")


def test_number_of_strikes_is_bounded(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("db.farm.strikes.MOST_STRIKES", 2)
    board = some_board(farm)
    for _ in range(2):
        farm.strikes.strike(board.id, "x", by="me")
    with pytest.raises(ConflictError, match="too many strikes"):
        farm.strikes.strike(board.id, "x", by="me")


def once_more(farm: Farm, board, times_ns: list[int]) -> None:
    """Another run of the board, in which candidate n takes the n-th time."""
    some_run(farm, board, budget_candidates=len(times_ns))
    propose(farm, range(len(times_ns)))
    for time_ns in times_ns:
        finish(farm, claim(farm, board), time_ns)


def test_one_boards_word_leads_no_front_across_boards(farm: Farm) -> None:
    liar, honest = some_board(farm, "liar"), some_board(farm, "honest")
    every = Selection(mode="strict")
    once_more(farm, liar, [1, 1])
    # Of one board alone its front is what it says.
    assert {point.time_ms for point in farm.fronts.front(every)} == {1e-6}
    once_more(farm, honest, [5_000, 6_000])
    assert farm.fronts.front(every) == ()
    assert farm.fronts.fastest(every) is None and farm.fronts.fastest_by_program(every) == {}
    assert {point.time_ms for point in farm.fronts.claims(every)} == {1e-6}
    third = some_board(farm, "third")
    once_more(farm, third, [5_100, 6_100])
    found = farm.fronts.front(every)
    assert {point.time_ms for point in found} == {5.1e-3, 6.1e-3}
    assert {point.time_ms for point in farm.fronts.claims(every)} == {1e-6}
    (best,) = farm.fronts.fastest_by_program(every).values()
    assert best.time_ms == 5.1e-3
    # Within a run or a board it is still what was measured there.
    assert {p.time_ms for p in farm.fronts.front(Selection(board_id=liar.id))} == {1e-6}


def test_another_board_in_another_run_confirms_and_a_slower_one_does_not(farm: Farm) -> None:
    one, other, third = (some_board(farm, name) for name in ("one", "other", "third"))
    every = Selection(mode="strict")
    once_more(farm, other, [90_000, 90_000])
    once_more(farm, one, [5_000, 1_000])
    once_more(farm, third, [7_400, 1_600])
    # 1.48 times as long is about as fast, 1.6 times is not.
    assert [point.time_ms for point in farm.fronts.front(every)] == [7.4e-3]


def test_a_board_does_not_confirm_itself(farm: Farm) -> None:
    honest, liar = some_board(farm, "honest"), some_board(farm, "liar")
    every = Selection(mode="strict")
    once_more(farm, honest, [90_000])
    for _ in range(2):
        once_more(farm, liar, [1])
    assert farm.fronts.front(every) == ()
    assert farm.fronts.fastest(every) is None and farm.fronts.fastest_by_program(every) == {}
    assert {point.time_ms for point in farm.fronts.claims(every)} == {1e-6}
    once_more(farm, some_board(farm, "third"), [90_001])
    assert [point.time_ms for point in farm.fronts.front(every)] == [90.001e-3]


def test_who_exaggerates_within_what_confirms_gains_nothing(farm: Farm) -> None:
    """A time that was a third too short led, and was confirmed by the true one."""
    honest, liar = some_board(farm, "honest"), some_board(farm, "liar")
    every = Selection(mode="strict")
    once_more(farm, honest, [9_000])
    once_more(farm, liar, [6_100])
    assert [point.time_ms for point in farm.fronts.front(every)] == [9e-3]
    best = farm.fronts.fastest(every)
    assert best is not None and best.time_ms == 9e-3
    (of_program,) = farm.fronts.fastest_by_program(every).values()
    assert of_program.time_ms == 9e-3
    # Nor is it a claim that waits for somebody.
    assert farm.fronts.claims(every) == ()
    once_more(farm, some_board(farm, "third"), [9_050])
    assert [point.time_ms for point in farm.fronts.front(every)] == [9e-3]


def test_what_was_measured_again_stays_when_a_strike_is_lifted(farm: Farm, clock: Clock) -> None:
    board, run = measured(farm, clock, [5_000, 1, 7_000])
    strike = farm.strikes.strike(board.id, "x", by="me")
    with farm.store._transactions.write() as session:
        struck = session.scalars(select(StruckRow).order_by(StruckRow.id)).all()[1]
        values = {
            column.name: getattr(struck, column.name)
            for column in MeasurementRow.__table__.columns
            if column.name != "id"
        }
        session.add(MeasurementRow(**{**values, "time_ms": 6e-3}))
    farm.strikes.lift(board.id, strike.id, by="me")
    assert len(farm.measurements.page(Selection(run_id=run.id))) == 3
    with farm.store._transactions.read() as session:
        times = session.scalars(select(MeasurementRow.time_ms).order_by(MeasurementRow.time_ms))
        assert list(times) == [5e-3, 6e-3, 7e-3]


FAST = {
    "device.compute_units": "8", "device.max_clock_mhz": "2000", "device.kind": "cpu",
    "profile": {"vector_widths": [1, 2, 4, 8]},
}  # fmt: skip


def hard_job(farm: Farm, facts: dict[str, object], multiply_adds: int = 512_000):
    """A claimed job of so many multiply-adds, of a board of these facts.

    8 units of 2 GHz and 8 lanes, four times: 512 multiply-adds a nanosecond.
    """
    board = farm.boards.add("hikey", profile="mali-g72", facts=facts).board
    some_run(farm, board, budget_candidates=50)
    propose(farm, [0, 1])
    claimed = claim(farm, board)
    with farm.store._transactions.write() as session:
        job = session.get_one(JobRow, claimed.lease.job_id)
        job.payload = {**job.payload, "multiply_adds": multiply_adds}
    return board, claimed


def test_time_beyond_the_device_is_refused(farm: Farm) -> None:
    _, claimed = hard_job(farm, {})
    with pytest.raises(InputError, match="cannot be"):
        farm.results.finish_measure(claimed.lease, timed(999), facts={**FACTS, **FAST})
    with pytest.raises(InputError, match="million times"):
        farm.results.finish_measure(
            claimed.lease, Timed((1_000, 10**10), 0.0, 1.0, {}), facts={**FACTS, **FAST}
        )
    assert farm.results.finish_measure(claimed.lease, timed(1_000), facts={**FACTS, **FAST}).stored


def test_a_device_that_tells_nothing_is_no_faster_than_all_devices(farm: Farm) -> None:
    _, claimed = hard_job(farm, {}, multiply_adds=10**9)
    with pytest.raises(InputError, match="1e\\+15 multiply-adds a second"):
        farm.results.finish_measure(claimed.lease, timed(999), facts=FACTS)
    # The device that invents its times tells nothing either: a millisecond and more.
    assert farm.results.finish_measure(claimed.lease, timed(1_000_000), facts=FACTS).stored


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"device.compute_units": "4000"},
        {"device.compute_units": "many"},
        {**FAST, "device.max_clock_mhz": "9e5"},
        {**FAST, "device.kind": "gpu"},
        {"profile": {}},
        {"profile": None, "device.compute_units": None},
    ],
)
def test_facts_that_a_result_leaves_out_or_invents_do_not_help(farm: Farm, said) -> None:
    _, claimed = hard_job(farm, FAST)
    with pytest.raises(InputError, match="cannot be"):
        farm.results.finish_measure(claimed.lease, timed(999), facts={**FACTS, **said})
    assert farm.results.finish_measure(claimed.lease, timed(1_000), facts={**FACTS, **said}).stored


def test_facts_of_two_places_are_put_together(farm: Farm) -> None:
    _, claimed = hard_job(farm, {"profile": FAST["profile"], "device.kind": "cpu"})
    said = {name: FAST[name] for name in ("device.compute_units", "device.max_clock_mhz")}
    with pytest.raises(InputError, match="cannot be"):
        farm.results.finish_measure(claimed.lease, timed(999), facts={**FACTS, **said})


@pytest.mark.parametrize(
    "huge",
    [
        {"device.compute_units": 10**400},
        {"device.compute_units": "9" * 400},
        {"device.max_clock_mhz": 10**400},
        {"device.max_clock_mhz": "1e308"},
        {"device.max_clock_mhz": "inf"},
        {"profile": {"vector_widths": [10**400]}},
        {"profile": {"vector_widths": ["1" + "0" * 30]}},
    ],
)
def test_facts_of_no_device_are_refused_by_name(farm: Farm, huge) -> None:
    _, claimed = hard_job(farm, {})
    with pytest.raises(InputError, match="of no device"):
        farm.results.finish_measure(claimed.lease, timed(1), facts={**FACTS, **FAST, **huge})
