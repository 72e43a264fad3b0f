"""What a run may learn from: other subjects on its board, measured before it was made."""

from __future__ import annotations

from db.canonical import content_hash
from db.farm.farm import Farm
from db.farm.records import Board
from db.farm.run_records import EarlierStudy, Run
from tests.unit.db.farm_values import (
    PROGRAM_HASH,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_run,
    timed,
)


def measured_run(farm: Farm, clock: Clock, board: Board, subject: str, times: list[int]) -> Run:
    """A run of so many candidates that has ended."""
    run = some_run(
        farm, board, label=subject, request={"subject": subject}, budget_candidates=len(times)
    )
    propose(farm, range(len(times)))
    for time_ns in times:
        clock.advance(0.001)
        finish(farm, claim(farm, board), time_ns)
    assert farm.runs.run(run.id).state.ended
    return run


def learned(farm: Farm, run: Run, most: int = 100, of_a_study: int = 100) -> dict[str, int]:
    found = farm.runs.earlier(run.id, most=most, of_a_study=of_a_study)
    return {study.label: len(study.measured) for study in found}


def test_a_run_learns_from_other_subjects_measured_before_it_on_its_board(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    measured_run(farm, clock, board, "first", [1_000, 2_000])
    measured_run(farm, clock, board, "same", [1_000])
    measured_run(farm, clock, other, "elsewhere", [1_000])
    run = some_run(farm, board, request={"subject": "same"})
    (study,) = farm.runs.earlier(run.id, most=100, of_a_study=100)
    assert isinstance(study, EarlierStudy)
    assert (study.label, study.variant, study.mode) == ("first", "direct", "strict")
    assert content_hash(study.program_json) == PROGRAM_HASH
    assert [(record.parameters, outcome) for record, outcome in study.measured] == [
        ({"theta": 0}, timed(1_000)), ({"theta": 1}, timed(2_000))
    ]  # fmt: skip


def test_a_run_starts_from_what_was_fast_in_runs_of_its_subject(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    measured_run(farm, clock, board, "first", [1_000])
    measured_run(farm, clock, board, "same", [3_000, 1_000, 2_000])
    measured_run(farm, clock, other, "same", [10])
    run = some_run(farm, board, request={"subject": "same"})
    found = farm.runs.earlier_best(run.id, of_a_study=2)
    assert [(one.variant, one.time_ms) for one in found] == [("direct", 1e-3), ("direct", 2e-3)]
    assert found[0].chosen["parameters"] == {"theta": 1}


def test_what_is_measured_later_changes_nothing_for_a_run(farm: Farm, clock: Clock):
    """Each of its proposals has to come to the same."""
    board = some_board(farm)
    unfinished = some_run(farm, board, request={"subject": "under way"}, budget_candidates=2)
    propose(farm, range(2))
    finish(farm, claim(farm, board))
    run = some_run(farm, board, request={"subject": "new"})
    clock.advance(1)
    assert learned(farm, run) == {}
    finish(farm, claim(farm, board))
    assert farm.runs.run(unfinished.id).state.ended
    assert learned(farm, run) == {}
    clock.advance(1)
    later = some_run(farm, board, request={"subject": "newer"})
    assert learned(farm, later) == {"vgg16/0": 2}


def test_the_latest_come_first_and_no_more_than_asked_for(farm: Farm, clock: Clock):
    board = some_board(farm)
    for subject in ("oldest", "middle", "latest"):
        measured_run(farm, clock, board, subject, [1_000, 2_000, 3_000])
        clock.advance(1)
    run = some_run(farm, board, request={"subject": "new"})
    assert list(learned(farm, run)) == ["latest", "middle", "oldest"]
    assert learned(farm, run, most=4) == {"latest": 3, "middle": 1}
    assert learned(farm, run, most=4, of_a_study=2) == {"latest": 2, "middle": 2}
