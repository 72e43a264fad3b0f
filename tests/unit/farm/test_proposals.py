"""The next candidates of a run: the same whoever proposes, and whoever was faster."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer
from mapper.profiles import load_profile
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.tasks import proposals
from nestmap.tasks.run_requests import read_run
from nestmap.tuning.sketch_subjects import possible_subjects
from tests.unit.farm.simulated_boards import FACTS, LAYER, recorded
from tests.unit.tasks.child_replies import ask, fresh
from worker.measuring.wire import outcome_to_json

RUN = {"subject": {"document": LAYER}, "variants": ["high-level"], "seed": 5}


def propose(
    spool: Path, kept: Any = None, state: Any = None, measured: Any = (), **more: Any
) -> Any:
    reply = ask(
        kept, kind="propose", run_id="run", run={**RUN, **more.pop("run", {})},
        device={"profile": "pocl", "facts": FACTS}, count=more.pop("count", 3),
        spool=str(spool), history={
            "state": state or {}, "measured": list(measured), "earlier": more.pop("earlier", []),
            "best": more.pop("best", []),
        }, **more,
    )  # fmt: skip
    assert reply.problem is None, reply.problem
    return [i["candidate"] for i in reply.items if "candidate" in i], reply


def ids(candidates: list[Any]) -> list[str]:
    return [candidate["payload"]["candidate"] for candidate in candidates]


def outcomes(candidates: list[Any]) -> list[Any]:
    return [
        [c["study"], name, outcome_to_json(recorded(name))]
        for c, name in zip(candidates, ids(candidates), strict=True)
    ]


@pytest.mark.parametrize("strategy", ["guided", "analytic", "random"])
def test_a_child_that_knows_nothing_goes_on_like_one_that_was_there_all_along(
    tmp_path: Path, strategy: str
):
    kept, state, run = fresh(), None, {"strategy": strategy}
    measured: list[Any] = []
    for _ in range(3):
        candidates, reply = propose(tmp_path, kept, state, measured, run=run)
        # Somebody else, asked the same, who has to go through everything again.
        again, other = propose(tmp_path, fresh(), state, measured, run=run)
        assert ids(candidates) == ids(again)
        assert reply.end == other.end
        state = reply.end["state"]
        measured += outcomes(candidates)
    assert state is not None and state["batches"] == [3, 3, 3]
    assert len({name for _, name, _ in measured}) == 9


def test_what_the_model_learned_is_the_same_whoever_proposes(tmp_path: Path):
    """So many that candidates are the model's choice, by children with different pasts."""
    there_all_along, there_at_first = fresh(), fresh()
    state: Any = None
    measured: list[Any] = []
    candidates: list[Any] = []
    for number in range(4):
        if number < 2:
            propose(tmp_path, there_at_first, state, measured, count=8)
        candidates, reply = propose(tmp_path, there_all_along, state, measured, count=8)
        if number < 3:
            state = reply.end["state"]
            measured += outcomes(candidates)
    measured_otherwise = [
        [study, name, {**outcome, "trials_ns": [10**8 - t for t in outcome["trials_ns"]]}]
        for study, name, outcome in measured
    ]
    late, _ = propose(tmp_path, there_at_first, state, measured, count=8)
    new, _ = propose(tmp_path, fresh(), state, measured, count=8)
    assert ids(candidates) == ids(late) == ids(new)
    # And they are its choice: other outcomes give others.
    others, _ = propose(tmp_path, fresh(), state, measured_otherwise, count=8)
    assert ids(others) != ids(new)


def test_a_run_begins_with_what_was_fast_in_an_earlier_run_of_the_layer(tmp_path: Path):
    kept = fresh()
    late = propose(tmp_path, run={"strategy": "random", "seed": 9}, count=8)[0][-1]
    chosen = {name: late["record"][name] for name in ("mapping", "parameters", "local_sizes")}
    best = [{"variant": "high-level", "chosen": chosen, "time_ms": 1.0}]
    first, reply = propose(tmp_path, kept, best=best)
    assert ids(first)[0] == ids([late])[0]
    # What it begins with is settled then, whoever makes the next proposal.
    state = reply.end["state"]
    there, _ = propose(tmp_path, kept, state, outcomes(first))
    new, _ = propose(tmp_path, fresh(), state, outcomes(first))
    assert ids(there) == ids(new)


_STUDIED: dict[str, Any] = {}


def test_what_a_run_states_holds_of_every_candidate(tmp_path: Path):
    stated = {"where": ["code(row) == G0", "local_size(convolution, 0) <= 4"], "free_grid": True}
    candidates, _ = propose(tmp_path, run={**stated, "strategy": "random"}, count=6)
    assert len(candidates) == 6
    for candidate in candidates:
        assert candidate["record"]["mapping"]["row"] == 30
        assert candidate["record"]["local_sizes"]["convolution"][0] <= 4
    problem = ask(
        None, kind="propose", run_id="run", run={**RUN, "where": ["raw == 1"]}, count=1,
        device={"profile": "pocl", "facts": FACTS}, spool=str(tmp_path), history={},
    ).problem  # fmt: skip
    assert problem["problems"][0]["field"].endswith("/where/0")


def earlier_study(spool: Path, layer: dict[str, Any], slower: float) -> dict[str, Any]:
    """20 candidates of another run, enough for a tree to split; times are powers of work-items."""
    name = layer["name"]
    if name not in _STUDIED:
        run = {"subject": {"document": layer}, "strategy": "random"}
        candidates, reply = propose(spool, run=run, count=20)
        _STUDIED[name] = candidates, reply.end["studies"][0]
    candidates, study = _STUDIED[name]
    return {
        "name": "earlier/high-level", "program": study["program"], "mode": "strict",
        "measured": [
            [
                {name: c["record"][name] for name in ("mapping", "parameters", "local_sizes")},
                work_items(c) ** slower,
            ]
            for c in candidates
        ],
    }  # fmt: skip


def work_items(candidate: Any) -> float:
    launches = candidate["payload"]["plan"]["launches"]
    return float(sum(prod(launch["global_size"]) for launch in launches))


def test_a_run_with_transfer_begins_with_what_was_fast_on_other_layers(tmp_path: Path):
    wide = {**LAYER, "name": "wide", "height": 9, "width": 9}
    asked: dict[str, Any] = {"run": {"transfer": True}, "count": 3}
    few_fast, many_fast = (earlier_study(tmp_path, wide, slower) for slower in (1.0, -1.0))
    few, _ = propose(tmp_path, **asked, earlier=[few_fast])
    again, _ = propose(tmp_path, **asked, earlier=[few_fast])
    assert ids(few) == ids(again)
    many, _ = propose(tmp_path, **asked, earlier=[many_fast])
    # Of the first candidates every other one is by what was learned.
    assert sum(map(work_items, few[::2])) < sum(map(work_items, many[::2]))


def test_a_run_with_transfer_fails_where_only_its_own_layer_was_measured(tmp_path: Path):
    problem = ask(
        None, kind="propose", run_id="run", run={**RUN, "transfer": True}, spool=str(tmp_path),
        device={"profile": "pocl", "facts": FACTS},
        history={"earlier": [earlier_study(tmp_path, LAYER, 1.0)]},
    ).problem  # fmt: skip
    assert "too few of any layer to learn from" in problem["problems"][0]["message"]


def test_the_analytic_strategy_begins_with_what_it_predicts(tmp_path: Path):
    guided, analytic = (
        ids(propose(tmp_path, run={"strategy": strategy}, count=4)[0])
        for strategy in ("guided", "analytic")
    )
    assert guided != analytic


def test_a_run_keeps_its_variants_whatever_records_are_shipped_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Outcomes are kept by the places of variants, which a new record would have changed."""
    of_the_device: dict[str, Any] = {"run": {"variants": None}, "count": 2}
    written = subject_of_layer(LayerSpec.from_json(dict(LAYER)), LAST_RESORT)
    found = possible_subjects(written, load_profile("pocl"))[:2]
    names = [one.variant for one in found]
    monkeypatch.setattr(proposals, "tuned_subjects", lambda *_: found)
    first, reply = propose(tmp_path, **of_the_device)
    state, measured = reply.end["state"], outcomes(first)
    assert state["variants"] == names
    expected, undisturbed = propose(tmp_path, None, state, measured, **of_the_device)
    monkeypatch.setattr(proposals, "tuned_subjects", lambda *_: found[::-1])
    found_again, other = propose(tmp_path, None, state, measured, **of_the_device)
    assert [study["variant"] for study in other.end["studies"]] == names
    assert ids(found_again) == ids(expected) and other.end == undisturbed.end


@pytest.mark.parametrize(
    ("changed", "path", "message"),
    [
        ({"programs": ["0" * 64]}, "/history/state/programs", "another version of nestmap"),
        ({"variants": [7]}, "/history/state/variants", "not variants"),
        ({"variants": [[]]}, "/history/state/variants", "not variants"),
        ({"variants": ["direct"] * 25}, "/history/state/variants", "not variants"),
    ],
)
def test_a_run_does_not_go_on_with_other_programs_than_it_was_begun_with(
    tmp_path: Path, changed: dict[str, Any], path: str, message: str
):
    _, reply = propose(tmp_path)
    problem = ask(
        None, kind="propose", run_id="run", run=RUN, spool=str(tmp_path),
        device={"profile": "pocl", "facts": FACTS},
        history={"state": reply.end["state"] | changed},
    ).problem  # fmt: skip
    (found,) = problem["problems"]
    assert found["field"] == path and message in found["message"]


def test_candidates_do_not_depend_on_what_of_the_last_batch_is_measured(tmp_path: Path):
    first, reply = propose(tmp_path)
    state = reply.end["state"]
    everything, _ = propose(tmp_path, None, state, outcomes(first))
    nothing, _ = propose(tmp_path, None, state, [])
    assert ids(everything) == ids(nothing)


def test_another_seed_gives_other_candidates(tmp_path: Path):
    assert ids(propose(tmp_path)[0]) != ids(propose(tmp_path, run={"seed": 6})[0])


def test_inputs_are_written_once_a_run_and_sources_with_each_candidate(tmp_path: Path):
    first, one = propose(tmp_path)
    hashes = {item["artifact"]["hash"] for item in one.items if "artifact" in item}
    assert {name for c in first for name in c["artifacts"]} == hashes
    assert hashes == {path.name for path in tmp_path.iterdir()}
    later = tmp_path / "later"
    later.mkdir()
    second, _ = propose(later, None, one.end["state"], outcomes(first))
    workload = set(first[0]["artifacts"][1:])
    assert workload <= set(second[0]["artifacts"])
    assert workload.isdisjoint(path.name for path in later.iterdir())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"run": {**RUN, "seed": -1}}, "/run/seed"),
        ({"run": {**RUN, "transfer": "yes"}}, "/run/transfer"),
        ({"run": {**RUN, "transfer": True, "strategy": "random"}}, "/run/transfer"),
        ({"run": {**RUN, "protocol": {"warmup": "two"}}}, "/run/protocol/warmup"),
        ({"run": {**RUN, "timeout_s": 0}}, "/run/timeout_s"),
        ({"device": {"facts": {"device.name": "unheard of"}}}, "/device/profile"),
        ({"history": {"measured": [[9, "x", {}]]}}, "/history/measured/0"),
        ({"history": {"earlier": [{"name": "x"}]}}, "/history/earlier/0"),
        ({"history": {"state": {"batches": "many"}}}, "/history/state/batches"),
        ({"spool": "/nowhere/at/all"}, "/spool"),
    ],
)
def test_what_is_wrong_with_a_proposal_is_named(tmp_path: Path, change: dict[str, Any], field: str):
    request = {
        "kind": "propose", "run_id": "run", "run": RUN, "spool": str(tmp_path),
        "device": {"profile": "pocl", "facts": FACTS}, **json.loads(json.dumps(change)),
    }  # fmt: skip
    problem = ask(None, **request).problem
    assert field in [found["field"] for found in problem["problems"]]


EXAMPLES = Path(__file__).parents[3] / "examples"
#: 64 x 64 x 32: has sketches, and is small.
PRODUCT = {"subject": {"text": (EXAMPLES / "product.txt").read_text()}, "variants": None}


def test_a_program_is_proposed_under_its_sketches_and_as_it_is_written(tmp_path: Path):
    kept, state, end = fresh(), dict[str, Any](), dict[str, Any]()
    measured: list[Any] = []
    for _ in range(3):
        candidates, reply = propose(tmp_path, kept, state, measured, run=PRODUCT)
        again, other = propose(tmp_path, fresh(), state, measured, run=PRODUCT)
        assert ids(candidates) == ids(again)
        assert reply.end == other.end
        end, state = reply.end, reply.end["state"]
        measured += outcomes(candidates)
        # All compute the same: one reference for all of them.
        assert len(state["workloads"]) == 1
    names = state["variants"]
    assert len(names) > 3
    assert names[-1] is None
    assert [study["variant"] for study in end["studies"]] == [*names[:-1], ""]
    schemas = {study["program_schema"] for study in end["studies"]}
    assert schemas == {"nestmap/scheduled/1", "nestmap/program/1"}
    # What the first proposals bring has a schedule.
    assert all(names[study] is not None for study, _, _ in measured[:3])


CPU = {"profile": "pocl", "facts": {"device.kind": "cpu", "platform.version": "PoCL 5.0"}}


def propose_a_layer(spool: Path, kept: Any, state: Any, measured: Any, **run: Any) -> Any:
    reply = ask(
        kept, kind="propose", run_id="run", device=CPU, count=3, spool=str(spool),
        run={"subject": {"document": LAYER}, "seed": 5, **run},
        history={"state": state, "measured": measured, "earlier": [], "best": []},
    )  # fmt: skip
    assert reply.problem is None, reply.problem
    return [i["candidate"] for i in reply.items if "candidate" in i], reply.end


def test_a_layer_is_proposed_under_its_sketches(tmp_path: Path):
    kept, state, measured = fresh(), dict[str, Any](), list[Any]()
    for _ in range(3):
        candidates, end = propose_a_layer(tmp_path, kept, state, measured)
        again, other = propose_a_layer(tmp_path, fresh(), state, measured)
        assert ids(candidates) == ids(again)
        assert end == other
        state = end["state"]
        measured += outcomes(candidates)
        # The layer's own reference, whatever its sketch.
        assert len(state["workloads"]) == 1
    assert len(state["variants"]) > 3
    assert not {*state["variants"]} & {*VARIANTS} - {LAST_RESORT}
    sketch = state["variants"][measured[0][0]]
    # By its name alone, too.
    candidates, end = propose_a_layer(tmp_path, fresh(), {}, [], variants=[sketch])
    (study,) = end["studies"]
    assert (study["variant"], study["program_schema"]) == (sketch, "nestmap/scheduled/1")
    assert len(candidates) == 3


def test_what_speaks_of_a_layer_s_own_names_leaves_it_in_the_papers_variants(tmp_path: Path):
    _, end = propose_a_layer(tmp_path, fresh(), {}, [], mode="paper")
    assert end["state"]["variants"] == ["direct", "partial"]


@pytest.mark.parametrize("kind", ["cpu", "gpu", "null"])
@pytest.mark.parametrize("named", [{}, {"mode": "paper"}, {"pin": ["rho=0"]}])
@pytest.mark.parametrize("groups", [1, 4])
def test_a_run_begins_in_the_papers_variants_where_they_are_meant(
    kind: str, named: Any, groups: int
):
    """Else nothing is said of its variants: its first proposal looks for sketches. An invented
    device has no use for these."""
    run = {"subject": {"document": {**LAYER, "groups": groups}}, **named}
    found = read_run(run, {"device.kind": kind}).variants
    papers = ("direct", "partial") if groups == 1 else (LAST_RESORT,)
    assert found == (papers if named or kind == "null" else ())


@pytest.mark.parametrize("named", [{"mode": "paper"}, {"pin": ["row=W0"]}])
def test_what_speaks_of_a_program_s_own_names_leaves_it_as_it_is_written(
    tmp_path: Path, named: Any
):
    _, reply = propose(tmp_path, fresh(), run={**PRODUCT, **named})
    assert reply.end["state"]["variants"] == [None]


def test_a_sketch_that_a_program_does_not_have_is_refused_with_those_that_it_has(tmp_path: Path):
    reply = ask(
        fresh(), kind="propose", run_id="run", run={**RUN, **PRODUCT, "variants": ["no-such"]},
        device={"profile": "pocl", "facts": FACTS}, count=3, spool=str(tmp_path), history={},
    )  # fmt: skip
    assert reply.problem is not None
    (error,) = reply.problem["problems"]
    assert error["found"] == "no-such"
    assert "as-is" in error["allowed"]


GONE = "tiled"


@pytest.mark.parametrize(
    ("run", "state"),
    [
        ({"variants": ["high-level", GONE]}, {}),
        # One that was begun before, with these variants or with what was chosen then.
        ({"variants": [GONE]}, {"programs": ["0" * 64], "batches": [3]}),
        ({"variants": None}, {"variants": [GONE], "programs": ["0" * 64], "batches": [3]}),
    ],
    ids=["new", "begun", "begun with what was chosen"],
)
def test_a_run_in_a_variant_that_is_gone_is_refused_with_those_that_there_are(
    tmp_path: Path, run: Any, state: Any
):
    reply = ask(
        fresh(), kind="propose", run_id="run", run={**RUN, **run}, device=CPU, count=3,
        spool=str(tmp_path), history={"state": state, "measured": []},
    )  # fmt: skip
    assert reply.problem is not None and reply.problem["type"].endswith("invalid-input")
    (error,) = reply.problem["problems"]
    assert error["found"] == GONE
    assert {*VARIANTS, "tile-filter"} <= {*error["allowed"].split(", ")}


def test_what_was_fast_in_a_variant_that_is_gone_is_no_start_and_stops_nothing(tmp_path: Path):
    best = [{"variant": GONE, "chosen": {"mapping": {"1": 20}}, "time_ms": 0.1}]
    found, _ = propose(tmp_path, best=best)
    assert ids(found) == ids(propose(tmp_path)[0])
