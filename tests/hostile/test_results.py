"""A result that the service accepts never harms those who read it, and one that cannot be is
refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import new_run, propose
from worker.measuring.wire import outcome_from_json, outcome_to_json

HELLO = {"protocol": 1, "agent_version": "0.1.0"}
DETAIL: dict[str, Any] = {"max_relative_error": 1e-6, "compile_ms": 1.5, "facts": {}}
NUMBERS = count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("farm"))
    yield made
    made.close()


def send(service: Service, outcome: Any, **more: Any) -> Any:
    """The answer to a result of a new candidate, and the run."""
    run = new_run(service.farm, service.device_id)
    propose(service.farm, 100, first=next(NUMBERS), exhausted=True)
    claim = service.device.post(f"/v1/devices/{service.device_id}/lease?wait=0", json=HELLO).json()
    body = {
        "attempt": claim["attempt"], "lease_token": claim["lease_token"], "outcome": outcome,
        "facts": {}, "started_at": "2026-11-21T10:00:00Z", **more,
    }  # fmt: skip
    answer = service.device.post(f"/v1/jobs/{claim['job']}/result", json=body)
    if answer.status_code != 200:
        released = {"attempt": claim["attempt"], "lease_token": claim["lease_token"]}
        service.device.post(f"/v1/jobs/{claim['job']}/release", json=released)
        service.admin.post(f"/v1/runs/{run.id}/cancel")
    return answer, run


def strictly(text: str) -> Any:
    """JSON as it is defined: without NaN and infinities."""

    def refuse(name: str) -> Never:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
ERRORS = st.one_of(st.sampled_from(["nan", "inf", "-inf"]), FINITE)
SMALL = st.floats(0, 1)
OUTCOMES = st.one_of(
    st.builds(
        lambda trials, spans, error, compiling: {
            "kind": "timed", "trials_ns": trials,
            "spans_ns": [t + s for t, s in zip(trials, spans, strict=False)],
            "detail": {"max_relative_error": error, "compile_ms": compiling, "facts": {}},
        },
        st.lists(st.integers(0, 2**62), min_size=1, max_size=6),
        st.one_of(st.just([]), st.lists(st.integers(-1, 2**61), min_size=6, max_size=6)),
        st.one_of(ERRORS, SMALL),
        st.one_of(ERRORS, SMALL),
    ),
    st.builds(
        lambda error, place, message: {
            "kind": "wrong",
            "detail": {"max_relative_error": error, "first_bad_index": place, "message": message},
        },
        ERRORS,
        st.lists(st.integers(0, 2**53 - 1), max_size=3),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    ),
    st.builds(
        lambda s: {"kind": "timeout", "detail": {"after_s": s}}, FINITE
    ),
)  # fmt: skip


@settings(max_examples=cases(10, 20))
@given(outcome=OUTCOMES)
def test_every_reader_reads_every_result_that_is_accepted(service: Service, outcome: Any):
    answer, run = send(service, outcome)
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 422:
        assert outcome["kind"] != "wrong"
        return
    of_run = f"run={run.id}"
    for path in (
        f"/v1/measurements?{of_run}", f"/v1/measurements/export?format=json&{of_run}",
        f"/v1/measurements/export?format=t4&{of_run}", f"/v1/runs/{run.id}",
        f"/v1/fronts?{of_run}", f"/v1/runs/{run.id}/series",
    ):  # fmt: skip
        read = service.user.get(path)
        assert read.status_code == 200, (path, read.text)
        strictly(read.text)
    table = service.user.get(f"/v1/measurements/export?format=csv&{of_run}").text
    assert len(list(csv.DictReader(io.StringIO(table, newline="")))) == 1
    (item,) = service.user.get(f"/v1/measurements?{of_run}").json()["items"]
    for page in (f"/runs/{run.id}", f"/candidates/{item['candidate']}"):
        assert service.user.get(page).status_code == 200, page
    # What a child that proposes candidates is told.
    for stored in service.farm.runs.history(run.id).measured.values():
        there = outcome_from_json(strictly(json.dumps(outcome_to_json(stored))))
        assert repr(there) == repr(stored)


def test_of_very_many_trials_a_thousand_are_kept_with_their_spans(service: Service):
    trials = [100 + place for place in range(2_000)]
    spans = [2 * trial for trial in trials]
    answer, run = send(
        service, {"kind": "timed", "trials_ns": trials, "spans_ns": spans, "detail": DETAIL}
    )
    assert answer.status_code == 200
    (item,) = service.user.get(f"/v1/measurements?run={run.id}").json()["items"]
    assert item["trials_ns"] == trials[::2] and item["spans_ns"] == spans[::2]


@pytest.mark.parametrize("field", ["trials_ns", "spans_ns"])
def test_trials_that_took_longer_than_the_attempt_may_are_refused(service: Service, field: str):
    long = {"trials_ns": [10**9], "spans_ns": [10**9], field: [306 * 10**9]}  # 5 s, and to fetch
    answer, run = send(service, {"kind": "timed", "detail": DETAIL, **long})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/outcome/{field}"
    assert service.user.get(f"/v1/measurements?run={run.id}").json()["items"] == []


@pytest.mark.parametrize(
    ("outcome", "field"),
    [
        ({"kind": "timed", "trials_ns": [0], "detail": DETAIL}, "trials_ns"),
        ({"kind": "timed", "trials_ns": [9, 9], "spans_ns": [9], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9], "spans_ns": [9, 9], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9], "spans_ns": [0], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9], "spans_ns": [-9], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9], "spans_ns": [2**62], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9], "spans_ns": [9.5], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9], "spans_ns": [4], "detail": DETAIL}, "spans_ns"),
        ({"kind": "timed", "trials_ns": [9, 9], "spans_ns": [9, 10**9], "detail": DETAIL},
         "spans_ns"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "max_relative_error": "nan"}},
         "max_relative_error"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "max_relative_error": "inf"}},
         "max_relative_error"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "max_relative_error": -1.0}},
         "max_relative_error"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "max_relative_error": 7.0}},
         "max_relative_error"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "compile_ms": "-inf"}},
         "compile_ms"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "compile_ms": -5}},
         "compile_ms"),
        ({"kind": "timed", "trials_ns": [1], "detail": {**DETAIL, "compile_ms": 1e300}},
         "compile_ms"),
        ({"kind": "timeout", "detail": {"after_s": 1e308}}, "after_s"),
    ],
)  # fmt: skip
def test_a_result_that_cannot_be_is_refused_and_names_the_field(
    service: Service, outcome: Any, field: str
):
    answer, _ = send(service, outcome)
    assert answer.status_code == 422, answer.text
    assert field in answer.text


def test_an_agent_s_log_has_a_bound(service: Service):
    timed = {"kind": "timed", "trials_ns": [5], "detail": DETAIL}
    assert send(service, timed, agent_log="x" * 100_000)[0].status_code == 200
    assert send(service, timed, agent_log="x" * 100_001)[0].status_code == 422


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59-14:00"]
)
def test_a_board_s_clock_may_be_wherever_it_is(service: Service, at: str):
    timed = {"kind": "timed", "trials_ns": [5], "detail": DETAIL}
    answer, run = send(service, timed, started_at=at)
    assert answer.status_code == 200, answer.text
    (item,) = service.user.get(f"/v1/measurements?run={run.id}").json()["items"]
    assert item["started_at"].startswith("20")
