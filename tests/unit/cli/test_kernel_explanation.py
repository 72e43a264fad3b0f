"""``nestmap kernel --explain``: text as it was, and figures that agree with plan and source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nestmap.cli import app
from tests.conftest import GOLDEN_FOLDER

EXAMPLE = GOLDEN_FOLDER.parents[1] / "examples" / "listing1_local.txt"
CASES = json.loads((GOLDEN_FOLDER / "kernels" / "mappings.json").read_text())
LISTING = {"mapping": {"A": "W0", "B": "L0", "C": "S", "D": "L0", "E": "S"},
           "local_sizes": {"out": [8, 1, 1]}}  # fmt: skip


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["kernel", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def files_of(name: str, folder: Path) -> tuple[str, ...]:
    """The arguments that name a golden kernel's layer, variant and mapping."""
    case = CASES[name]
    layer, mapping = folder / "layer.json", folder / "mapping.json"
    layer.write_text(json.dumps(case["layer"]))
    mapping.write_text(json.dumps(case["choices"]))
    variant = ("--variant", case["variant"], "--device", "pocl+half")
    return (str(layer), str(mapping), *variant)


def test_an_explanation_reads_as_it_did(golden: Callable[[str, str], None], tmp_path: Path):
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps(LISTING))
    text = run(str(EXAMPLE), str(mapping), "--explain")
    golden("kernel_explanation.txt", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))


@pytest.mark.parametrize("name", ["tiled_prefetch", "tiled_split", "blocked_in_place_ragged"])
def test_figures_agree_with_the_plan_and_the_source(name: str, tmp_path: Path):
    asked = files_of(name, tmp_path)
    explained = json.loads(run(*asked, "--explain", "--json"))
    plan = json.loads(run(*asked, "--json"))
    assert explained["schema"] == "nestmap/kernel-explanation/1"
    assert explained["choices"] == plan["choices"]
    parts = plan["source"].split("__kernel void ")[1:]
    assert len(explained["kernels"]) == len(plan["launches"]) == len(parts)
    for kernel, launch, part in zip(explained["kernels"], plan["launches"], parts, strict=True):
        assert f"k_{kernel['name']}" == launch["kernel"]
        assert kernel["local_bytes"] == launch["local_bytes"]
        assert kernel["private_bytes"] == launch["private_bytes"]
        assert kernel["local_size"] == launch["local_size"]
        assert kernel["global_size"] == launch["global_size"]
        assert len(kernel["barriers"]) == part.count("barrier(")
        for buffer in (*kernel["local"], *kernel["private"]):
            array = re.search(rf"\b{buffer['identifier']}\[\d+\]", part)
            assert bool(array) is not buffer["in_registers"], buffer
        codes = {loop["name"]: loop["schedule"] for loop in kernel["loops"] if loop["schedule"]}
        assert (
            codes.items()
            <= {
                name: code for name, code in _names(explained["choices"]["mapping"]).items()
            }.items()
        )


def _names(mapping: dict[str, int]) -> dict[str, str]:
    from mapper.schedule import code_name

    return {name: code_name(code) for name, code in mapping.items()}


def test_positions_mean_the_same_before_and_after(tmp_path: Path):
    from mapper.ast_model.text_form import parse_expr

    explained = json.loads(run(*files_of("blocked_bias_relu", tmp_path), "--explain", "--json"))
    changed = 0
    for kernel in explained["kernels"]:
        trips: dict[str, int] = {"lane": 4}
        for loop in kernel["loops"]:
            reduce = loop["name"].startswith("reduce ")
            name = loop["name"].removeprefix("reduce ") if reduce else f"i_{loop['name']}"
            trips[name] = loop["iterations"]
        for access in kernel["accesses"]:
            changed += access["before"] != access["after"]
            before, after = parse_expr(access["before"]), parse_expr(access["after"])
            for seed in range(20):
                # Somewhere in every loop.
                values = {name: (seed * 7 + 3) % trip for name, trip in trips.items()}
                assert before.evaluate(values) == after.evaluate(values), access
    assert changed


def test_an_explanation_and_a_plan_are_not_shown_together():
    message = "--explain: buffers and launches are asked for; found --plan"
    assert message in run("vgg16/24", "--explain", "--plan", code=2)
