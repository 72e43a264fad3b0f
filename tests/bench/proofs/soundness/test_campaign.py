"""A campaign counts every case, goes on where it stopped, and keeps all that reproduces a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.proofs.soundness import campaign
from bench.proofs.soundness.campaign import Result, draft_of, run_campaign
from bench.proofs.soundness.cases import BrokenPromise, Discarded, draft_to_json
from bench.proofs.soundness.replay import case_of
from bench.proofs.soundness.result_file import read_result, write_result
from mapper.errors import InputError
from mapper.profiles import load_profile
from tests.bench.proofs.soundness.judged import FakeJudge, has_barrier

DEVICE = load_profile("pocl")


def run(result: Result, wanted: int, judge: FakeJudge) -> Result:
    return run_campaign(result, wanted, DEVICE, {"fake": judge}, drafts_a_block=2)


def test_every_case_is_judged_and_counted() -> None:
    judge = FakeJudge()
    result = run(Result(2), 10, judge)
    assert judge.seen == result.cases == 10
    assert result.outcomes == {"right": 10}
    assert result.failures == []
    assert sum(result.coverage["kernels"].values()) == 10
    assert result.drafts > 0


def test_a_failure_holds_all_that_reproduces_it() -> None:
    result = run(Result(2), 8, FakeJudge(has_barrier))
    assert result.failures, "no case with a barrier among these drafts: choose another seed"
    assert result.outcomes["fake: made up"] == len(result.failures)
    failure = json.loads(json.dumps(result.to_json()))["failures"][0]
    draft, choices = draft_of(2, failure["draft"])
    assert failure["choices"] == choices
    assert failure["value"]["program"] == draft_to_json(draft)["program"]
    assert has_barrier(case_of(failure["value"], DEVICE))


def test_a_stopped_campaign_goes_on_with_the_same_cases(tmp_path: Path) -> None:
    whole = run(Result(2), 9, FakeJudge(has_barrier))

    class Interrupted(FakeJudge):
        def judge(self, cases):
            if self.seen:
                raise KeyboardInterrupt
            return super().judge(cases)

    out = tmp_path / "result.json"

    def keep(result: Result) -> None:
        write_result(out, result, ["fake"], {})

    judges = {"fake": Interrupted(has_barrier)}
    with pytest.raises(KeyboardInterrupt):
        run_campaign(
            Result(2),
            9,
            DEVICE,
            judges,
            after_block=keep,
            drafts_a_block=2,
        )
    kept = read_result(out, 2)
    assert 0 < kept.cases < 9
    ended = run(kept, 9, FakeJudge(has_barrier))
    assert (ended.cases, ended.outcomes, ended.failures, ended.coverage) == (
        whole.cases,
        whole.outcomes,
        whole.failures,
        whole.coverage,
    )


def test_what_fails_before_it_runs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def cases_of(*arguments: object) -> Discarded:
        raise BrokenPromise("generation", "no code for it", {"program": {}})

    monkeypatch.setattr(campaign, "cases_of", cases_of)
    result = run(Result(2), 3, FakeJudge())
    assert result.outcomes["nestmap: generation"] == len(result.failures) == 3
    assert result.failures[0].faults[0]["message"] == "no code for it"


def test_a_file_of_another_campaign_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    write_result(out, Result(2), ["fake"], {"machine": "none"})
    assert read_result(out, 2).seed == 2
    with pytest.raises(InputError, match="another seed; found 2; allowed: 3"):
        read_result(out, 3)
    out.write_text('{"schema": "nestmap/bench-layers/1"}', encoding="utf-8")
    with pytest.raises(InputError, match="holds no result of this command"):
        read_result(out, 2)
    assert read_result(tmp_path / "none.json", 2) == Result(2)
