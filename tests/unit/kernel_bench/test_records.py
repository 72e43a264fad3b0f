"""Tuning records: what is kept, what is refused, where files are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mapper.errors import InputError
from mapper.layer_sets import named_layer
from mapper.tuning_records import (
    best_record,
    front_of,
    record_devices,
    record_from_json,
    records_from_json,
    records_to_json,
    shipped_records,
)
from nestmap.kernel_bench.record_files import (
    device_folder,
    file_of,
    read_records,
    write_records,
)
from tests.unit.kernel_bench.records import SMALL, record


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
        ({"device": 3}, "/device"),
        ({"schema": "nestmap/record/2"}, "/schema"),
        ({"surplus": 1}, "/surplus"),
        ({"layer": "vgg16/0"}, "/layer"),
    ],
)
def test_a_malformed_field_is_named(change: dict[str, object], path: str):
    with pytest.raises(InputError) as caught:
        record_from_json({**record().to_json(), **change})
    assert [problem.path for problem in caught.value.problems] == [path]


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


def test_written_records_are_merged_with_what_is_in_the_file(tmp_path: Path):
    fast = record(time_ms=1.0, extra_bytes=100, source_hash="fast")
    lean = record(time_ms=3.0, extra_bytes=0, source_hash="lean")
    vgg = record(layer=named_layer("vgg16/0"), source_hash="vgg")
    first = write_records(tmp_path, "gpu", [fast, vgg])
    assert [path.name for path in first] == ["layers.json", "vgg16.json"]
    write_records(tmp_path, "gpu", [lean])
    assert read_records(tmp_path, "gpu") == (fast, lean, vgg)
    assert read_records(tmp_path, "another") == ()
    assert json.loads(first[0].read_text()) == records_to_json([fast, lean])


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
