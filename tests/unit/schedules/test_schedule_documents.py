"""Schedules as text and JSON: both ways, bounded, and what is wrong is named with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse, to_text
from mapper.errors import InputError
from mapper.schedules.schedule import (
    MAX_STEPS,
    PRIMITIVES,
    Kind,
    Schedule,
    Use,
    Value,
    derive,
    derived,
    use,
)
from mapper.schedules.schedule_text import (
    MAX_CHARACTERS,
    SCHEMA,
    parse_schedule,
    schedule_from_json,
    schedule_to_json,
    schedule_to_text,
)
from nestmap.cli import app

PRODUCT = """program "product" {
  size M = 6
  size K = 8
  input a : [[float]K]M
  kernel c = join(map#row(x => reduce((acc, k) => add(acc, k), 0.0, x), a))
}
"""
TILES = 'schedule "tiles" {  # of rows\n  split(row, bm)\n  split_reduce(k, size=4)\n}\n'
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples" / "schedules").glob("*.schedule"))


def value_of(kind: Kind, random: Random) -> Value:
    names = ("row", "a map, 3", "12", 'say "x"', "in_tile")
    match kind:
        case Kind.NAME:
            return random.choice(names)
        case Kind.SIZE:
            return random.choice(("4", "bm", "bc/ks", "(a+1)*b", "M//2-1"))
        case Kind.COUNT:
            return random.randrange(5)
        case Kind.NAMES:
            return tuple(random.sample(names, random.randrange(1, 4)))
        case Kind.ORDER:
            return tuple(random.sample(range(4), random.randrange(4)))
        case Kind.VALUES:
            return tuple(random.sample((1, 2, 31, 32, 4096, 2**20), random.randrange(4)))
        case Kind.MEMORY:
            return random.choice(("global", "local", "private"))
        case Kind.OVERHANG:
            return random.choice(("divisible", "padded", "guarded"))
        case Kind.FLAG:
            return random.random() < 0.5


def random_use(name: str, random: Random) -> Use:
    given = {
        f.name: value_of(f.kind, random)
        for f in PRIMITIVES[name].fields
        if f.required or random.random() < 0.5
    }
    return use(name, **given)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_text_and_json_give_every_use_back(name: str) -> None:
    random = Random(name)
    schedule = Schedule('with "quotes"', tuple(random_use(name, random) for _ in range(30)))
    assert parse_schedule(schedule_to_text(schedule)) == schedule
    document = json.loads(json.dumps(schedule_to_json(schedule)))
    assert schedule_from_json(document) == schedule


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_as_they_are_printed(path: Path) -> None:
    assert schedule_to_text(parse_schedule(path.read_text())) == path.read_text()


def test_every_primitive_says_what_it_is() -> None:
    assert all(p.summary.endswith(".") for p in PRIMITIVES.values())


def test_a_schedule_is_applied_step_by_step() -> None:
    stages = list(derive(parse(PRODUCT), parse_schedule(TILES)))
    assert [[p.name for p in s.step.parameters] for s in stages] == [["bm"], []]
    assert stages[0].step.constraints == ("bm | M",)
    assert stages[-1].step.program == derived(parse(PRODUCT), parse_schedule(TILES))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected schedule"),
        ("schedule tiles {}", "name in quotes"),
        ('schedule "a" { split(row, 4)', "the text ends early"),
        ('schedule "a" { divide(row, 4) }', "no such primitive"),
        ('schedule "a" { split(row) }', "arguments are missing"),
        ('schedule "a" { split(row, 4, how=padded) }', "how is unknown or given twice"),
        ('schedule "a" { split(row, 4, overhang=ragged) }', "an argument of another kind"),
        ('schedule "a" { split(row, size=4, 5) }', "an argument too many, or one behind"),
        ('schedule "a" { reorder(row) }', "expected ["),
        ('schedule "a" { layout(t, [x]) }', "expected whole numbers"),
        ('schedule "a" { split(row, "4") }', "expected an integer expression"),
        ('schedule "a" { split(row, 4) } more', "expected the end"),
        ('schedule "a" { split(row, 4); }', "nothing begins with"),
        ('schedule "a\\x" { }', "not a text as JSON writes it"),
        ('schedule "a" { ' + "unroll(k) " * (MAX_STEPS + 1) + "}", "more than"),
        (" " * (MAX_CHARACTERS + 1), "the text is too long"),
    ],
)
def test_wrong_text_is_told_with_its_place(text: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_schedule(text)
    problem = caught.value.problems[0]
    assert why in problem.message
    assert problem.path.startswith("line ") or why == "the text is too long"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schema": "nestmap/schedule/2"}, "schema"),
        ({"name": 3}, "name"),
        ({"steps": {}}, "steps"),
        ({"more": 1}, "more"),
        ({"steps": [3]}, "steps/0"),
        ({"steps": [{"primitive": 3}]}, "steps/0/primitive"),
        ({"steps": [{"primitive": "divide"}]}, "steps/0/divide"),
        ({"steps": [{"primitive": "split", "map_id": "row"}]}, "steps/0/split"),
        ({"steps": [{"primitive": "split", "map_id": "row", "size": None}]}, "steps/0/size"),
        ({"steps": [{"primitive": "split", "map_id": "row", "size": [[1]]}]}, "steps/0/size"),
        ({"steps": [{"primitive": "split", "map_id": "r" * 64, "size": 1}]},
         "steps/0/split.map_id"),
        ({"steps": [{"primitive": "unroll", "name": "k"}] * (MAX_STEPS + 1)}, "steps"),
    ],
)  # fmt: skip
def test_wrong_json_is_told_with_its_path(changes: dict[str, object], path: str) -> None:
    document = {"schema": SCHEMA, "name": "s", "steps": []} | changes
    with pytest.raises(InputError) as caught:
        schedule_from_json(document)
    assert caught.value.problems[0].path == path


def test_the_schedule_of_the_docs_keeps_a_product() -> None:
    text = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    found = re.search(r"^schedule \"tiles\".*?^}$", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    program = parse(
        """program "product" {
  size M = 8
  size N = 10
  size K = 6
  input a : [[float]K]M
  input b : [[float]N]K
  kernel c = map#row(x => join(map#column(y =>
    reduce((acc, k) => fma(k.0, k.1, acc), 0.0, zip(x, y)), transpose(b))), a)
}"""
    )
    after = derived(program, parse_schedule(found.group()))
    values = {"bm": 4, "bn": 5, "bk": 3}
    source = np.random.default_rng(0)
    inputs = {"a": source.integers(-3, 4, (8, 6)), "b": source.integers(-3, 4, (6, 10))}
    wanted = interpret(program, {}, inputs)
    np.testing.assert_array_equal(interpret(after, values, inputs), wanted)
    elaborate(after, values)


def test_the_command_shows_every_step(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(PRODUCT)
    (tmp_path / "s.schedule").write_text(TILES)
    names = (str(tmp_path / "p.txt"), str(tmp_path / "s.schedule"))
    shown = CliRunner().invoke(app, ["derive", *names])
    assert shown.exit_code == 0
    assert "1. split(row, bm)\n   parameter bm\n   bm | M\n" in shown.output
    last = derived(parse(PRODUCT), parse_schedule(TILES))
    assert shown.output.endswith(to_text(last))
    alone = CliRunner().invoke(app, ["derive", *names, "--last"])
    assert parse(alone.output) == last
    lines = CliRunner().invoke(app, ["derive", *names, "--json"]).output.splitlines()
    steps = [json.loads(line) for line in lines]
    assert [s["step"] for s in steps] == [0, 1, 2]
    assert steps[1]["constraints"] == ["bm | M"]


def test_the_command_takes_json_and_says_what_is_wrong(tmp_path: Path) -> None:
    document = schedule_to_json(parse_schedule(TILES.replace("row", "nobody")))
    (tmp_path / "p.txt").write_text(PRODUCT)
    (tmp_path / "s.json").write_text(json.dumps(document))
    failed = CliRunner().invoke(app, ["derive", str(tmp_path / "p.txt"), str(tmp_path / "s.json")])
    assert failed.exit_code != 0
    assert "step 1, split(nobody)" in failed.output + failed.stderr
