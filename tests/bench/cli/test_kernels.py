"""``nestmap bench gpu``, ``bench cpu`` and ``bench programs`` on small work through PoCL."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from db.store import Store
from nestmap.cli import app

LAYER = {
    "channels": 4, "height": 6, "width": 6, "filters": 8,
    "pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1,
}  # fmt: skip


@pytest.fixture
def layer_file(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LAYER))
    return str(path)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.kernels(alone=True)
def test_a_search_leaves_records_from_which_both_comparisons_start(layer_file: str, tmp_path: Path):
    records, out = tmp_path / "records", tmp_path / "gpu.json"
    common = ("--device", "pocl", "--layers", layer_file, "--records", str(records))
    common += ("--layout", "NHWC")
    text = run("gpu", *common, "--no-cudnn", "--candidates", "3", "--variant", "direct",
               "--out", str(out))  # fmt: skip
    assert "tiny" in text
    value = json.loads(out.read_text())
    assert value["rows"][0]["best"]["failure"] == ""
    stored = json.loads((records / "pocl" / "layers.json").read_text())["records"]
    assert stored[0]["layer"]["name"] == "tiny" and stored[0]["trials"] > 3
    with Store.open(tmp_path / "gpu.sqlite3") as store:
        (study,) = store.studies()
        assert len(store.measurements(study)) == 3

    out = tmp_path / "cpu.json"
    run("cpu", *common, "--peers", "im2col", "--rounds", "1", "--most", "1", "--turn", "0.01",
        "--out", str(out))  # fmt: skip
    (row,) = json.loads(out.read_text())["rows"]
    assert [c["contestant"] for c in row["contestants"]] == ["nestmap", "im2col"]
    assert not any(c["failure"] for c in row["contestants"])
    assert row["peak"]["operations"] > 0 and len(row["peak"]["turns"]) == 1

    text = run("cpu", *common, "--peers", "by-hand", "--rounds", "1", "--most", "1", "--turn",
               "0.01", "--out", str(out))  # fmt: skip
    (row,) = json.loads(out.read_text())["rows"]
    assert [c["contestant"] for c in row["contestants"]] == ["nestmap", "by-hand"]
    assert "tiny: by-hand: nobody wrote one" in text


@pytest.mark.kernels(alone=True)
def test_a_program_is_tuned_as_a_user_would_and_compared_with_numpy(tmp_path: Path):
    out = tmp_path / "programs.json"
    text = run("programs", "--program", "product-77x4099x513", "--seconds", "12", "--rounds", "1",
               "--repetitions", "2", "--out", str(out))  # fmt: skip
    assert "product-77x4099x513" in text
    (row,) = json.loads(out.read_text())["programs"]
    assert not row["failure"] and row["tried"] > 0 and row["relative_error"] < 1e-5
    assert len(row["times_ms"]) == 2 and row["library_ms"] > 0


@pytest.mark.kernels(alone=True)
def test_libraries_that_are_not_installed_are_left_out_with_a_note(layer_file: str, tmp_path: Path):
    asked = ("cpu", "--layers", layer_file, "--layout", "NHWC", "--records", str(tmp_path))
    asked += ("--peers", "torch", "--peers-python", str(tmp_path / "python"))
    text = run(*asked, "--most", "1", "--rounds", "1", "--out", str(tmp_path / "o.json"), code=1)
    assert "torch left out" in text and "no record for this device" in text


@pytest.mark.kernels(alone=True)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gpu", "--layers", "alexnet/1", "--no-cudnn", "--device", "pocl"), 2, "no layer"),
        (("gpu", "--layers", "absent.json", "--no-cudnn", "--device", "pocl"), 2, "not exist"),
        (("gpu", "--layers", "vgg16/0", "--no-cudnn", "--device", "opencl:absent/"), 3, "absent/"),
        (("cpu", "--layers", "vgg16/0", "--peers", "mkl"), 2, "by-hand"),
        (("programs", "--program", "product-7"), 2, "product-1024"),
        (("programs", "--program", "product-1000", "--device", "opencl:absent/"), 3, "absent/"),
    ],
)
def test_what_is_not_there_is_said(arguments: tuple[str, ...], code: int, said: str):
    assert said in run(*arguments, code=code)


def test_a_missing_torch_is_said_before_anything_is_searched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "--no-cudnn" in run("gpu", "--layers", "vgg16/0", "--tune", "600", code=3)
