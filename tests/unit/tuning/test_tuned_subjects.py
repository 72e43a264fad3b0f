"""A layer is tuned under the sketches of the program that it is: by records, or by their names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from db.store import Store
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.layer_sets import layer_of_name
from mapper.pipeline import (
    Subject,
    assignment_from_json,
    assignment_to_json,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.space import Space, check
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.cli import app
from nestmap.stated import NOTHING_STATED
from nestmap.tuning import part_search
from nestmap.tuning.record_subjects import as_earlier, is_of, schedule_of, subject_of_record
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sketch_subjects import as_written, layer_in, possible_subjects, with_suits
from nestmap.tuning.starting_points import source_of
from nestmap.tuning.store_records import records_of_store
from nestmap.tuning.tuned_subjects import tuned_subjects
from nestmap.tuning.tuner import Tuner
from nestmap.tuning.valid_records import plan_of
from tests.unit.tuning.fakes import ScriptedDevice
from tests.unit.tuning.records import SMALL, record
from worker.devices.null import NULL_PROFILE

FIRST = subject_of_layer(SMALL, LAST_RESORT)
GPU = {"device.kind": "gpu", "device.name": "Some GPU"}
CPU = {"device.kind": "cpu", "platform.version": "PoCL"}
MALI = {"device.kind": "gpu", "device.name": "Mali-G72"}
H200, POCL, G72 = load_profile("h200"), load_profile("pocl"), load_profile("mali-g72")
VGG = layer_of_name("vgg16/7")
SKETCH = "tile-filter"


@pytest.mark.parametrize(
    ("facts", "device", "first"),
    [
        (CPU, POCL, ["blocks-filter", SKETCH]),
        (GPU, H200, ["blocks-filter", "blocks-local-filter", SKETCH]),
    ],
)
def test_what_a_layer_has_records_of_comes_first(
    facts: dict[str, str], device: DeviceProfile, first: list[str]
) -> None:
    own = (
        record(variant=SKETCH, time_ms=2.0),
        record(variant="blocks-filter", time_ms=1.0),
        record(variant="blocks-local-filter", time_ms=1.5),
        # Of a sketch and of a variant that other releases have.
        record(variant="of-another-release", time_ms=0.2),
        record(variant="tiled-slices", time_ms=0.1),
        record(variant="blocks-packed-filter", time_ms=0.5, layer=VGG),
    )
    names = [s.variant for s in tuned_subjects(FIRST, None, facts, device, own)]
    assert names[: len(first)] == first
    usual = [s.variant for s in possible_subjects(FIRST, device)]
    assert names[len(first) :] == [name for name in usual if name not in first]


def test_on_a_mali_the_papers_variants_come_before_the_sketches() -> None:
    sketches = [s.variant for s in possible_subjects(FIRST, G72)]
    assert len(sketches) > 3
    names = [s.variant for s in tuned_subjects(FIRST, None, MALI, G72)]
    assert names == ["direct", "partial", *sketches]
    # What there are records of comes first there, too.
    own = (record(variant=SKETCH),)
    names = [s.variant for s in tuned_subjects(FIRST, None, MALI, G72, own)]
    others = [name for name in sketches if name != SKETCH]
    assert names == [SKETCH, "direct", "partial", *others]


def test_an_invented_device_has_the_papers_variants_alone() -> None:
    facts = {"device.kind": "null"}
    found = tuned_subjects(FIRST, None, facts, NULL_PROFILE)
    assert [s.variant for s in found] == ["direct", "partial"]
    depthwise = replace(SMALL, groups=SMALL.channels, filters=SMALL.channels)
    found = tuned_subjects(subject_of_layer(depthwise, LAST_RESORT), None, facts, NULL_PROFILE)
    assert [s.variant for s in found] == [LAST_RESORT]


def test_variants_and_sketches_are_asked_for_by_name() -> None:
    names = [SKETCH, "direct", SKETCH]
    found = tuned_subjects(FIRST, names, CPU, POCL)
    assert [s.variant for s in found] == [SKETCH, "direct"]


@pytest.mark.parametrize("name", ["nonsense", "tiled"])
def test_a_name_that_no_variant_or_sketch_has_is_refused_with_those_that_there_are(
    name: str,
) -> None:
    with pytest.raises(InputError) as caught:
        tuned_subjects(FIRST, [SKETCH, name], CPU, POCL)
    (problem,) = caught.value.problems
    assert problem.found == name
    assert {*VARIANTS, SKETCH} <= {*problem.allowed.split(", ")}


def test_a_layer_under_a_sketch_computes_what_the_layer_does() -> None:
    subject = layer_in(SMALL, SKETCH, POCL)
    assert subject.scheduled is not None
    assert as_written(subject).to_json() == FIRST.to_json()
    # Packing them is done once, before any run.
    assert subject.require_program().constants == ("weights",)


def test_what_was_found_under_a_sketch_is_a_record_and_a_start(tmp_path: Path) -> None:
    subject = layer_in(SMALL, SKETCH, NULL_PROFILE)
    with Store.open(tmp_path / "store.sqlite3") as store:
        result = tune((subject,), ScriptedDevice(), store, seed=1, budget=Budget(6))
        records = records_of_store(store, SMALL)
    fastest = min(records, key=lambda one: one.time_ms)
    assert {one.variant for one in records} == {SKETCH}
    assert all(is_of(one, subject) and one.schedule is not None for one in records)
    assert fastest.time_ms == result.front[0].time_ms
    facts = ScriptedDevice().facts()
    options = with_suits(subject, NOTHING_STATED.options)
    space = derive_space(subject, Mode.STRICT, NULL_PROFILE, options)
    source = source_of(subject, space, NULL_PROFILE, facts, subject.hash(), own=(record(), fastest))
    assert len(source.known) == 1 and not check(space, source.known[0])
    tuner = Tuner((source,), NULL_PROFILE, seed=7)
    first, *others = tuner.ask(5)
    assert first.assignment == source.known[0]
    assert all(candidate.id != first.id for candidate in others)


def test_what_was_measured_under_a_sketch_of_another_release_stays_beside_todays() -> None:
    today = layer_in(SMALL, SKETCH, H200)
    schedule = schedule_of(today)
    assert schedule is not None
    other = {**schedule, "steps": schedule["steps"][:-1]}
    before = subject_of_record(record(variant=SKETCH, schedule=other), H200)
    assert before.scheduled is not None and before.layer == SMALL
    space = derive_space(before, Mode.STRICT, H200, with_suits(before, NOTHING_STATED.options))
    choices = assignment_to_json(SuitedSpace(space).draw_joint(Random(2)) or {})
    theirs = record(variant=SKETCH, choices=choices, schedule=other, time_ms=1.0)
    ours = record(variant=SKETCH, schedule=schedule, time_ms=2.0)
    assert not is_of(theirs, today) and is_of(ours, today)

    first, second, *others = tuned_subjects(FIRST, None, GPU, H200, (theirs, ours))
    assert (first.variant, second.variant) == (f"{SKETCH}-earlier", SKETCH)
    assert f"{SKETCH}-earlier" not in {one.variant for one in others}
    assert isinstance(first, Subject) and as_earlier(first) == first
    facts = {**GPU, "device.target": ""}
    source = source_of(first, space, H200, facts, own=(theirs, ours))
    assert [assignment_to_json(one) for one in source.known] == [choices]
    made = generate_kernels(before, assignment_from_json(space, choices))
    assert plan_of(theirs, H200).source == made.source


def test_a_recorded_schedule_that_does_not_apply_is_left_out() -> None:
    schedule = schedule_of(layer_in(SMALL, SKETCH, H200))
    assert schedule is not None
    wrong = {**schedule, "steps": [{"primitive": "unroll", "name": "gone", "switch": "u"}]}
    lost = record(variant=SKETCH, schedule=wrong)
    assert "earlier" not in str([s.variant for s in tuned_subjects(FIRST, None, GPU, H200, [lost])])
    with pytest.raises(InputError):
        plan_of(lost, H200)


def test_commands_know_what_was_found_under_a_sketch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.json").write_text(json.dumps(SMALL.to_json()))

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            app(list(arguments))
        assert not stopped.value.code
        return capsys.readouterr().out

    device = ("--device", "null")
    found: dict[str, Any] = json.loads(
        run("tune", "small.json", "--variant", SKETCH, "--candidates", "3", "--json", *device)
    )
    entry = found["front"][0]
    assert entry["variant"] == SKETCH
    (row,) = json.loads(run("front", "small.json", "--json"))["points"][:1]
    assert row["candidate"] == entry["candidate"]
    Path("entry.json").write_text(json.dumps(entry))
    of_entry = run("kernel", "small.json", "entry.json", *device)
    best = run("kernel", "small.json", "--best", *device)
    assert f"variant: {SKETCH}: a schedule of" in of_entry
    assert best.partition("launches:")[2] == of_entry.partition("launches:")[2]


def test_what_is_recorded_under_a_sketch_is_tried_before_anything_is_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = layer_in(SMALL, SKETCH, POCL)
    options = with_suits(subject, NOTHING_STATED.options)
    space = derive_space(subject, Mode.STRICT, POCL, options)
    choices = assignment_to_json(SuitedSpace(space).draw_joint(Random(1)) or {})
    subjects = (subject, subject_of_layer(SMALL, "direct"))
    sources = [
        source_of(one, space_of(one), POCL, CPU, one.hash(), index=k,
                  own=(record(variant=SKETCH, choices=choices),))
        for k, one in enumerate(subjects)
    ]  # fmt: skip

    def solved(*_: object) -> SuitedSpace:
        raise AssertionError("a space is solved")

    monkeypatch.setattr(part_search, "solved", solved)
    (first,) = Tuner(sources, POCL).ask()
    assert first.subject.variant == SKETCH
    assert assignment_to_json(first.assignment) == choices


def space_of(subject: Subject) -> Space:
    return derive_space(subject, Mode.STRICT, POCL, with_suits(subject, NOTHING_STATED.options))
