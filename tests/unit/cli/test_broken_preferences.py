"""A mapping that breaks nothing but preferences is valid, and it is said which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from nestmap.cli import app

EXAMPLES = Path(__file__).parents[3] / "examples"
GLOBAL = str(EXAMPLES / "listing1_global.txt")
#: As Table 1 of CC'22 prints it: two sequential loops where the heuristic keeps a fused one.
M1 = str(EXAMPLES / "table1_m1.json")


def run(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(args), input=stdin, env={"COLUMNS": "200"})
    assert "Traceback" not in result.output
    return result


def verdict(*args: str, stdin: str | None = None, code: int = 0) -> Any:
    result = run("check", GLOBAL, *args, "--json", stdin=stdin)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_m1_as_printed_is_valid_with_a_note():
    found = verdict(M1)
    assert found["valid"] and found["violations"] == [] and "nearest" not in found
    assert [one["constraint"] for one in found["preferences"]] == [
        "sequential-fusion/C", "sequential-fusion/E",
    ]  # fmt: skip
    shown = run("check", GLOBAL, M1).stdout
    assert shown.startswith("valid\nit breaks sequential-fusion: a preference")


def test_its_kernel_is_printed_with_a_note_and_says_that_the_constraints_hold():
    result = run("kernel", GLOBAL, M1)
    assert result.exit_code == 0
    assert "the mapping breaks a preference: sequential-fusion" in result.stderr
    assert "constraints hold" in result.stdout


def test_an_invalid_mapping_s_violations_are_without_its_preferences():
    text = json.dumps({"A": "G1", "B": "G0", "C": "S", "D": "S", "E": "S"})
    found = verdict("-", "--no-nearest", stdin=text, code=1)
    rules = {one["rule"] for one in found["violations"]}
    assert rules and "sequential-fusion" not in rules
    assert [one["rule"] for one in found["preferences"]] == ["sequential-fusion"]


def test_what_is_left_open_meets_the_preferences_that_can_be_met():
    # No local size mends the two sequential loops; 1 work-item is chosen, for 6 are there.
    codes = json.dumps({"A": "G0", "B": "S", "C": "S", "D": "S", "E": "S"})
    found = verdict("-", stdin=codes)
    assert found["valid"] and found["assumed"] == {"local_sizes": {"out": [1, 1, 1]}}
    # More work-items than iterations are a preference, too.
    idle = json.dumps({"mapping": json.loads(codes), "local_sizes": {"out": [32, 1, 1]}})
    rules = [one["rule"] for one in verdict("-", stdin=idle)["preferences"]]
    assert set(rules) == {"sequential-fusion", "no-idle-threads"}
