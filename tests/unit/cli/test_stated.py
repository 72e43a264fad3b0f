"""Options of the rules and constraints of one's own, as the commands take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode

EXAMPLES = Path(__file__).parents[3] / "examples"
GLOBAL = str(EXAMPLES / "listing1_global.txt")
M1 = str(EXAMPLES / "table1_m1.json")


def run(*args: str) -> Result:
    result = CliRunner().invoke(app, list(args), env={"COLUMNS": "200"})
    assert "Traceback" not in result.output
    return result


def answer(*args: str, code: int = 0) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def count(*args: str) -> int:
    return answer("solve", GLOBAL, "--count", *args)["count"]


def test_options_of_the_rules_admit_more_or_less():
    plain = count()
    assert count("--no-sequential-fusion") > plain
    assert count("--replicate-private") >= plain
    assert count("--free-grid") > plain
    assert count("--suits", "all") < count("--suits", "suits-one-line") < plain
    assert "sequential-fusion" not in answer(
        "solve", GLOBAL, "--count", "--no-sequential-fusion"
    )["preferences"]  # fmt: skip


def test_constraints_of_one_s_own_are_counted_listed_and_kept():
    where = ("--where", "code(A) == W0", "--where", "local_size(out, 0) <= 2")
    counted = answer("solve", GLOBAL, "--count", *where)
    assert counted["constraints"]["where"] == 2
    assert 0 < counted["count"] < count()
    lines = [
        json.loads(line)
        for line in run("constraints", GLOBAL, *where, "--json").stdout.split("\n")
        if line
    ]
    assert [line["predicate"] for line in lines if line["rule"] == "where"] == [
        "code(A) = W0", "local_size(out, 0) ≤ 2",
    ]  # fmt: skip
    drawn = run("solve", GLOBAL, "--sample", "3", *where, "--json").stdout.splitlines()
    assert len(drawn) == 3 and all(json.loads(one)["mapping"]["A"] == 20 for one in drawn)


def test_a_mapping_that_breaks_one_is_not_valid_there_and_the_nearest_keeps_it():
    found = answer("check", GLOBAL, M1, "--where", "code(A) == W0", code=ExitCode.NEGATIVE)
    assert [one["constraint"] for one in found["violations"]] == ["where/1"]
    assert found["nearest"]["assignment"]["mapping"]["A"] == 20
    assert answer("check", GLOBAL, M1, "--no-sequential-fusion")["preferences"] == []
    # What suits a device is a preference.
    suited = answer("check", GLOBAL, M1, "--device", "h200", "--suits", "all")
    assert suited["valid"]
    assert "sequential-fusion" in {one["rule"] for one in suited["preferences"]}


def test_what_nothing_satisfies_is_explained_with_it():
    result = run("solve", GLOBAL, "--where", "code(A) == W0", "--pin", "A=S", "--json")
    assert result.exit_code == ExitCode.LIMIT
    conflict = json.loads(result.stderr)["error"]["conflict"]
    assert [part["constraint"] for part in conflict["parts"]] == ["where/1", "pin/code(A)"]


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (("--where", "code(X) == W0"), "--where"),
        (("--mode", "paper", "--where", "local_size(out, 0) == 1"), "--where"),
        (("--mode", "paper", "--suits", "all"), "--suits"),
        (("--mode", "paper", "--free-grid"), "--free-grid"),
        (("--suits", "suits-nothing"), "suits"),
    ],
)
def test_what_has_no_meaning_is_refused(more: tuple[str, ...], path: str):
    result = run("solve", GLOBAL, "--count", *more, "--json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert [p["path"] for p in json.loads(result.stderr)["error"]["problems"]] == [path]


def test_a_tuning_space_has_no_rules_but_may_get_constraints():
    space = str(Path(__file__).parents[3] / "bench" / "spaces" / "hotspot.json")
    result = run("solve", space, "--count", "--free-grid", "--no-sequential-fusion", "--json")
    assert result.exit_code == ExitCode.BAD_INPUT
    paths = [p["path"] for p in json.loads(result.stderr)["error"]["problems"]]
    assert paths == ["--sequential-fusion", "--free-grid"]
    few = answer("solve", space, "--count", "--where", "block_size_x == 1")
    assert 0 < few["count"] < few["combinations"]
