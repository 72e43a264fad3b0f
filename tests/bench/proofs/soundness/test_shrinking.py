"""A failing case is made small, and what is written of it shows it again."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from bench.proofs.soundness.campaign import Failure, draft_of
from bench.proofs.soundness.case_files import write_case
from bench.proofs.soundness.cases import Case, Discarded, case_to_json, cases_of
from bench.proofs.soundness.judges import Fault
from bench.proofs.soundness.replay import case_of, faults_of
from bench.proofs.soundness.shrinking import require_hypothesis, shrink
from mapper.ast_model.codec import program_from_json
from mapper.ast_model.elaborate import elaborate
from mapper.errors import InputError
from mapper.profiles import load_profile
from tests.bench.proofs.soundness.judged import FakeJudge, has_barrier

DEVICE = load_profile("pocl")
SEED = 1


def is_parallel(case: Case) -> bool:
    return "get_global_id(0)" in case.plan.source


def failure_of(judge: FakeJudge) -> Failure:
    """The first draft in which the judge finds something."""
    for number in range(100):
        draft, choices = draft_of(SEED, number)
        cases = cases_of(draft, DEVICE, 2)
        if isinstance(cases, Discarded):
            continue
        for case, fault in zip(cases, judge.judge(cases), strict=True):
            if fault is not None:
                return Failure(number, choices, case_to_json(case), [fault.to_json()])
    raise AssertionError("nothing in a hundred drafts")


def maps(value: dict) -> int:
    program = program_from_json(value["program"])
    return sum(len(kernel.map_ids()) for kernel in elaborate(program).kernels)


def test_a_planted_fault_shrinks_to_what_it_needs() -> None:
    judge = FakeJudge(is_parallel)
    failure = failure_of(judge)
    assert maps(failure.value) > 2
    shrunk = shrink(failure, DEVICE, {"fake": judge})
    assert shrunk is not None
    assert shrunk.faults[0].label == "fake: made up"
    assert is_parallel(case_of(shrunk.value, DEVICE))
    assert maps(shrunk.value) == 1


def test_a_fault_that_does_not_come_again_stays_as_it_was() -> None:
    failure = failure_of(FakeJudge(is_parallel))
    assert shrink(failure, DEVICE, {"fake": FakeJudge()}) is None


def test_time_bounds_the_search() -> None:
    judge = FakeJudge(is_parallel)
    assert shrink(failure_of(judge), DEVICE, {"fake": judge}, limit_s=0.0) is None


def test_missing_hypothesis_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(InputError, match=r"pip install 'nestmap\[dev\]'"):
        require_hypothesis()


def test_the_folder_of_a_failing_case_shows_it_again(tmp_path: Path) -> None:
    failure = failure_of(FakeJudge(has_barrier))
    fault = Fault.of(failure.faults[0])
    place = write_case(tmp_path, SEED, failure.draft, failure.value, [fault])
    (test,) = place.glob("test_*.py")
    case = runpy.run_path(str(test))["CASE"]
    assert faults_of(case, DEVICE, {"fake": FakeJudge(has_barrier)}) == [fault]
    assert json.loads((place / "assignment.json").read_text()) == failure.value["assignment"]
    program = json.loads((place / "program.json").read_text())
    assert program_from_json(program) == program_from_json(failure.value["program"])
    assert fault.message in (place / "findings.txt").read_text()
