"""The campaign: fresh processes under limits, resumed, and tables that say what was found."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.space_solving import measuring
from bench.space_solving.cases import load_cases, tuning_case
from bench.space_solving.contestants.numpy_functions import array_function
from bench.space_solving.contestants.problem import Problem, predicate_function
from bench.space_solving.measuring import BY_KEY, PEERS_PYTHON, Cell, Limits, Task, run_once
from bench.space_solving.results import read_cells, write_cells
from bench.space_solving.tables import geometric_mean, markdown
from mapper.errors import InputError
from mapper.tuning_space.codec import space_to_json
from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode
from tests.bench.space_solving.spaces import TINY

STARTS = ("", "-texts", "-compiled")
TASKS = ("construct", "count", "sample")
QUICK = ("--peers", "numpy-join", "--repeats", "1")


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(space_to_json(TINY)))
    return path


def bench(*args):
    result = CliRunner().invoke(app, ["bench", "spaces", *map(str, args)])
    assert "Traceback" not in result.output
    return result


def test_a_space_is_measured_from_end_to_end_and_not_again(tiny, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    wanted = ("--spaces", tiny, "--peers", "numpy-join", "--peers", "brute-force", "--repeats", 2)
    result = bench(*wanted, "--out", out)
    assert result.exit_code == ExitCode.OK, result.output
    assert "| tiny | 96 | 36 |" in result.output
    assert "all answers equal" in result.output
    value = json.loads(out.read_text())
    assert value["command"].startswith("nestmap")
    assert value["versions"].keys() >= {"python", "numpy", "nestmap"}
    cells = {(cell["contestant"], cell["task"]): cell for cell in value["cells"]}
    assert set(cells) == {
        *((f"nestmap{start}", task) for start in STARTS for task in TASKS),
        ("numpy-join", "construct"),
        ("numpy-join", "sample"),
        ("brute-force", "construct"),
        ("brute-force", "count"),
        ("brute-force", "sample"),
    }
    assert all(len(cell["seconds"]) == len(cell["cpu_seconds"]) == 2 for cell in cells.values())
    assert len({cell["digest"] for cell in cells.values()} - {""}) == 1
    read = cells["nestmap", "construct"]["stages"]["read"][0]
    assert 0 < read <= cells["nestmap", "construct"]["seconds"][0]
    assert not cells["nestmap-compiled", "construct"]["stages"]

    def never(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(measuring, "run_once", never)
    again = bench(*wanted, "--out", out, "--json")
    assert again.exit_code == ExitCode.OK, again.output
    assert json.loads(again.stdout)["cells"] == value["cells"]


def test_figures_of_another_document_are_not_kept(tiny, tmp_path):
    out = tmp_path / "out.json"
    bench("--spaces", tiny, *QUICK, "--out", out)
    value = space_to_json(TINY)
    value["constraints"] = value["constraints"][:1]
    del value["expected_count"]
    tiny.write_text(json.dumps(value))
    result = bench("--spaces", tiny, *QUICK, "--out", out, "--json")
    counts = {cell["count"] for cell in json.loads(result.stdout)["cells"] if cell["digest"]}
    assert counts and 36 not in counts


def test_a_wrong_known_size_is_a_negative_answer(tiny, tmp_path):
    value = space_to_json(TINY)
    value["expected_count"] = 99
    tiny.write_text(json.dumps(value))
    result = bench("--spaces", tiny, *QUICK, "--out", tmp_path / "out.json")
    assert result.exit_code == ExitCode.NEGATIVE
    assert "36 solutions, not 99" in result.output


def test_without_the_other_builders_the_rest_is_measured(tiny, tmp_path):
    result = bench(
        *("--spaces", tiny, "--peers", "kernel-tuner", "--peers", "numpy-join", "--repeats", "1"),
        *("--peers-python", tmp_path / "python", "--out", tmp_path / "out.json"),
    )
    assert result.exit_code == ExitCode.OK, result.output
    assert "make peers" in result.output
    assert "NumPy, join and filter" in result.output
    assert "| Kernel Tuner |" not in result.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--spaces", "gem", "no such space"),
        ("--spaces", "missing.json", "cannot be read"),
        ("--peers", "atf", "none of"),
        ("--clock", "sun", "none of"),
    ],
)
def test_unknown_names_are_refused_with_what_is_allowed(option, value, message, tmp_path):
    result = bench(option, value, "--out", tmp_path / "out.json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.output


def test_what_takes_too_long_is_ended_and_said():
    (case,) = load_cases(["atf_prl_16x16"])
    limits = Limits(timeout_s=0.3)
    answer = run_once(case, BY_KEY["brute-force"], Task.COUNT, PEERS_PYTHON, limits, 0)
    assert answer == {"refused": "not in 0.3 s"}


def test_what_takes_too_much_memory_is_ended_and_said():
    (case,) = load_cases(["hotspot+gemm+expdist"])
    limits = Limits(memory_mb=600)
    answer = run_once(case, BY_KEY["numpy-join"], Task.COUNT, PEERS_PYTHON, limits, 0)
    assert answer == {"refused": "over 600 MB"}


def test_samples_are_not_tried_where_the_solutions_could_not_be_had(monkeypatch):
    asked = []

    def refuse(case, contestant, task, *_):
        asked.append(task)
        return {"refused": "not in 1 s"}

    monkeypatch.setattr(measuring, "run_once", refuse)
    cells = {}
    chosen = [BY_KEY["kernel-tuner"], BY_KEY["pyatf"]]
    measuring.measure_case(tuning_case(TINY), chosen, PEERS_PYTHON, Limits(), cells)
    assert asked == [Task.CONSTRUCT, Task.CONSTRUCT, Task.COUNT]
    assert {cell.refusal for cell in cells.values()} == {"not in 1 s"}


def test_two_runs_with_different_answers_are_a_failure():
    cell = Cell("tiny", "f", "pyatf", "count")
    answer = {"seconds": 1, "cpu_seconds": 1, "stages": {}, "peak_mb": 1}
    measuring.record(cell, {**answer, "count": 3})
    measuring.record(cell, {**answer, "count": 4})
    assert cell.refusal.startswith("failed")


def test_results_survive_the_file(tmp_path):
    cell = Cell("tiny", "f", "pyatf", "count", [0.5], [0.4], {"read": [0.1]}, 30.5, 7)
    path = tmp_path / "results" / "spaces.json"
    write_cells(path, [cell], {"command": "x"}, Limits())
    assert read_cells(path) == {cell.key: cell}
    path.write_text('{"schema": "nestmap/bench-layers/1", "cells": []}')
    with pytest.raises(InputError, match="--fresh"):
        read_cells(path)


def test_the_table_has_medians_ratios_and_their_mean():
    case = tuning_case(TINY)

    def cell(contestant, *seconds):
        return Cell("tiny", "f", contestant, "construct", list(seconds), list(seconds), count=36)

    cells = [
        cell("nestmap", 0.002, 0.001, 0.003),
        cell("nestmap-texts", 0.001),
        cell("nestmap-compiled", 0.0005),
        cell("kernel-tuner", 0.003),
        cell("numpy-join", 0.004, 9.0, 0.001),
    ]
    chosen = [BY_KEY[c.contestant] for c in cells]
    text = markdown([case], chosen, {c.key: c for c in cells}, "seconds")
    construct, count, _ = text.split("###")[1:]
    # From texts Kernel Tuner takes 3 times as long, from functions NumPy 8 times.
    assert "| tiny | 96 | 36 | 2 | 1 | 0.5 | 3 | 4 | 3 | 1.5 | 1.5 |" in construct
    assert "| **3** | **1.5** | **1.5** |" in construct
    # Who cannot count but by constructing is as fast at the one as at the other.
    assert "| tiny | 96 | 36 | 2 | 1 | 0.5 | 3 | 4 | 3 | 1.5 | 1.5 |" in count
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


@pytest.mark.parametrize(
    "text",
    [
        "a % b == 0 and (a > 2 or not b == 3)",
        "1 <= a * b < 12 != b",
        "a in (1, 4) or b not in [2, 3]",
        "min(a, b, 3) >= 2 and max(a, -b) == a and abs(a - b) <= 2",
        "(a / b if a > b else b // a) <= 2",
        "b != 2 and a % (b - 2) == 0",
    ],
)
def test_array_functions_mean_what_the_expressions_mean(text):
    problem = Problem({"a": (1, 2, 3, 4, 8), "b": (1, 2, 3)}, (text,), "", "")
    plain = predicate_function(text, problem.names)
    a, b = (np.array(values) for values in problem.parameters.values())
    with np.errstate(all="ignore"):
        found = array_function(text, problem.names)(a[:, None], b[None, :])
    expected = [[bool(plain(x, y)) for y in b.tolist()] for x in a.tolist()]
    assert found.tolist() == expected
