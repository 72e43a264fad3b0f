"""Portraits say of a candidate what the library says, and predictions come from what was given."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels
from mapper.profiles import load_profile
from nestmap.subjects import load_subject
from tests.unit.tasks.child_replies import HIGH_LEVEL, ask, fresh

KEPT = fresh()


@pytest.fixture(scope="module")
def drawn() -> list[dict[str, Any]]:
    return ask(KEPT, kind="sample", **HIGH_LEVEL, count=12, seed=3).items


def test_a_portrait_has_every_constraint_the_loops_and_the_stored_source(drawn):
    # As a store gives it: its keys are sorted.
    stored = json.loads(json.dumps(drawn[0], sort_keys=True))
    found = ask(KEPT, kind="portrait", **HIGH_LEVEL, mapping=stored)
    subject = load_subject("vgg16/7", "high-level")
    space = derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())
    assert [item["id"] for item in found.items] == [c.id for c in space.constraints]
    assert all(item["holds"] for item in found.items)
    assert {item["kind"] for item in found.items} == {"constraint", "preference"}
    assert found.end["valid"] and found.end["assignment"] == drawn[0]
    names = [loop["name"] for kernel in found.end["kernels"] for loop in kernel["loops"]]
    assert set(drawn[0]["mapping"]) <= set(names)
    plan = generate_kernels(subject, assignment_from_json(space, drawn[0]))
    assert found.end["source_hash"] == hashlib.sha256(plan.source.encode()).hexdigest()
    assert found.end["memory_bytes"] == plan.memory_bytes


def test_a_portrait_of_what_is_not_valid_says_what_is_broken_and_has_no_kernels(drawn):
    outermost = next(iter(drawn[0]["mapping"]))
    wrong = {**drawn[0], "mapping": {**drawn[0]["mapping"], outermost: 30}}
    found = ask(KEPT, kind="portrait", **HIGH_LEVEL, mapping=wrong)
    broken = [item["id"] for item in found.items if not item["holds"]]
    checked = ask(KEPT, kind="check", **HIGH_LEVEL, mapping=wrong, nearest=False).end
    assert not found.end["valid"] and found.end["kernels"] == []
    assert broken and set(broken) == {v["constraint"] for v in checked["violations"]}


def test_a_prediction_is_fitted_to_the_candidates_that_were_given(drawn):
    measured = [{**item, "time_ms": 1.0 + number} for number, item in enumerate(drawn[1:])]
    found = ask(KEPT, kind="prediction", **HIGH_LEVEL, mapping=drawn[0], measured=measured)
    assert [item["time_ms"] for item in found.items] == [item["time_ms"] for item in measured]
    assert found.end["fitted"] == len(measured)
    assert 0 <= found.end["bound_ms"] <= found.end["predicted_ms"]
    doubled = [{**item, "time_ms": 2 * item["time_ms"]} for item in measured]
    again = ask(KEPT, kind="prediction", **HIGH_LEVEL, mapping=drawn[0], measured=doubled)
    assert again.end["predicted_ms"] == pytest.approx(2 * found.end["predicted_ms"])


def test_a_prediction_from_too_few_says_that_it_is_fitted_to_none(drawn):
    one = [{**drawn[1], "time_ms": 1.0}]
    found = ask(KEPT, kind="prediction", **HIGH_LEVEL, mapping=drawn[0], measured=one)
    assert found.end["fitted"] == 0 and found.end["median_error"] is None
    assert found.end["predicted_ms"] > 0


@pytest.mark.parametrize(
    ("measured", "field"),
    [
        ([{"mapping": {}, "time_ms": 0}], "/measured/0/time_ms"),
        ([{"mapping": {}, "time_ms": True}], "/measured/0/time_ms"),
        (["no object"], "/measured/0/time_ms"),
        ([{"mapping": {}, "time_ms": 1.0}] * 65, "/measured"),
    ],
)
def test_a_prediction_refuses_what_is_no_measurement_by_its_place(drawn, measured, field):
    found = ask(KEPT, kind="prediction", **HIGH_LEVEL, mapping=drawn[0], measured=measured)
    assert [problem["field"] for problem in found.problem["problems"]] == [field]
