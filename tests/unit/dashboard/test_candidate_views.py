"""Trees, plans, comparisons and commands of candidates."""

from __future__ import annotations

import json
import shlex
from typing import Any

from api.dashboard.candidates import like_profile
from api.dashboard.views.candidates import CandidateView, prediction_view
from api.dashboard.views.comparisons import tree_rows
from api.dashboard.views.host_plans import host_plan
from api.dashboard.views.nest_trees import tree_of_candidate, trees_of_layer
from api.dashboard.views.reproduction import kernel_command
from api.dashboard.views.schedules import schedule
from mapper.schedule import ScheduleCode


def loop(name: str, depth: int, code: str = "S", iterations: int = 2) -> dict[str, Any]:
    return {"name": name, "depth": depth, "schedule": code, "trip": "n", "writes": "global",
            "iterations": iterations, "reads": ["local"]}  # fmt: skip


def kernel(*loops: dict[str, Any], name: str = "k") -> dict[str, Any]:
    return {"name": name, "loops": list(loops), "local_size": [1, 1, 1], "global_size": [4, 1, 1]}


def view_of(*kernels: dict[str, Any]) -> CandidateView:
    trees = tuple(tree_of_candidate(one) for one in kernels)
    return CandidateView(None, None, None, trees, (), (), None, True, True, "", (), (), ())


def test_every_schedule_code_has_words_and_a_class():
    shown = [schedule(int(code)) for code in ScheduleCode]
    assert [one.name for one in shown] == [code.short_name for code in ScheduleCode]
    assert all(one.words and one.level for one in shown)
    assert schedule(77).level == "none"


def test_a_listed_nest_becomes_the_tree_that_it_was():
    tree = tree_of_candidate(
        kernel(
            loop("a", 0, "W0"), loop("b", 1), loop("reduce r", 2, ""), loop("c", 1), loop("d", 0)
        )
    )
    assert [(depth, node.name) for depth, node in tree.nodes()] == [
        (0, "a"), (1, "b"), (2, "r"), (1, "c"), (0, "d"),
    ]  # fmt: skip
    reduce = tree.roots[0].nested[0].nested[0]
    assert reduce.is_reduce and reduce.schedule is None
    assert tree.roots[0].size == 3


def test_a_described_nest_has_the_codes_that_were_chosen_and_no_others():
    inner = {"id": 2, "trip": "3", "reads": [], "writes": "private", "nested": []}
    outer = {"id": 1, "trip": "M/k", "reads": ["global"], "writes": "global", "nested": [inner]}
    (tree,) = trees_of_layer([{"name": "k", "maps": [outer]}], {"1": "W1", "2": "nonsense"})
    root = tree.roots[0]
    assert root.schedule is not None and root.schedule.name == "W1"
    assert root.iterations is None and root.nested[0].iterations == 3
    assert root.nested[0].schedule is None


def test_a_comparison_has_every_map_once_beside_its_like():
    first = view_of(kernel(loop("a", 0, "W0"), loop("b", 1), loop("c", 1)))
    second = view_of(
        kernel(loop("a", 0, "W0", 4), loop("x", 1), loop("c", 1, "F")),
        kernel(loop("z", 0), name="l"),
    )
    rows = tree_rows([first, second])
    assert [(row.kernel, row.name, row.depth) for row in rows] == [
        ("k", "a", 0), ("k", "x", 1), ("k", "b", 1), ("k", "c", 1), ("l", "z", 0),
    ]  # fmt: skip
    by_name = {row.name: row for row in rows}
    assert by_name["a"].differs and not by_name["a"].schedules_differ
    assert by_name["c"].schedules_differ
    assert not by_name["z"].cells[0].is_there and by_name["z"].schedules_differ


def test_a_buffer_lives_from_its_first_launch_to_its_last():
    buffer = {"role": "intermediate", "shape": [2, 3], "dtype": "float16"}
    plan = {
        "buffers": [
            {**buffer, "name": "a", "bytes": 12, "first_use": 0, "last_use": 1},
            {**buffer, "name": "b", "bytes": 5, "first_use": 1, "last_use": 3},
        ],
        "launches": [
            {"kernel": f"k{n}", "global_size": [8, 4, 1], "local_size": [4, 2, 1],
             "arguments": ["a"], "local_bytes": 0, "private_bytes": 0}
            for n in range(4)
        ],
    }  # fmt: skip
    view = host_plan(plan)
    assert [(life.start, life.length) for life in view.lives] == [(0, 50), (25, 75)]
    assert view.alive == (12, 17, 5, 5) and view.memory_bytes == 17
    assert view.launches[0].groups == 4 and view.launches[0].work_items == 32


def test_a_command_holds_what_was_chosen_and_names_or_writes_the_subject():
    chosen = {"mapping": {"a": 20}, "parameters": {}, "local_sizes": {"k": [1, 1, 1]}}
    named = kernel_command({"name": "vgg16/7"}, "direct", "strict", "pocl", chosen).splitlines()
    assert json.loads(named[1]) == chosen
    assert shlex.split(named[-1]) == [
        "nestmap", "kernel", "vgg16/7", "candidate.json", "--variant", "direct",
        "--device", "pocl", "--out", "kernel.cl",
    ]  # fmt: skip
    document = {"document": {"schema": "nestmap/program/1"}}
    written = kernel_command(document, "", "paper", {"name": "mine"}, chosen).splitlines()
    assert json.loads(written[1]) == document["document"]
    assert shlex.split(written[-1])[2:8] == [
        "subject.json", "candidate.json", "--mode", "paper", "--device", "host",
    ]  # fmt: skip


def test_a_device_without_a_profile_is_judged_by_one_like_it():
    assert like_profile("NVIDIA H200", {}) == "h200"
    assert like_profile("x", {"device.name": "Mali-G72 r0p3"}) == "mali-g72"
    assert like_profile("cpu", {"platform.version": "OpenCL 3.0 PoCL"}) == "pocl"


def test_a_prediction_is_drawn_beside_what_it_was_fitted_to():
    end = {
        "predicted_ms": 2.0, "bound_ms": 1.0, "fitted": 2, "median_error": 0.1,
        "rank_correlation": 1.0,
        "counts": dict.fromkeys(
            ("launches", "waves", "operations", "private_accesses", "spilled", "local_bytes",
             "global_bytes"), 10.0),
        "constants": dict.fromkeys(
            ("launches", "waves", "operations", "private_accesses", "spilled", "local_bytes",
             "global_bytes", "lanes"), 1e5),
    }  # fmt: skip
    items = [{"predicted_ms": 1.0, "time_ms": 1.0}, {"predicted_ms": 0.0, "time_ms": 4.0}]
    view = prediction_view(items, end, 3.0)
    assert view.own is not None and view.own.x < view.own.y
    assert view.points[0].x == view.points[0].y and view.points[1].x == 0.0
    assert [cost for _, _, cost in view.costs] == [1.0] * 7
    assert prediction_view([], end, None).own is None
