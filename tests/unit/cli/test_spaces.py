"""What the commands answer for tuning spaces (``nestmap/space/1``)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode

ROOT = Path(__file__).parents[3]
XCONVGEMM = str(ROOT / "bench" / "spaces" / "clblast_xconvgemm.json")
SMALL: dict[str, Any] = {
    "schema": "nestmap/space/1",
    "name": "small",
    "source": "a test",
    "parameters": {
        "layout": ["row", "column"],
        "cached": [False, True],
        "width": [4, 1, 2],
        "tile": {"from": 1, "to": 3},
    },
    "constraints": [
        {"id": "rows", "expr": "layout == 'row' or width == 1", "sentence": "columns are narrow"},
        "cached or tile > 1",
    ],
}


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    return str(path)


def run(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(args), input=stdin)
    assert "Traceback" not in result.output
    return result


def lines(*args: str) -> list[Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def expected() -> list[dict[str, Any]]:
    return [
        {"layout": layout, "cached": cached, "width": width, "tile": tile}
        for layout in ("row", "column")
        for cached in (False, True)
        for width in (1, 2, 4)
        for tile in (1, 2, 3)
        if (layout == "row" or width == 1) and (cached or tile > 1)
    ]


def canonical(configurations: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(found, sort_keys=True) for found in configurations)


def test_solve_gives_every_configuration_once_as_its_author_would_write_it(small: str):
    found = [line["parameters"] for line in lines("solve", small)]
    assert canonical(found) == canonical(expected())
    assert all(list(configuration) == list(SMALL["parameters"]) for configuration in found)


def test_count_is_of_configurations(small: str):
    (found,) = lines("solve", small, "--count")
    assert (found["count"], found["complete"]) == (len(expected()), True)
    assert found["constraints"] == {"space": 2}
    (pinned,) = lines("solve", small, "--count", "--pin", "layout=column")
    assert pinned["count"] == sum(c["layout"] == "column" for c in expected())
    assert "20 configurations" in run("solve", small, "--count").stdout


def test_pins_name_labels_and_truth_values(small: str):
    found = lines("solve", small, "--pin", "layout=row", "--pin", "cached=true", "--pin", "tile=1")
    assert canonical([line["parameters"] for line in found]) == canonical(
        [c for c in expected() if (c["layout"], c["cached"], c["tile"]) == ("row", True, 1)]
    )
    refused = run("solve", small, "--pin", "layout=diagonal")
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "row, column" in refused.stderr


def test_samples_are_configurations_that_check_accepts(small: str, tmp_path: Path):
    drawn = lines("solve", small, "--sample", "5", "--seed", "3")
    assert drawn == lines("solve", small, "--sample", "5", "--seed", "3")
    for line in drawn:
        assert line["parameters"] in expected()
        path = tmp_path / "configuration.json"
        path.write_text(json.dumps(line))
        assert lines("check", small, str(path))[0]["valid"] is True


def test_tables_show_labels(small: str):
    result = run("solve", small, "--limit", "1", "--pin", "layout=column", "--pin", "cached=true")
    assert "configuration 1" in result.stdout
    assert "layout=column, cached=true, width=1" in result.stdout


def test_check_names_the_constraints_that_a_configuration_breaks(small: str):
    given = {"layout": "column", "cached": False, "width": 2, "tile": 1}
    result = run("check", small, "-", "--json", stdin=json.dumps(given))
    assert result.exit_code == ExitCode.NEGATIVE
    violations = json.loads(result.stdout)["violations"]
    assert [(v["constraint"], v["sentence"]) for v in violations] == [
        ("space/rows", "columns are narrow"),
        ("space/2", "cached or tile > 1"),
    ]


def test_check_proposes_the_nearest_configuration_with_its_labels(small: str):
    given = {"layout": "column", "cached": False, "width": 2, "tile": 2}
    pinned = ("--pin", "width=2")
    result = run("check", small, "-", "--json", *pinned, stdin=json.dumps(given))
    nearest = json.loads(result.stdout)["nearest"]
    assert nearest["assignment"] == {"parameters": {**given, "layout": "row"}}
    (change,) = nearest["changes"]
    assert (change["name"], change["from"], change["to"]) == ("layout", "column", "row")


def test_forbidden_labels_are_taken_away(small: str):
    found = lines("solve", small, "--forbid", "layout=row", "--forbid", "cached=false")
    assert canonical([line["parameters"] for line in found]) == canonical(
        [c for c in expected() if c["layout"] == "column" and c["cached"]]
    )


def test_check_chooses_what_is_left_open(small: str):
    result = run("check", small, "-", "--json", stdin='{"parameters": {"layout": "column"}}')
    found = json.loads(result.stdout)
    assert found["valid"] is True
    assert {"layout": "column", **found["assumed"]["parameters"]} in expected()


def test_an_integer_outside_its_values_is_a_violation(small: str):
    given = {"layout": "row", "cached": True, "width": 3, "tile": 1}
    result = run("check", small, "-", "--json", stdin=json.dumps(given))
    assert result.exit_code == ExitCode.NEGATIVE
    assert json.loads(result.stdout)["violations"][0]["rule"] == "parameter-domain"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "a configuration is an object"),
        ("{", "malformed JSON"),
        ('{"widht": 1}', "/widht: there is no such parameter (try: width)"),
        ('{"layout": "diagonal"}', "/layout: no such value; found the text 'diagonal'"),
        ('{"layout": 0}', "/layout: no such value; found the number 0"),
        ('{"cached": 1}', "/cached: no such value; found the number 1; allowed: true, false"),
        ('{"parameters": {"width": "1"}}', "/parameters/width: no such value"),
        ('{"parameters": {"width": true}}', "/parameters/width: no such value; found true"),
        ('{"parameters": {}, "mapping": {}}', "/mapping: unknown field"),
    ],
)
def test_bad_configurations(small: str, text: str, words: str):
    result = run("check", small, "-", stdin=text)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr


def test_constraints_are_listed_with_their_source(small: str):
    first, second = lines("constraints", small)
    assert first["id"] == "space/rows"
    assert first["predicate"] == "layout = row or width = 1"
    assert first["provenance"] == "a test"
    assert second["predicate"] == "cached = true or tile > 1"


def test_an_empty_space_says_so(small: str):
    stated = {**SMALL, "constraints": ["width > 4"]}
    result = run("solve", "-", stdin=json.dumps(stated))
    assert result.exit_code == ExitCode.LIMIT
    assert "no configuration satisfies the constraints" in result.stderr


def test_an_empty_space_names_the_constraints_that_conflict():
    stated = {**SMALL, "constraints": ["width > tile", "cached", "width < tile", "tile != 9"]}
    result = run("solve", "-", "--json", stdin=json.dumps(stated))
    assert result.exit_code == ExitCode.LIMIT
    conflict = json.loads(result.stderr)["error"]["conflict"]
    assert conflict["minimal"] is True
    assert {part["sentence"] for part in conflict["parts"]} == {"width > tile", "width < tile"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("kernel",), "a tuning space says nothing about what is computed"),
        (("solve", "--mode", "paper"), "a tuning space states its constraints itself"),
        (("solve", "--variant", "direct"), "a tuning space has no variants"),
    ],
)
def test_what_a_tuning_space_has_not_is_refused(args: tuple[str, ...], words: str):
    command, *options = args
    result = run(command, XCONVGEMM, *options)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"constraints": ["width >"]}, "/constraints/0: column 8: an operand is missing"),
        ({"constraints": ["wdith > 1"]}, "(try: width)"),
        ({"constraints": ["(" * 10_000 + "1" + ")" * 10_000 + " > 0"]}, "too long"),
        ({"constraints": ["2**10**9 > width"]}, "not an exponent"),
        ({"constraints": ["__import__('os').system('true')"]}, "not a function"),
        ({"parameters": {"width": []}}, "/parameters/width: the parameter has no values"),
        ({"parameters": {"width": [0.5]}}, "/parameters/width/0: a value is not an integer"),
        ({"parameters": {"width": list(range(10**6))}}, "too many values"),
        ({"colour": 1}, "/colour: unknown field"),
    ],
)
def test_bad_spaces(changes: dict[str, Any], words: str):
    result = run("solve", "-", stdin=json.dumps({**SMALL, **changes}))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr
    assert result.stderr.startswith("error: standard input")
    assert all(len(line) < 1200 for line in result.stderr.splitlines())


def test_a_space_is_known_by_its_parameters():
    stated = {name: SMALL[name] for name in ("parameters", "constraints")}
    assert run("solve", "-", "--count", stdin=json.dumps(stated)).exit_code == 0
