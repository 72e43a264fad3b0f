"""Measurements, fronts and files of them say what was measured, and nothing else."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.measurement import CompileError, Crash, ResourceError, Timed, Timeout, Wrong
from tests.effort import cases
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose

OUTCOMES = (
    Timed((3_000_000, 1_000_000, 2_000_000), 1e-6, 5.0, {"clock": "1 GHz"},
          (3_100_000, 1_100_000, 2_500_000)),
    Wrong(float("nan"), (0, 1), "=cmd|' /C calc'!A0"),
    CompileError("line 1: \udc80"),
    ResourceError("CL_OUT_OF_RESOURCES"),
    Timeout(2.0),
    Crash(-11, "Segmentation fault"),
    Timed((1_000_000,), 2e-6, 5.0),
)  # fmt: skip
BYTES = (100, 100, 100, 100, 100, 100, 900)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with one run whose candidates ended in every possible way."""
    made = Service(tmp_path_factory.mktemp("farm"))
    new_run(made.farm, made.device_id)
    propose(made.farm, *BYTES, exhausted=True)
    measure(made.farm, made.device_id, *OUTCOMES)
    yield made
    made.close()


@pytest.fixture
def items(service):
    return service.user.get("/v1/measurements").json()["items"]


def export(service, format_, query=""):
    answer = service.user.get(f"/v1/measurements/export?format={format_}{query}")
    assert answer.status_code == 200
    return answer


def test_pages_walk_every_measurement_once_in_both_directions(service, items):
    for order, expected in (("oldest", items), ("newest", items[::-1])):
        found, cursor = [], ""
        while cursor is not None:
            query = f"limit=3&order={order}{cursor and '&cursor=' + cursor}"
            page = service.user.get(f"/v1/measurements?{query}").json()
            found, cursor = found + page["items"], page["next"]
        assert found == expected


def test_a_cursor_serves_one_direction(service):
    cursor = service.user.get("/v1/measurements?limit=3").json()["next"]
    answer = service.user.get(f"/v1/measurements?order=newest&cursor={cursor}")
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("", 7), ("outcome=timed", 2), ("outcome=crash", 1), ("label=vgg16/7", 7),
        ("label=vgg16/9", 0), ("mode=strict", 7), ("mode=paper", 0),
        ("since=2000-01-01T00:00:00Z", 7), ("until=2000-01-01T00:00:00Z", 0),
        ("study=1", 7), ("study=2", 0),
        ("layer=vgg16/7", 0),
        ("program=" + "0" * 64, 0),
    ],
)  # fmt: skip
def test_filters_leave_what_meets_them(service, query, number):
    assert len(service.user.get(f"/v1/measurements?{query}").json()["items"]) == number
    assert service.user.get(f"/v1/fronts?{query}").json()["measured"] == number


def test_filters_by_run_and_device(service, items):
    for query in (f"run={items[0]['run']}", f"device={service.device_id}"):
        assert len(service.user.get(f"/v1/measurements?{query}").json()["items"]) == 7
    query = f"device={service.other_id}"
    assert service.user.get(f"/v1/measurements?{query}").json()["items"] == []


@pytest.mark.parametrize(
    "query",
    ["outcome=fast", "since=yesterday", "since=2026-01-01T00:00", "study=-1", "study=" + "9" * 30,
     "colour=red", "layer=vgg16/1", "mode=loose", "device=x", "limit=0", "limit=501",
     "max_time_ms=1", "label=" + "x" * 201],
)  # fmt: skip
def test_a_filter_that_is_none_is_refused(service, query):
    answer = service.user.get(f"/v1/measurements?{query}")
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-input")


def test_one_measurement_can_be_read_by_itself(service, items):
    assert service.user.get(f"/v1/measurements/{items[0]['id']}").json() == items[0]
    assert service.user.get("/v1/measurements/999").status_code == 404


def test_a_candidate_has_all_to_build_it_again(service, items):
    found = service.user.get(f"/v1/candidates/{items[0]['candidate']}").json()
    assert found["mapping"] == {"row": 20, "column": 10}
    assert service.user.get(f"/v1/artifacts/{found['source_hash']}").status_code == 200
    assert service.user.get("/v1/candidates/" + "0" * 64).status_code == 404


def test_the_front_is_fastest_first_and_answers_epsilon_constraints(service):
    front = service.user.get("/v1/fronts").json()
    points = [(p["time_ms"], p["memory_bytes"]) for p in front["points"]]
    assert points == [(1.0, 900), (2.5, 100)]
    assert (front["fastest"]["memory_bytes"], front["smallest"]["memory_bytes"]) == (900, 100)
    within = service.user.get("/v1/fronts?max_memory_bytes=899").json()
    assert [p["time_ms"] for p in within["points"]] == [2.5]
    within = service.user.get("/v1/fronts?max_time_ms=1.5").json()
    assert [p["memory_bytes"] for p in within["points"]] == [900]
    nothing = service.user.get("/v1/fronts?max_memory_bytes=1").json()
    assert (nothing["points"], nothing["fastest"], nothing["smallest"]) == ([], None, None)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A service for as many runs as there are examples."""
    made = Service(tmp_path_factory.mktemp("farm"))
    yield made
    made.close()


@settings(max_examples=cases(10, 20))
@given(
    points=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8),
    bound=st.integers(0, 7),
)
def test_the_front_within_a_bound_is_the_front_of_what_lies_within(empty, points, bound):
    run = new_run(empty.farm, empty.device_id)
    propose(empty.farm, *(size for _, size in points), exhausted=True)
    outcomes = (Timed((time * 1_000_000,), 0, 1) for time, _ in points)
    measure(empty.farm, empty.device_id, *outcomes)
    answer = empty.user.get(f"/v1/fronts?run={run.id}&max_memory_bytes={bound}").json()
    left = [(t, m) for t, m in points if m <= bound]
    expected = sorted(
        (t, m) for t, m in left
        if not any(a <= t and b <= m and (a, b) != (t, m) for a, b in left)
    )  # fmt: skip
    assert [(p["time_ms"], p["memory_bytes"]) for p in answer["points"]] == expected


def test_a_run_s_series_only_gets_better(service, items):
    series = service.user.get(f"/v1/runs/{items[0]['run']}/series").json()
    assert [(i["number"], i["time_ms"]) for i in series["improvements"]] == [(1, 2.5), (7, 1.0)]
    volumes = [v["hypervolume"] for v in series["hypervolume"]]
    assert all(a < b for a, b in pairwise(volumes))


# Files


def test_json_and_ndjson_hold_what_the_list_holds(service, items):
    lines = export(service, "ndjson").text.splitlines()
    for rows in (export(service, "json").json(), [json.loads(line) for line in lines]):
        assert [{k: v for k, v in row.items() if k != "choices"} for row in rows] == items
        assert rows[0]["choices"]["parameters"] == {"theta": 0}


def test_csv_has_a_row_for_each_and_no_formula(service, items):
    answer = export(service, "csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["candidate"] for row in rows] == [item["candidate"] for item in items]
    assert rows[0]["trials_ns"] == "3000000;1000000;2000000"
    assert rows[0]["spans_ns"] == "3100000;1100000;2500000"
    assert rows[0]["span_ms"] == "2.5"
    assert rows[-1]["spans_ns"] == rows[-1]["span_ms"] == ""
    assert json.loads(rows[0]["mapping"]) == {"row": 20, "column": 10}
    assert rows[1]["message"].startswith("'=")
    assert answer.headers["content-disposition"] == 'attachment; filename="measurements.csv"'


def test_t4_has_every_configuration_with_its_validity(service):
    document = export(service, "t4").json()
    assert document["schema_version"] == "1.0.0"
    assert [r["invalidity"] for r in document["results"]] == [
        "correct", "correctness", "compile", "runtime", "timeout", "runtime", "correct",
    ]  # fmt: skip
    assert document["results"][0]["configuration"]["theta"] == 0
    spans = [m["value"] for m in document["results"][0]["measurements"] if m["name"] == "span"]
    assert spans == [2.5]


def test_both_times_of_a_measurement_are_told_and_candidates_are_compared_by_one(service, items):
    assert (items[0]["time_ms"], items[0]["span_ms"]) == (2.5, 2.5)
    assert items[0]["spans_ns"] == [3_100_000, 1_100_000, 2_500_000]
    # From an agent that sends no spans.
    assert (items[-1]["time_ms"], items[-1]["span_ms"], items[-1]["spans_ns"]) == (1.0, None, None)
    assert items[1]["span_ms"] is None
    assert [p["time_ms"] for p in service.user.get("/v1/fronts").json()["points"]] == [1.0, 2.5]


@pytest.mark.parametrize("format_", ["csv", "json", "ndjson", "t4"])
def test_an_export_of_nothing_is_a_whole_file(service, format_):
    text = export(service, format_, "&outcome=timed&mode=paper").text
    if format_ == "csv":
        assert len(text.splitlines()) == 1
    elif format_ == "ndjson":
        assert text == ""
    else:
        assert not (json.loads(text) or {}).get("results") if format_ == "t4" else text == "[]\n"


def test_an_export_of_many_pages_has_every_row_once(service, monkeypatch, items):
    monkeypatch.setattr("api.exports.PAGE", 2)
    rows = [json.loads(row) for row in export(service, "ndjson").text.splitlines()]
    assert [row["id"] for row in rows] == [item["id"] for item in items]
    assert [row["id"] for row in export(service, "json").json()] == [i["id"] for i in items]


def test_no_more_streams_are_open_than_there_may_be(tmp_path):
    from api.settings import Settings

    service = Service(tmp_path, Settings(max_streams=1))
    streams = service.app.state.services.streams
    with streams.one_more("somebody else"):
        answer = service.user.get("/v1/measurements/export")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert answer.headers["retry-after"] == "1"
    assert service.user.get("/v1/measurements/export").status_code == 200
    service.close()
