"""``derive`` and ``sketches`` of a solver child: steps, refusals, and schedules that explode."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mapper.ast_model.codec import program_from_json
from mapper.ast_model.text_form import parse, to_text
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule, schedule_from_json
from nestmap import derivations
from tests.unit.tasks.child_replies import ask
from tests.unit.tuning.records import SMALL

PRODUCT = """program "p" {
  size M = 8
  size N = 6
  size K = 4
  input a : [[float]K]M
  input b : [[float]N]K
  kernel product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}"""
SUBJECT: dict[str, Any] = {"subject": {"text": PRODUCT}}


def derive(schedule: Any, **fields: Any) -> Any:
    return ask(kind="derive", **(SUBJECT | {"schedule": schedule} | fields))


def test_every_step_has_the_program_after_it_and_what_it_asks_of_parameters():
    text = 'schedule "s" { split(row, bm) move_inside(column) }'
    reply = derive(text)
    assert [item["step"] for item in reply.items] == [1, 2]
    assert reply.items[0]["use"] == "split(row, bm)"
    assert reply.items[0]["parameters"] == {"bm": [1, 2, 4, 8]}
    assert reply.items[0]["constraints"] == ["bm | M"]
    assert reply.items[1]["parameters"] == {} and reply.items[1]["constraints"] == []
    last = derived(parse(PRODUCT), parse_schedule(text))
    assert reply.items[1]["text"] == to_text(last)
    assert "reduce k x K" in reply.items[1]["loops"]
    assert program_from_json(reply.end["program"]) == last
    assert reply.end["schema"] == "nestmap/derivation/1" and reply.end["refusal"] is None
    assert schedule_from_json(reply.end["schedule"]) == parse_schedule(text)
    assert derive(reply.end["schedule"]).items == reply.items


def test_a_layer_is_rewritten_from_what_it_computes():
    reply = ask(
        kind="derive", subject={"name": "vgg16/7"}, schedule='schedule "s" { split(filter, 4) }'
    )
    assert "map filter_tile x M/4" in reply.items[0]["loops"]


def test_a_step_that_does_not_apply_is_named_with_its_reason():
    text = 'schedule "s" { split(row, 2) move_inside(row_tile) unroll(k) }'
    (problem,) = derive(text).problem["problems"]
    assert problem["field"] == "/schedule/steps/1"
    assert problem["message"].startswith("move_inside(row_tile): no reduce stands directly inside")
    reply = derive(text, partial=True)
    assert [item["step"] for item in reply.items] == [1]
    assert reply.end["refusal"]["step"] == 2
    assert reply.end["refusal"]["target"] == "move_inside(row_tile)"
    assert "no reduce stands" in reply.end["refusal"]["message"]
    assert to_text(program_from_json(reply.end["program"])) == reply.items[0]["text"]


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"schedule": None}, "/schedule", "not a schedule"),
        ({"schedule": 7}, "/schedule", "not a schedule"),
        ({"schedule": 'schedule "s" { split(row }'}, "/schedule: line 1", ""),
        ({"schedule": 'schedule "s" { melt(row) }'}, "/schedule: line 1", "no such primitive"),
        ({"schedule": {"schema": "nestmap/schedule/2"}}, "/schedule: schema", "not a schedule"),
        ({"schedule": "x" * 200_001}, "/schedule", "too long"),
        ({"schedule": 'schedule "s" {' + "unroll(k) " * 501 + "}"}, "/schedule", "500 steps"),
        ({"schedule": 'schedule "s" { }', "partial": 1}, "/partial", ""),
        ({"schedule": 'schedule "s" { }', "steps": 1}, "", ""),
        ({"schedule": 'schedule "s" { }', "subject": {"document": {
            "schema": "nestmap/space/1", "name": "t", "parameters": {"t": [1]},
            "constraints": []}}}, "/subject", "nothing about what is computed"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_or_no_program_is_refused_with_its_place(fields, where, what):
    reply = ask(kind="derive", **(SUBJECT | fields))
    assert reply.problem["type"] == "invalid-input"
    (problem, *_) = reply.problem["problems"]
    assert problem["field"].startswith(where) and what in problem["message"]


def test_sketches_have_reasons_and_schedules_that_derive_what_they_promise():
    reply = ask(kind="sketches", **SUBJECT, device="h200")
    assert reply.end == {"schema": "nestmap/sketches/1", "count": len(reply.items)}
    assert reply.items[0]["name"] == "as-is"
    assert all(item["reason"] for item in reply.items)
    sketch = next(item for item in reply.items if item["name"].startswith("blocks-local"))
    made = derive(sketch["text"])
    assert len(made.items) == sketch["steps"]
    names = {p["name"] for p in made.end["program"]["parameters"]}
    assert names == set(sketch["parameters"])
    assert derive(sketch["schedule"]).end == made.end


def exploding(levels: int) -> str:
    """Copies, each of a view that reads the one before twice."""
    lines = ['program "e" {', "  input a0 : [float]2", "  kernel out ="]
    for k in range(1, levels + 1):
        twice = f"join(map#v{k}(x{k} => a{k - 1}, pad(0, {2 - 2**k}, 0.0, a{k - 1})))"
        lines.append(f"    let a{k} = to_private(map#c{k}(z{k} => id(z{k}), {twice})) in")
    lines += [f"    map#o(z => id(z), a{levels})", "}"]
    return "\n".join(lines)


def test_a_schedule_that_would_explode_is_refused_before_anything_of_it_is_built():
    levels, middle = 17, 8
    inner = [f"inline(a{k})" for k in range(1, middle)]
    outer = [f"inline(a{k})" for k in range(levels - 1, middle, -1)]
    steps = [*inner, *outer, f"inline(a{middle})"]
    asked: dict[str, Any] = {"subject": {"text": exploding(levels)}, "partial": True}
    began = time.process_time()
    reply = derive('schedule "s" { ' + " ".join(steps) + " }", **asked)
    # Half a million nodes, of a thousand that are shared so far.
    assert reply.problem["type"] == "too-complex"
    (problem,) = reply.problem["problems"]
    assert problem["field"] == f"step {len(steps)}"
    assert problem["message"] == "the program becomes too large"
    assert int(problem["found"].split()[0]) > 300_000
    assert time.process_time() - began < 20


def test_the_texts_of_all_steps_are_bounded_together(monkeypatch):
    monkeypatch.setattr(derivations, "MAX_CHARACTERS", 1_000)
    reply = derive('schedule "s" { ' + "interchange(row) interchange(column) " * 3 + "}")
    assert reply.problem["type"] == "too-complex"
    assert "too long together" in reply.problem["problems"][0]["message"]


def test_a_program_is_asked_about_in_one_of_its_sketches():
    name = ask(kind="sketches", **SUBJECT, device="pocl").items[-1]["name"]
    asked = {"kind": "count", **SUBJECT, "device": "pocl", "suits": ["all"]}
    assert ask(**asked, variant=name).end["count"] > 0
    refused = ask(**asked, variant="no-such").problem
    assert refused is not None
    (problem,) = refused["problems"]
    assert (problem["field"], problem["found"]) == ("/variant", "no-such")
    assert name in problem["allowed"]
    tree = {"subject": {"document": {"tree": []}}, "variant": name}
    refused = ask(kind="count", **tree).problem
    assert refused is not None


@pytest.mark.parametrize("kind", ["derive", "sketches"])
def test_schedules_are_of_programs_as_they_are_written(kind: str):
    text = 'schedule "s" { split(row, bm) }'
    more: dict[str, Any] = {"schedule": text} if kind == "derive" else {}
    problem = ask(kind=kind, **SUBJECT, variant="as-is", **more).problem
    assert problem is not None
    assert problem["problems"][0]["field"] == "/variant"


def test_a_layer_is_asked_about_in_a_sketch_of_the_program_that_it_is():
    layer = {"subject": {"document": SMALL.to_json()}}
    asked = {"kind": "count", **layer, "device": "pocl", "suits": ["all"]}
    assert ask(**asked, variant="tile-filter").end["count"] > 0
    refused = ask(**asked, variant="no-such").problem
    assert refused is not None
    (problem,) = refused["problems"]
    assert (problem["field"], problem["found"]) == ("/variant", "no-such")
    assert "direct" in problem["allowed"] and "tile-filter" in problem["allowed"]


@pytest.mark.parametrize("subject", [{"name": "vgg16/7"}, {"document": SMALL.to_json()}])
def test_schedules_are_of_a_layer_in_its_variants(subject: dict[str, Any]):
    problem = ask(kind="derive", subject=subject, schedule="", variant="tile-filter").problem
    assert problem is not None
    (one,) = problem["problems"]
    assert (one["field"], one["found"]) == ("/variant", "tile-filter")
    assert "high-level" in one["allowed"]
