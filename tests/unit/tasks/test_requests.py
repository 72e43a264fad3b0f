"""What a solver child answers: the same as the library, and a problem for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.cost.analytic import DeviceConstants
from mapper.cost.best_predicted import BestPredicted
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels
from mapper.profiles import load_profile
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.restrictions import narrowed
from mapper.solver.space import check
from nestmap.answers import checked_facts
from nestmap.predicting import predicted_time_ms
from nestmap.requests import request_about
from nestmap.restrictions import read_restrictions
from nestmap.subjects import load_subject, subject_of_text
from nestmap.tasks import kinds
from tests.unit.rows_program import PINS, ROWS
from tests.unit.tasks.child_replies import HIGH_LEVEL, SMALL_SPACE, ask, ask_line, fresh

TREE = Path(__file__).parents[3] / "examples" / "cc22_convolution_tree.json"
PAPER_TREE: dict[str, Any] = {
    "subject": {"document": json.loads(TREE.read_text())},
    "mode": "paper",
}


@pytest.fixture(scope="module")
def space():
    subject = load_subject("vgg16/7", "high-level")
    return derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())


def test_pages_are_together_all_mappings_each_once_and_valid(space):
    kept, after, found = fresh(), 0, []
    while after is not None:
        page = ask(kept, kind="mappings", **HIGH_LEVEL, limit=20, after=after)
        found += page.items
        after = page.end["next"]
    assert [item.pop("number") for item in found] == list(range(1, len(found) + 1))
    assert len(found) == count_mappings(space).mappings
    assert len({json.dumps(item["mapping"]) for item in found}) == len(found)
    for item in found:
        assert check(space, assignment_from_json(space, item)) == ()


def test_a_page_is_the_same_from_a_child_that_never_saw_the_one_before():
    first = ask(kind="mappings", **HIGH_LEVEL, limit=30).items
    assert ask(kind="mappings", **HIGH_LEVEL, limit=10, after=20).items == first[20:]


def test_every_assignment_is_listed_and_counted_where_that_is_asked(space):
    small = {**HIGH_LEVEL, "pin": [f"{n}={v}" for n, v in _local_sizes(space)]}
    listed = ask(kind="mappings", **small, joint=True)
    counted = ask(kind="count", **small, joint=True)
    assert listed.end["of"] == counted.end["of"] == "assignments"
    assert len(listed.items) == counted.end["count"] > 0
    whole = ask(kind="count", **HIGH_LEVEL, joint=True)
    assert whole.end["count"] == count_assignments(space)


def _local_sizes(space) -> list[tuple[str, str]]:
    found = ask(kind="mappings", **HIGH_LEVEL, limit=1).items[0]["local_sizes"]
    return [
        (f"{kernel}.{d}", str(size))
        for kernel, sizes in found.items()
        for d, size in enumerate(sizes)
    ]


def test_a_tree_in_paper_mode_is_counted_as_published():
    found = ask(kind="count", **PAPER_TREE).end
    assert found["count"] == 41_094
    assert list(found["table4"].values()) == [32, 13, 34, 1, 34, 9]


def test_restrictions_narrow_what_is_counted_and_up_to_symmetry_does():
    everything = ask(kind="count", **HIGH_LEVEL).end["count"]
    page = ask(kind="mappings", **HIGH_LEVEL, limit=1)
    name, code = next(iter(page.items[0]["mapping"].items()))
    pinned = ask(kind="count", **HIGH_LEVEL, pin=[f"{name}={code}"]).end["count"]
    forbidden = ask(kind="count", **HIGH_LEVEL, forbid=[f"{name}={code}"]).end["count"]
    assert 0 < pinned < everything and pinned + forbidden == everything
    assert ask(kind="count", **HIGH_LEVEL, up_to_symmetry=True).end["count"] < everything


def test_samples_follow_their_seed():
    one = ask(kind="sample", **HIGH_LEVEL, count=5, seed=3)
    again = ask(kind="sample", **HIGH_LEVEL, count=5, seed=3)
    other = ask(kind="sample", **HIGH_LEVEL, count=5, seed=4)
    assert one.items == again.items != other.items
    assert len(one.items) == one.end["count"] == 5


FEW: dict[str, Any] = {
    "subject": {"text": ROWS},
    "pin": list(PINS),
}
FREE = {"launches": 1000.0, "waves": 0.0, "operations": 0.0, "private_accesses": 0.0,
        "spilled": 0.0, "local_bytes": 0.0, "global_bytes": 0.0, "lanes": 16}  # fmt: skip


def test_the_best_predicted_are_the_fastest_of_all_within_their_restrictions():
    found = ask(kind="best", **FEW, count=3)
    program = request_about(subject_of_text(ROWS, "", None), load_profile("pocl"), Mode.STRICT)
    restrictions = read_restrictions(program.space, FEW["pin"], (), ())
    with enumerate_assignments(narrowed(program.space, restrictions)) as every:
        times = sorted(
            time_ms for assignment in every
            if (time_ms := predicted_time_ms(program.subject, assignment, program.device,
                                             DeviceConstants())) is not None
        )  # fmt: skip
    assert [item["predicted_ms"] for item in found.items] == pytest.approx(times[:3], rel=0.011)
    assert found.end["proved"] and found.end["count"] == 3
    assert found.end["bound_ms"] <= times[0] and 0 <= found.end["gap"] < 0.011
    for item in found.items:
        item.pop("predicted_ms")
        assert check(program.space, assignment_from_json(program.space, item)) == ()
    free = ask(kind="best", **FEW, count=1, constants=FREE)
    assert free.items[0]["predicted_ms"] == pytest.approx(0.001)


def test_the_best_predicted_are_answered_before_the_child_is_ended(monkeypatch):
    given: list[float | None] = []

    def stopped(request, count, constants, seed, watch):
        given.append(watch.limits.time_s)
        return BestPredicted((), 0.0, False, 0)

    monkeypatch.setattr(kinds, "best_of_request", stopped)
    for wall_s in (2.0, 300.0):
        end = ask(kind="best", **FEW, limits={"wall_s": wall_s}).end
        assert (end["count"], end["bound_ms"], end["proved"]) == (0, None, False)
    assert given == [pytest.approx(1.6), pytest.approx(295.0)]


def test_preferences_order_what_is_listed():
    page = ask(kind="mappings", **HIGH_LEVEL, limit=1).items[0]
    name, code = list(page["mapping"].items())[-1]
    codes = {i["mapping"][name] for i in ask(kind="mappings", **HIGH_LEVEL, limit=50).items}
    wanted = max(codes)
    best = ask(kind="mappings", **HIGH_LEVEL, limit=3, prefer=[f"{name}={wanted}"])
    assert {item["mapping"][name] for item in best.items} == {wanted}
    assert code in codes


def test_the_waterfall_ends_at_the_number_of_mappings():
    found = ask(kind="waterfall", **HIGH_LEVEL)
    steps = found.items
    assert [step["before"] for step in steps[1:]] == [step["after"] for step in steps[:-1]]
    assert all(step["after"] <= step["before"] for step in steps)
    assert steps[-1]["after"] == ask(kind="count", **HIGH_LEVEL).end["count"]
    assert found.end["complete"] and found.progress[-1]["done"] == len(steps)


def test_constraints_say_where_they_come_from():
    found = ask(kind="constraints", **HIGH_LEVEL)
    assert len(found.items) == sum(found.end["constraints"].values()) + sum(
        found.end["preferences"].values()
    )
    assert all(c["provenance"] and c["sentence"] and c["rule"] for c in found.items)


def test_a_broken_mapping_is_explained_with_the_nearest_valid_one(space):
    mapping = ask(kind="mappings", **HIGH_LEVEL, limit=1).items[0]["mapping"]
    assert ask(kind="check", **HIGH_LEVEL, mapping={"mapping": mapping}).end["valid"] is True
    broken = dict.fromkeys(mapping, 30)
    verdict = ask(kind="check", **HIGH_LEVEL, mapping={"mapping": broken}).end
    assert verdict["valid"] is False and verdict["violations"]
    nearest = assignment_from_json(space, verdict["nearest"]["assignment"])
    assert check(space, nearest) == ()


def test_an_empty_space_is_explained_minimally():
    page = ask(kind="mappings", **HIGH_LEVEL, limit=1).items[0]
    pins = [f"{name}=0" for name in page["mapping"]]
    whole = ask(kind="explain", **HIGH_LEVEL).end
    assert (whole["empty"], whole["conflict"]) == (False, None)
    conflict = ask(kind="explain", **HIGH_LEVEL, pin=pins).end["conflict"]
    assert conflict["minimal"] and conflict["parts"]
    problem = ask(kind="mappings", **HIGH_LEVEL, pin=pins).problem
    assert problem["type"] == "unsatisfiable" and problem["conflict"]["parts"]


def test_kernels_are_those_of_the_library(space):
    chosen = ask(kind="mappings", **HIGH_LEVEL, limit=1).items[0]
    chosen.pop("number")
    found = ask(kind="kernel", **HIGH_LEVEL, mapping=chosen).end
    subject = load_subject("vgg16/7", "high-level")
    assignment = assignment_from_json(space, chosen)
    request = request_about(subject, load_profile("mali-g72"), Mode.STRICT)
    plan = generate_kernels(subject, assignment, checked_facts(request, assignment))
    assert "checked: " in plan.source
    assert found["source"] == plan.source
    assert found["memory"] == {"bytes": plan.memory_bytes, "extra_bytes": plan.extra_bytes}
    assert {**found["plan"], "source": plan.source} == plan.to_json()
    assert found["facts"]["program"] == subject.hash()
    invalid = ask(
        kind="kernel", **HIGH_LEVEL, mapping={"mapping": dict.fromkeys(chosen["mapping"], 30)}
    )
    assert invalid.problem["type"] == "invalid-mapping" and invalid.problem["violations"]


def test_a_tuning_space_is_listed_counted_and_has_no_kernel():
    about: dict[str, Any] = {"subject": {"document": SMALL_SPACE}}
    assert ask(kind="count", **about).end["count"] == len(ask(kind="mappings", **about).items)
    problem = ask(kind="kernel", **about).problem
    assert problem["type"] == "invalid-input" and "tuning space" in problem["detail"]


def test_a_subject_is_described_with_its_nests_and_variables():
    found = ask(kind="describe", **HIGH_LEVEL)
    assert found.end["hash"] == load_subject("vgg16/7", "high-level").hash()
    assert found.end["variants"]["direct"] is None
    maps = [item["id"] for kernel in found.end["kernels"] for item in _all_maps(kernel["maps"])]
    named = [variable["name"] for variable in found.items if variable["kind"] == "map"]
    assert sorted(map(str, maps)) == sorted(named)


def _all_maps(maps: list[Any]) -> list[Any]:
    return [item for one in maps for item in (one, *_all_maps(one["nested"]))]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"kind": "sing"}, "/kind"),
        ({"kind": "count"}, "/subject"),
        ({"kind": "count", "subject": {"name": "vgg16/7"}, "colour": 1}, "/colour"),
        ({"kind": "count", "subject": {"name": "/etc/passwd"}}, "/subject/name"),
        ({"kind": "count", "subject": {"path": "/etc/passwd"}}, "/subject"),
        ({"kind": "count", "subject": {"document": {}}}, "/subject/document"),
        ({"kind": "count", "subject": {"text": ""}}, "/subject/text"),
        ({"kind": "count", **HIGH_LEVEL, "variant": "sideways"}, "/variant"),
        ({"kind": "count", **HIGH_LEVEL, "device": {"name": "x"}}, "/device/max_alloc_bytes"),
        ({"kind": "count", **HIGH_LEVEL, "mode": "loose"}, "/mode"),
        ({"kind": "count", **HIGH_LEVEL, "joint": 1}, "/joint"),
        ({"kind": "count", **HIGH_LEVEL, "limits": {"wall_s": -1}}, "/limits/wall_s"),
        ({"kind": "mappings", **HIGH_LEVEL, "limit": 0}, "/limit"),
        ({"kind": "mappings", **HIGH_LEVEL, "after": 2**63 - 1}, "/after"),
        ({"kind": "sample", **HIGH_LEVEL, "count": 10**9}, "/count"),
        ({"kind": "count", **HIGH_LEVEL, "prefer": ["28=W0"]}, "/prefer"),
        ({"kind": "count", "subject": {"document": SMALL_SPACE}, "stratify": True}, "/stratify"),
        ({"kind": "check", **HIGH_LEVEL, "mapping": {"mapping": {"x": 1}}}, "/mapping/mapping/x"),
        ({"kind": "check", **HIGH_LEVEL, "mapping": []}, "/mapping"),
        ({"kind": "best", **FEW, "count": 1_001}, "/count"),
        ({"kind": "best", **FEW, "seed": -1}, "/seed"),
        ({"kind": "best", **FEW, "constants": {"waves": 1.0}}, "/constants"),
        ({"kind": "best", **FEW, "constants": FREE | {"waves": -1.0}}, "/constants"),
        ({"kind": "best", "subject": FEW["subject"], "prefer": ["A=W0"]}, "/prefer"),
        ({"kind": "best", "subject": FEW["subject"], "mode": "paper"}, "/mode"),
        ({"kind": "best", "subject": {"document": SMALL_SPACE}}, "/subject"),
        ({"kind": "best", **PAPER_TREE}, "/subject"),
    ],
)
def test_what_is_wrong_with_a_request_is_named_with_its_place(request_, field):
    problem = ask(**request_).problem
    assert problem["type"] in ("malformed-request", "invalid-input")
    assert field in [found["field"] for found in problem["problems"]]
    assert "ends" not in problem


def test_sizes_that_no_device_has_are_refused_before_they_make_a_domain():
    profile = {**json.loads(json.dumps(_profile())), "max_work_group_size": 2**60}
    problem = ask(kind="count", **{**HIGH_LEVEL, "device": profile}).problem
    assert problem["problems"][0]["field"] == "/device/max_work_group_size"


def _profile() -> dict[str, Any]:
    from mapper.profiles import profile_to_json

    return profile_to_json(load_profile("mali-g72"))


@pytest.mark.parametrize(
    "line",
    [b"nonsense\n", b"[1]\n", b"\xff\xfe\n", b'{"id": 1e999}\n', b"[" * 100_000 + b"\n",
     b'{"kind": "count", "kind": "count"}\n', b'{"id": {"a": 1}, "kind": "count"}\n'],
)  # fmt: skip
def test_a_line_that_is_no_request_gets_a_problem(line):
    assert ask_line(line).problem["type"] in ("malformed-request", "invalid-input")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KINDS = ("describe", "constraints", "mappings", "count", "sample", "best", "check", "explain",
         "kernel")  # fmt: skip
FIELDS = ("variant", "device", "mode", "pin", "forbid", "prefer", "limit", "after", "count", "seed",
          "joint", "stratify", "mapping", "nearest", "limits", "up_to_symmetry",
          "constants")  # fmt: skip


@settings(max_examples=60)
@given(kind=st.sampled_from(KINDS), field=st.sampled_from(FIELDS), value=JSON, subject=JSON)
def test_no_value_of_any_field_is_more_than_a_problem(kind, field, value, subject):
    for request in (
        {"kind": kind, "subject": {"document": SMALL_SPACE}, field: value},
        {"kind": kind, "subject": subject},
        {"kind": kind, "subject": {"document": subject}},
    ):
        reply = ask(**request)
        assert (reply.end is None) != (reply.problem is None)
        assert reply.problem is None or reply.problem["type"] != "internal", reply.problem
