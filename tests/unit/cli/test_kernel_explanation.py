"""``nestmap kernel --explain``: text as it was, and figures that agree with plan and source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_to_json, choices_of, derive_space
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from nestmap.cli import app
from nestmap.tuning.sketch_subjects import layer_in, with_suits
from tests.conftest import GOLDEN_FOLDER

EXAMPLE = GOLDEN_FOLDER.parents[1] / "examples" / "listing1_local.txt"
LISTING = {"mapping": {"A": "W0", "B": "L0", "C": "S", "D": "L0", "E": "S"},
           "local_sizes": {"out": [8, 1, 1]}}  # fmt: skip
#: No tile is without a rest.
LAYER = LayerSpec(6, 7, 9, 10, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, bias=True,
                  activation="relu", name="odd")  # fmt: skip


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["kernel", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def files_of(
    sketch: str, device: str, wanted: Callable[[Mapping[str, int]], bool], folder: Path
) -> tuple[str, ...]:
    """The arguments that name the layer under a sketch, and a mapping of this kind."""
    profile = load_profile(device)
    subject = layer_in(LAYER, sketch, profile)
    space = derive_space(subject, Mode.STRICT, profile, with_suits(subject, DEFAULT_OPTIONS))
    solved, random = SuitedSpace(space), Random(7)
    drawn = (solved.draw_joint(random) or {} for _ in range(2000))
    found = next(one for one in drawn if wanted(choices_of(one).parameters))
    layer, mapping = folder / "layer.json", folder / "mapping.json"
    layer.write_text(json.dumps(LAYER.to_json()))
    mapping.write_text(json.dumps(assignment_to_json(found)))
    return (str(layer), str(mapping), "--variant", sketch, "--device", device)


def test_an_explanation_reads_as_it_did(golden: Callable[[str, str], None], tmp_path: Path):
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps(LISTING))
    text = run(str(EXAMPLE), str(mapping), "--explain")
    golden("kernel_explanation.txt", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))


@pytest.mark.parametrize(
    ("sketch", "device", "wanted", "written"),
    [
        (
            "blocks-local-filter", "h200",
            lambda p: p["prefetch_convolution"] and p["chunk_convolution"] == 2,
            "loads for the next iteration",
        ),
        ("blocks-sliced-packed-filter", "h200", lambda p: p["slices_convolution"] > 1, "barrier("),
        ("tile-bordered-packed-filter", "pocl", lambda p: p["rho_row"] and p["rho_column"], "if ("),
        ("tile-filter", "pocl", lambda p: p["lanes_filter"] > 1, "float2"),
    ],
    ids=["fetched ahead", "channels in slices", "with a rest", "in vectors"],
)  # fmt: skip
def test_figures_agree_with_the_plan_and_the_source(
    sketch: str, device: str, wanted: Callable[[Mapping[str, int]], bool], written: str,
    tmp_path: Path,
):  # fmt: skip
    asked = files_of(sketch, device, wanted, tmp_path)
    explained = json.loads(run(*asked, "--explain", "--json"))
    plan = json.loads(run(*asked, "--json"))
    assert written in plan["source"]
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

    asked = files_of("tile-packed-filter", "pocl", lambda p: p["lanes_filter"] > 1, tmp_path)
    explained = json.loads(run(*asked, "--explain", "--json"))
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
