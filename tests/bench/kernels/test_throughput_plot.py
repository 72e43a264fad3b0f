"""Output and memory by layer, drawn from what ``bench gpu`` and ``bench cpu`` leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from bench.kernels.plots import throughput_plot
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec, Layout
from nestmap.cli import app

#: 16 numbers of the image, 9 of the weights and 4 of the result.
LAYER = LayerSpec(1, 4, 4, 1, 3, 3, name="small", layout=Layout.NCHW)
OPERANDS = 4 * (16 + 9 + 4)


def figure(contestant: str, time_ms: float | None, **fields: Any) -> dict[str, Any]:
    return {
        "contestant": contestant, "time_ms": time_ms, "failure": "", "extra_bytes": 0,
        "prepared_bytes": 0, **fields,
    }  # fmt: skip


def cpu_value(*rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": "nestmap/bench-cpu/1",
        "device": {"device.name": "a processor"},
        "rows": [{"layer": LAYER.to_json(), "contestants": row} for row in rows],
    }


def bars(svg: str) -> dict[str, list[list[float]]]:
    """Lengths of the bars by name, for each of the two panels from top to bottom."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    _, *boxes = root.iter(f"{space}rect")
    legend = {box.attrib["fill"]: box for box in boxes if box.attrib["height"] == "5"}
    texts = {
        float(t.attrib["y"]): t.text or "" for t in root.iter(f"{space}text") if "y" in t.attrib
    }
    names = {fill: texts[float(box.attrib["y"]) + 7] for fill, box in legend.items()}
    ends = sorted({round(_bottom(box) / 10) for box in boxes if box.attrib["height"] != "5"})
    found: dict[str, list[list[float]]] = {name: [[] for _ in ends] for name in names.values()}
    for box in boxes:
        if box.attrib["height"] != "5":
            panel = ends.index(round(_bottom(box) / 10))
            found[names[box.attrib["fill"]]][panel].append(float(box.attrib["height"]))
    return found


def _bottom(box: ElementTree.Element) -> float:
    return float(box.attrib["y"]) + float(box.attrib["height"])


def test_memory_is_operands_and_what_is_beside_them():
    row = [
        figure("nestmap", 1.0, extra_bytes=OPERANDS, prepared_bytes=OPERANDS),
        figure("torch", 2.0),
        figure("im2col", 4.0),
    ]
    found = {name: panels[1] for name, panels in bars(throughput_plot(cpu_value(row))).items()}
    (operands,) = found["image, weights, result"]
    assert found["nestmap"] == [pytest.approx(3 * operands, rel=0.01)]
    # A matrix of 4 windows of 9; nothing is padded.
    assert found["NumPy im2col + BLAS"] == [pytest.approx(operands * (29 + 36) / 29, rel=0.01)]
    assert found["torch (oneDNN), NCHW"] == [], "it does not say what it takes"


def test_ten_times_the_output_is_a_power_of_ten_more_and_a_failure_has_no_bar():
    rows = [
        [figure("nestmap", 1.0), figure("torch", 10.0), figure("im2col", None)],
        [figure("nestmap", 100.0), figure("torch", 1.0, failure="died"), figure("im2col", 1.0)],
    ]
    found = {name: panels[0] for name, panels in bars(throughput_plot(cpu_value(*rows))).items()}
    fast, slow = found["nestmap"]
    (tenth,) = found["torch (oneDNN), NCHW"]
    assert fast - tenth == pytest.approx((fast - slow) / 2, abs=0.3)
    assert found["NumPy im2col + BLAS"] == [pytest.approx(fast, abs=0.2)]
    assert found["image, weights, result"] == []


def test_a_file_of_bench_gpu_is_drawn_with_the_library_beside_ours(tmp_path: Path):
    row = {"layer": LAYER.to_json(), "best": figure("nestmap", 1.0), "cudnn": figure("cuDNN", 2.0)}
    bare = {**row, "cudnn": None}
    value = {
        "schema": "nestmap/bench-gpu/1",
        "device": {"device.name": "a GPU"},
        "rows": [row, bare],
    }
    (tmp_path / "gpu.json").write_text(json.dumps(value))
    out = tmp_path / "plots" / "gpu.svg"
    done = CliRunner().invoke(
        app, ["bench", "throughput", str(tmp_path / "gpu.json"), "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    found = bars(out.read_text())
    assert [len(panel) for panel in found["nestmap"]] == [2, 2]
    assert [len(panel) for panel in found["cuDNN"]] == [1, 1]
    assert "a GPU" in out.read_text()


@pytest.mark.parametrize("changes", [{"schema": "nestmap/layer/2"}, {"rows": []}])
def test_what_is_no_comparison_is_refused(changes: dict[str, Any]):
    with pytest.raises(InputError):
        throughput_plot({**cpu_value([figure("nestmap", 1.0)]), **changes})
