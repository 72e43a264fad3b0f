"""Symmetry, strata, preferences and limits together, as the command line offers them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mapper.schedule import ScheduleCode
from mapper.solver import limits
from nestmap.cli import app

ROOT = Path(__file__).parents[3]
PROGRAM = str(ROOT / "examples" / "listing1_global.txt")
TREE = str(ROOT / "examples" / "cc22_convolution_tree.json")
SPACE = str(ROOT / "bench" / "spaces" / "hotspot.json")


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["solve", *args])


def mappings(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["mapping"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("how", [["--limit", "1"], ["--sample", "1"],
                                 ["--sample", "2", "--stratify"]])  # fmt: skip
def test_what_symmetry_and_a_pin_leave_nothing_of_is_explained(how: list[str]):
    result = run(PROGRAM, "--pin", "A=W1", "--up-to-symmetry", *how, "--json")
    assert result.exit_code == 5
    parts = json.loads(result.stderr)["error"]["conflict"]["parts"]
    assert [(part["rule"], part["kind"]) for part in parts] == [
        ("up-to-symmetry", "constraint"),
        ("pin", "pin"),
    ]


def test_preferences_order_what_symmetry_leaves():
    result = run(PROGRAM, "--prefer", "A=W1:5", "--up-to-symmetry", "--limit", "5", "--json")
    found = mappings(result)
    assert found
    for mapping in found:
        dimensions = [ScheduleCode(code).dimension for code in mapping.values()]
        used = list(dict.fromkeys(d for d in dimensions if d is not None))
        assert used == list(range(len(used)))


def test_symmetry_is_no_rule_that_is_counted():
    whole, left = (
        json.loads(run(PROGRAM, "--count", "--json", *more).stdout)
        for more in ([], ["--up-to-symmetry"])
    )
    assert left["constraints"] == whole["constraints"]
    assert left["count"] < whole["count"]


def test_strata_with_too_few_are_mentioned():
    result = run(PROGRAM, "--sample", "200", "--stratify", "--json")
    assert 0 < len(mappings(result)) < 200
    assert "some sets of dimensions have no more" in result.stderr


def test_memory_ends_a_computation_and_a_sample_that_is_not_uniform_is_called_so(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "resident_bytes", lambda: 2**40)
    result = run(TREE, "--mode", "paper", "--sample", "3", "--memory-limit", "100", "--json")
    assert result.exit_code == 5
    assert "diverse and not uniform" in result.stderr
    assert "at most 100 MiB" in result.stderr
    assert run(PROGRAM, "--sample", "3", "--memory-limit", "0").exit_code == 0
    assert run(SPACE, "--count", "--memory-limit", "100").exit_code == 5


def test_a_large_sample_is_refused_where_it_would_not_fit():
    result = run(SPACE, "--sample", "99999999", "--memory-limit", "30", "--json")
    assert result.exit_code == 5
    assert "a sample of so many" in result.stderr or "the computation" in result.stderr


def test_a_time_limit_is_no_reason_to_draw_at_random():
    result = run(PROGRAM, "--limit", "2", "--time-limit", "1e-9")
    assert result.exit_code == 5
    assert "drawn at random" not in result.stderr
    strata = run(PROGRAM, "--sample", "4", "--stratify", "--time-limit", "1e-9")
    assert strata.exit_code == 5
    assert "time limit" in strata.stderr
