"""What the solver said of a candidate is kept, as long as it is the answer and there is room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from api.dashboard.candidates import Candidate
from api.dashboard.portraits import KeptAnswers, Portraits
from api.solver_pool import Answer
from db.records import CandidateRecord, StoredProgram
from tests.unit.api.conftest import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


def candidate(**parameters: int) -> Candidate:
    program = StoredProgram("0" * 64, "nestmap/program/1", '{"name": "p"}', "0" * 64)
    record = CandidateRecord(program.hash, parameters, {"a": 20}, {"k": [1, 1, 1]}, "1" * 64, 0, "")
    return Candidate(record.id, record, program, (), None, None, None, None, None, None)


def test_a_candidate_is_derived_once_and_one_that_differs_is_another_question(service: Service):
    services, portraits = service.app.state.services, Portraits()
    one, other = candidate(n=1), candidate(n=2)

    def asked(of: Candidate) -> int:
        before = len(service.solver.asked)
        service.thread.run(portraits.of(services, of))
        return len(service.solver.asked) - before

    # Nothing is known while no solver answers: it is asked again.
    assert (asked(one), asked(one)) == (1, 1)
    service.solver.answers["portrait"] = Answer([{"id": 1}], {"valid": True, "z": 1, "a": 2})
    assert [asked(found) for found in (one, one, other, other, one)] == [1, 0, 1, 0, 0]
    known = service.thread.run(portraits.of(services, one))
    assert known.end is not None and list(known.end) == ["valid", "z", "a"]
    # What a page does with an answer is not seen by the next.
    known.constraints.clear()
    assert service.thread.run(portraits.of(services, one)).constraints == [{"id": 1}]
    elsewhere = replace(one, program=replace(one.program, json_text='{"name": "q"}'))
    assert asked(elsewhere) == 1


def test_answers_leave_by_number_and_by_bytes_those_unused_for_longest_first():
    kept = KeptAnswers(most=2, most_bytes=1_000)
    small = Answer([], {"text": "x" * 10})
    for key in "ab":
        kept.put(key, small)
    assert kept.get("a") == small
    kept.put("c", small)
    assert [kept.get(key) is not None for key in "abc"] == [True, False, True]
    kept.put("d", Answer([], {"text": "x" * 980}))
    assert [kept.get(key) is not None for key in "acd"] == [False, False, True]
    # Larger than everything together: nothing leaves for it.
    kept.put("e", Answer([], {"text": "x" * 1_000}))
    assert [kept.get(key) is not None for key in "de"] == [True, False]
    kept.put("d", small)
    kept.put("e", small)
    assert [kept.get(key) is not None for key in "de"] == [True, True]
