"""What ``tune --json`` writes is a mapping for ``kernel`` and ``check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mapper.layer_spec import LayerSpec
from nestmap.cli import app

TINY = LayerSpec(4, 6, 6, 8, name="tiny")


def invoke(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout if code == 0 else result.stderr)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tuned")
    layer = folder / "L.json"
    layer.write_text(json.dumps(TINY.to_json()))
    result = invoke(
        "tune", str(layer), "--device", "null", "--variant", "high-level",
        "--db", str(folder / "store.sqlite3"), "--candidates", "3",
    )  # fmt: skip
    return str(layer), folder, result


@pytest.mark.parametrize("what", ["entry", "result", "choices"])
def test_a_kernel_and_a_verdict_of_it(tuned: tuple[str, Path, dict[str, Any]], what: str):
    layer, folder, result = tuned
    entry = result["front"][0]
    chosen = {name: entry[name] for name in ("mapping", "parameters", "local_sizes")}
    values = {
        "entry": entry, "result": result, "choices": {"variant": "high-level", "choices": chosen}
    }  # fmt: skip
    path = folder / f"{what}.json"
    path.write_text(json.dumps(values[what]))
    more = ("--device", "null")
    printed = invoke("kernel", layer, str(path), *more)
    assert printed["variant"] == "high-level"
    assert printed["memory_bytes"] == entry["memory_bytes"]
    checked = invoke("check", layer, str(path), "--variant", "high-level", *more)
    assert checked["valid"] is True
    refused = invoke("kernel", layer, str(path), "--variant", "direct", *more, code=2)
    assert refused["error"]["problems"][0]["path"] == "--variant"


def test_a_result_without_a_mapping_says_so(tuned: tuple[str, Path, dict[str, Any]]):
    layer, folder, result = tuned
    path = folder / "none.json"
    path.write_text(json.dumps({**result, "front": []}))
    assert "no mapping" in json.dumps(invoke("kernel", layer, str(path), code=2))


def test_what_is_no_figure_is_still_refused(tuned: tuple[str, Path, dict[str, Any]]):
    layer, folder, result = tuned
    path = folder / "more.json"
    path.write_text(json.dumps({**result["front"][0], "colour": 1}))
    assert "unknown field" in json.dumps(invoke("check", layer, str(path), code=2))
