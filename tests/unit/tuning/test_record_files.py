"""Tuning records: what is kept, what is refused, where files are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mapper.cpu_targets import vector_bits
from mapper.errors import InputError
from mapper.layer_sets import named_layer
from mapper.pipeline import assignment_to_json
from mapper.solver.sampling import sample
from mapper.tuning_records import (
    best_record,
    front_of,
    nearest,
    record_devices,
    record_from_json,
    records_from_json,
    records_to_json,
    shipped_records,
)
from nestmap.tuning import record_files
from nestmap.tuning.record_files import (
    device_folder,
    file_of,
    own_records,
    read_records,
    write_records,
)
from nestmap.tuning.valid_records import best_valid
from tests.spaces import derived
from tests.unit.tuning.records import SMALL, record
from worker.devices.null import NULL_PROFILE


def test_a_record_comes_back_from_its_json():
    kept = record()
    assert record_from_json(json.loads(json.dumps(kept.to_json()))) == kept


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"time_ms": float("nan")}, "/time_ms"),
        ({"time_ms": -1}, "/time_ms"),
        ({"trials": True}, "/trials"),
        ({"extra_bytes": 1.5}, "/extra_bytes"),
        ({"choices": {"mapping": [1]}}, "/choices"),
        ({"choices": {"mapping": {}, "code": {}}}, "/choices"),
        ({"choices": {"mapping": {"row": "S"}}}, "/choices"),
        ({"choices": {"mapping": {}, "local_sizes": {"k": [8]}}}, "/choices"),
        ({"choices": {"mapping": {}, "parameters": {"tm": None}}}, "/choices"),
        ({"device": 3}, "/device"),
        ({"schema": "nestmap/record/4"}, "/schema"),
        ({"schedule": []}, "/schedule"),
        ({"surplus": 1}, "/surplus"),
        ({"layer": "vgg16/0"}, "/layer"),
    ],
)
def test_a_malformed_field_is_named(change: dict[str, object], path: str):
    with pytest.raises(InputError) as caught:
        record_from_json({**record().to_json(), **change})
    assert [problem.path for problem in caught.value.problems] == [path]


def test_a_record_of_before_targets_were_stored_has_none():
    old = {**record().to_json(), "schema": "nestmap/record/1"}
    del old["target"]
    assert record_from_json(old) == record(target="")
    assert records_from_json({"schema": "nestmap/record/1", "records": [old]}) == (record(),)
    with pytest.raises(InputError, match="missing field"):
        record_from_json({**old, "schema": "nestmap/record/2"})


def test_a_record_carries_its_sketchs_schedule_since_the_third_schema():
    kept = record(schedule={"schema": "nestmap/schedule/1", "name": "mine", "steps": []})
    assert record_from_json(json.loads(json.dumps(kept.to_json()))) == kept
    assert "schedule" not in record().to_json()
    old = {**record().to_json(), "schema": "nestmap/record/2"}
    assert records_from_json({"schema": "nestmap/record/2", "records": [old]}) == (record(),)


def test_a_wrong_schedule_in_a_file_is_named(tmp_path: Path):
    wrong = record(schedule={"name": "mine", "steps": []})
    (tmp_path / "gpu").mkdir()
    text = json.dumps(records_to_json([record(), wrong]))
    (tmp_path / "gpu" / "layers.json").write_text(text)
    with pytest.raises(InputError) as caught:
        own_records(tmp_path, "gpu")
    assert [p.path for p in caught.value.problems] == [
        f"{tmp_path / 'gpu' / 'layers.json'}/records/1/schedule/schema"
    ]


def test_missing_fields_are_all_named():
    with pytest.raises(InputError) as caught:
        record_from_json({"schema": "nestmap/record/1", "time_ms": 1.0})
    assert {"/layer", "/choices", "/source_hash"} <= {p.path for p in caught.value.problems}


def test_another_file_is_no_file_of_records():
    for value in ([], {}, {"schema": "nestmap/record/1"}, {"schema": "x", "records": []}):
        with pytest.raises(InputError, match="no file of tuning records"):
            records_from_json(value)


def test_the_front_keeps_what_nothing_beats_in_time_and_memory():
    fast = record(time_ms=1.0, extra_bytes=100, source_hash="fast")
    lean = record(time_ms=3.0, extra_bytes=0, source_hash="lean")
    beaten = record(time_ms=2.0, extra_bytes=100, source_hash="beaten")
    also_beaten = record(time_ms=4.0, extra_bytes=0, source_hash="also beaten")
    elsewhere = record(layer=named_layer("vgg16/0"), time_ms=9.0, source_hash="elsewhere")
    found = front_of([beaten, lean, elsewhere, also_beaten, fast])
    assert found == (fast, lean, elsewhere)


def test_a_source_that_was_measured_again_counts_with_its_last_time():
    lucky = record(time_ms=1.0, source_hash="same")
    again = record(time_ms=1.5, source_hash="same")
    other = record(time_ms=1.2, source_hash="other")
    assert front_of([lucky, other, again]) == (other,)


def test_records_of_equal_layers_serve_each_other_whatever_they_are_called():
    kept = [record(layer=named_layer("vgg16/12"))]
    assert best_record(kept, named_layer("vgg16/14")) == kept[0]
    assert best_record(kept, named_layer("vgg16/10")) is None


def test_the_best_record_within_a_bound_on_memory():
    fast = record(time_ms=1.0, extra_bytes=100)
    lean = record(time_ms=3.0, extra_bytes=0)
    assert best_record([fast, lean], SMALL) == fast
    assert best_record([fast, lean], SMALL, 99) == lean
    assert best_record([fast], SMALL, 99) is None


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("skylake-avx512", "rocketlake"),
        ("haswell", "znver3"),
        ("znver2", "znver3"),
        # Of what it cannot compute with as it is only where there is nothing else.
        ("penryn", "rocketlake"),
        # Of a device without targets all are alike.
        ("", "rocketlake"),
    ],
)
def test_the_best_record_is_of_a_target_with_vectors_as_long(target: str, wanted: str):
    kept = [
        record(target="rocketlake", time_ms=1.0),
        record(target="znver3", time_ms=2.0),
        record(target="znver3", time_ms=3.0),
    ]
    found = best_record(kept, SMALL, target=target)
    assert found is not None and found.target == wanted


def test_records_of_the_very_target_go_before_faster_ones_of_another_processor():
    kept = [record(target="rocketlake", time_ms=2.0), record(target="icelake-client", time_ms=1.0)]
    assert nearest(kept, "rocketlake") == kept[:1]
    assert nearest(kept, "skylake-avx512") == kept


def test_where_none_has_vectors_as_long_shorter_ones_go_before_longer_ones():
    kept = [record(target="rocketlake", time_ms=1.0), record(target="penryn", time_ms=2.0)]
    assert nearest(kept, "haswell") == kept[1:]
    assert nearest(kept, "haswell")[:1] == nearest([*kept, record(target="")], "haswell")[:1]
    assert nearest(kept[:1], "haswell") == kept[:1]


def test_records_of_different_targets_do_not_push_each_other_out(tmp_path: Path):
    fast = record(target="rocketlake", time_ms=1.0)
    slow = replace(fast, target="haswell", time_ms=2.0)
    assert front_of([slow, fast]) == (slow, fast)
    write_records(tmp_path, "cpu", [fast, slow])
    again = replace(slow, time_ms=1.5)
    write_records(tmp_path, "cpu", [again])
    assert sorted(r.time_ms for r in read_records(tmp_path, "cpu")) == [1.0, 1.5]


def test_written_records_are_merged_with_what_is_in_the_file(tmp_path: Path):
    fast = record(time_ms=1.0, extra_bytes=100, source_hash="fast")
    lean = record(time_ms=3.0, extra_bytes=0, source_hash="lean", choices={"mapping": {}})
    vgg = record(layer=named_layer("vgg16/0"), source_hash="vgg")
    first = write_records(tmp_path, "gpu", [fast, vgg])
    assert [path.name for path in first] == ["layers.json", "vgg16.json"]
    write_records(tmp_path, "gpu", [lean])
    assert read_records(tmp_path, "gpu") == (fast, lean, vgg)
    assert read_records(tmp_path, "another") == ()
    assert json.loads(first[0].read_text()) == records_to_json([fast, lean])


def test_what_is_shipped_has_the_figures_of_the_folder_once_it_was_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a quiet minute it was faster than anything is now: it would win for ever."""
    shipped = record(time_ms=1.0, source_hash="shipped")
    monkeypatch.setattr(record_files, "shipped_records", lambda _: (shipped,))
    better = record(time_ms=1.3, source_hash="better", choices={"mapping": {}})
    again = replace(shipped, time_ms=1.4)
    write_records(tmp_path, "gpu", [again, better])
    assert best_record(read_records(tmp_path, "gpu"), SMALL) == better
    # Another search's records do not push it out of the file.
    write_records(tmp_path, "gpu", [replace(better, time_ms=1.2)])
    assert [r.time_ms for r in read_records(tmp_path, "gpu")] == [1.4, 1.2]
    # What is not shipped, and is beaten, is.
    beaten = record(time_ms=1.5, source_hash="x", choices={"mapping": {"2": 1}})
    write_records(tmp_path, "gpu", [beaten])
    assert len(read_records(tmp_path, "gpu")) == 2


def test_a_mapping_of_which_another_source_is_made_now_has_todays_time(tmp_path: Path):
    before = record(time_ms=1.0, source_hash="of the old generator")
    write_records(tmp_path, "gpu", [before])
    today = record(time_ms=1.4, source_hash="of the new one")
    write_records(tmp_path, "gpu", [today])
    assert read_records(tmp_path, "gpu") == (today,)


def test_a_record_that_is_not_valid_any_more_does_not_hide_one_that_is():
    wanted = derived(SMALL, "direct", NULL_PROFILE)
    (drawn,) = sample(wanted.space, 1, 1)
    valid = record(choices=assignment_to_json(drawn), time_ms=2.0, extra_bytes=0)
    stale = record(time_ms=1.0)
    unknown = record(variant="direct", time_ms=0.5, choices={"mapping": {"pad_block": 1}})
    # Of a variant that there is no more.
    gone = record(variant="tiled", time_ms=0.4)
    assert best_valid([stale, valid, unknown, gone], SMALL, NULL_PROFILE) == valid
    assert best_valid([stale, valid], SMALL, NULL_PROFILE, max_extra_bytes=0) == valid
    # Whoever runs it says what is wrong with it.
    assert best_valid([stale], SMALL, NULL_PROFILE) == stale
    assert best_valid([stale], SMALL, NULL_PROFILE, max_extra_bytes=0) is None


def test_a_damaged_file_is_named(tmp_path: Path):
    folder = tmp_path / "gpu"
    folder.mkdir()
    (folder / "vgg16.json").write_text('{"schema": "nestmap/record/1", "records": [{}]}')
    with pytest.raises(InputError, match=r"gpu/vgg16\.json/records/0/layer"):
        read_records(tmp_path, "gpu")


@pytest.mark.parametrize(
    ("name", "platform", "folder"),
    [
        ("NVIDIA H200", "OpenCL 3.0 CUDA 13.0.98", "h200"),
        ("pthread-Intel(R) Xeon(R)", "OpenCL 3.0 PoCL 3.0-rc2", "pocl"),
        ("Mali-G72", "OpenCL 2.0 v1.r9p0", "mali-g72"),
        ("Radeon RX 580", "OpenCL 2.1", "radeon-rx-580"),
    ],
)
def test_a_device_has_the_folder_of_its_profile(name: str, platform: str, folder: str):
    assert device_folder({"device.name": name, "platform.version": platform}) == folder


def test_layers_of_no_set_have_a_file_of_their_own():
    assert file_of("vgg16/14") == "vgg16"
    assert file_of("model.onnx#conv1") == "layers"


def test_every_shipped_record_of_a_processor_says_its_target():
    assert all(vector_bits(r.target) for r in shipped_records("pocl"))
    assert {r.target for r in shipped_records("h200")} == {""}


def test_every_shipped_record_can_be_read_and_none_is_beaten():
    for device in record_devices():
        records = shipped_records(device)
        assert records
        assert len(front_of(records)) == len(records), device


def test_a_device_without_records_has_none():
    assert shipped_records("../profiles") == ()


def test_a_record_keeps_its_layer_apart_from_others():
    wider = replace(SMALL, width=7)
    assert best_record([record()], wider) is None
