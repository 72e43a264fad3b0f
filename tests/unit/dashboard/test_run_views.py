"""What the pages of runs, devices and networks show, and the bulk reads behind them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.dashboard.candidates import MOST_FITTED, neighbours
from api.dashboard.pages.run import MOST_POINTS
from api.dashboard.views.budgets import fastest_within
from api.dashboard.views.devices import STALE_S, device_line
from api.dashboard.views.histories import history_view
from api.dashboard.views.networks import (
    LayerFront,
    in_reading_order,
    layer_key,
    merged_front,
    sum_of,
)
from api.dashboard.views.points import conditions_of, detail
from api.dashboard.views.rooflines import roofs
from api.dashboard.views.staircases import staircase
from db.farm.farm import Farm
from db.farm.fronts import StudiedPoint
from db.farm.records import Board, BoardFacts
from db.farm.run_records import DeviceState, OwnedStudy
from db.farm.selection import Selection
from db.farm.states import BoardState
from db.records import CandidateRecord, StoredMeasurement
from mapper.errors import InputError
from mapper.layer_sets import layer_of_name
from mapper.measurement import Timed
from tests.dashboard.synthetic import write_run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def point(time_ms: float, memory_bytes: int) -> StudiedPoint:
    return StudiedPoint(time_ms, memory_bytes, "c" * 64, 1, 1, "p" * 64, "direct", 1, NOW)


def test_points_are_thinned_but_never_those_of_the_front(tmp_path: Path):
    store = tmp_path / "store.sqlite3"
    run_id = write_run(store, 3_000, failures=12)
    with Farm.open(store) as farm:
        selection = Selection(run_id=run_id)
        front = {found.measurement_id for found in farm.fronts.front(selection)}
        whole = farm.overviews.cloud(selection, most=MOST_POINTS)
        assert (len(whole.points), whole.total) == (3_000, 3_000)
        some = farm.overviews.cloud(selection, most=500)
        kept = {found.measurement_id for found in some.points}
        assert (len(kept), some.total, some.newest) == (500, 3_000, whole.newest)
        assert front <= kept and set(some.front) == front
        # The same ones when asked for again, and a part of what a larger picture shows.
        again = farm.overviews.cloud(selection, most=500)
        assert again == some
        more = farm.overviews.cloud(selection, most=1_000)
        assert kept - front <= {found.measurement_id for found in more.points}
        news = farm.overviews.cloud(selection, most=500, after=whole.points[-100].measurement_id)
        assert [found.measurement_id for found in news.points] == [
            found.measurement_id for found in whole.points[-99:]
        ]

        failures = farm.overviews.failures(selection)
        assert sum(found.number for found in failures) == 12
        assert {found.kind for found in failures} == {"compile-error", "resource-error", "timeout"}
        assert "no result after 10.0 s" in {found.message for found in failures}
        middle = farm.overviews.middle(selection)
        times = sorted(found.time_ms for found in whole.points)
        assert middle is not None and middle.time_ms == times[1_499]


def test_the_fastest_within_a_budget_is_the_first_that_fits():
    front = [point(1.0, 300), point(2.0, 200), point(5.0, 100)]
    assert fastest_within(front, 299) is front[1]
    assert fastest_within(front, 300) is front[0]
    assert fastest_within(front, 99) is None


def test_stairs_go_down_from_the_fastest_to_the_smallest():
    drawn = staircase([(1.0, 400.0), (2.0, 200.0), (4.0, 100.0)])
    assert [x for x, _ in drawn.dots] == sorted(x for x, _ in drawn.dots)
    # Downwards in memory is downwards in the drawing, whose y grows that way.
    assert [y for _, y in drawn.dots] == sorted(y for _, y in drawn.dots)
    assert drawn.path.count("H") == 3
    assert staircase([]).path == ""
    assert len(staircase([(1.0, 1.0)]).dots) == 1


def board(last_seen: datetime | None, state: BoardState = BoardState.ACTIVE) -> Board:
    return Board("dev_1", "board", None, {"device.name": "GPU"}, {"temperature_c": 61.04,
                 "gpu_clock_mhz": 850.0, "throttled": 1.0, "state": "healthy"}, state, "", "",
                 "1", NOW, last_seen)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (board(NOW), "ready"),
        (board(NOW - timedelta(seconds=STALE_S + 1)), "not heard of"),
        (board(None), "never seen"),
        (board(NOW, BoardState.QUARANTINED), "quarantined"),
        (board(None, BoardState.DISABLED), "disabled"),
    ],
)
def test_a_device_is_what_matters_most_about_it(found: Board, state: str):
    line = device_line(found, [], NOW)
    assert (line.state, line.title) == (state, "GPU")
    assert line.status == "61.0\u202f°C · gpu 0.85\u202fGHz · throttled"


def test_readings_that_were_never_reported_have_no_line():
    entries = [
        BoardFacts(1, NOW, {"load": 1, "cpu_clock_mhz": 1800.0}),
        BoardFacts(2, NOW, {"load": 2.5, "temperature_c": "hot"}),
    ]
    view = history_view(entries)
    assert {one.name: one.values for one in view.readings} == {
        "cpu clock": (1800.0, None),
        "load": (1.0, 2.5),
    }


def test_a_filter_is_about_schedules_and_parameters():
    record = CandidateRecord("p", {"theta": 4}, {"28": 20, "29": 0}, {}, "s", 1, "v")
    for text, holds in (
        ("28=W0", True), ("28=G0,W0 theta=4", True), ("29=S", True), ("28=W1", False),
        ("theta=8", False), ("none=1", False), ("", True),
    ):  # fmt: skip
        assert all(one.holds(record) for one in conditions_of(text)) is holds, text
    for text in ("theta", "=4", "theta="):
        with pytest.raises(InputError, match="is no filter"):
            conditions_of(text)


def test_a_row_has_interval_spread_and_clocks():
    trials = tuple(range(1_000_000, 1_000_000 + 21 * 1_000, 1_000))
    outcome = Timed(trials, 1e-6, 10.0, {"devfreq.gpu.clock_hz": "850000000"})
    stored = StoredMeasurement(7, 1, "c", outcome, 64, "s", "v", NOW)
    record = CandidateRecord("p", {"theta": 4}, {"28": 20, "29": 1}, {"k": [8, 2]}, "s", 64, "v")
    study = OwnedStudy(1, "p", "direct", "strict", 0, DeviceState("board", {}))
    row = detail(stored, record, study)
    assert (row["variant"], row["device"]) == ("direct", "board")
    assert row["low_ms"] < row["time_ms"] == 1.01 < row["high_ms"]
    assert row["coverage"] >= 0.95 and row["trials"] == 21
    assert row["mapping"] == "28 W0"
    assert row["clocks"] == "devfreq.gpu 0.85\u202fGHz"


def test_a_prediction_is_fitted_to_candidates_of_the_whole_search(tmp_path: Path):
    store = tmp_path / "store.sqlite3"
    run_id = write_run(store, 600)
    with Farm.open(store) as farm:
        study = farm.runs.studies(run_id)[0].study_id
        points = farm.overviews.cloud(
            Selection(study_ids=frozenset({study})), most=MOST_POINTS
        ).points
        own = points[0].candidate_id
        fitted = neighbours(farm, study, own)
        place = {found.time_ms: number for number, found in enumerate(points)}
        places = sorted(place[one["time_ms"]] / len(points) for one in fitted)
        assert len(fitted) == MOST_FITTED and places[0] > 0
        # In each quarter of the search some, not the first ones alone.
        assert {int(4 * at) for at in places} == {0, 1, 2, 3}
        record = farm.store.candidate(own)
        assert all(one["parameters"] != dict(record.parameters) for one in fitted)


def test_roofs_are_those_of_all_units_together():
    constants = {"operations": 0.5, "global_bytes": 0.25, "lanes": 16}
    found = roofs(constants, 4)
    assert found.operations_per_s == pytest.approx(4 * 16 / 0.5e-9)
    assert found.bytes_per_s == pytest.approx(4 / 0.25e-9)
    assert roofs({**constants, "global_bytes": 0.0}, 4).bytes_per_s is None


def test_a_network_adds_times_and_takes_the_largest_memory():
    layer = layer_of_name("vgg16/0")
    rows = [
        LayerFront("a", "/a", layer, 2, None, (point(1.0, 300), point(4.0, 100))),
        LayerFront("b", "/b", layer, 1, None, (point(2.0, 500),)),
        LayerFront("c", "/c", layer, 5, None, ()),
    ]
    found = sum_of(rows)
    assert (found.measured, found.in_all) == (3, 8)
    assert (found.fastest_ms, found.fastest_bytes) == (4.0, 500)
    assert (found.smallest_ms, found.smallest_bytes) == (10.0, 500)


def test_a_layer_is_the_same_whatever_it_is_called():
    layer = layer_of_name("vgg16/0")
    renamed = type(layer).from_json({**layer.to_json(), "name": "conv1_1"})
    assert layer_key(layer) == layer_key(renamed)
    assert layer_key(layer) != layer_key(layer_of_name("vgg16/7"))


def test_fronts_of_several_runs_become_one():
    first = (point(1.0, 300), point(4.0, 100))
    second = (point(2.0, 200), point(4.0, 100), point(5.0, 90))
    assert merged_front([first, second]) == (first[0], second[0], first[1], second[2])
    assert merged_front([]) == ()
    assert merged_front([first, (point(0.5, 50),)]) == (point(0.5, 50),)


def test_names_are_in_the_order_in_which_people_count():
    names = ["conv10", "Conv9", "a/2/1", "a/10", "7", "", "conv9b"]
    in_order = ["", "7", "a/2/1", "a/10", "Conv9", "conv9b", "conv10"]
    assert sorted(names, key=in_reading_order) == in_order
