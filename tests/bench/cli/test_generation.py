"""nestmap bench generation: figures of CPU time, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench.generation import SCHEMA, Cell, measured, summary, to_json
from mapper.layer_spec import LayerSpec
from mapper.profiles import load_profile
from nestmap.cli import app

TINY = LayerSpec(4, 6, 6, 4, name="tiny")


def test_every_plan_is_timed_once_by_the_clock():
    ticks = iter(range(100))
    cell = measured(TINY, "high-level", load_profile("pocl"), 3, 0, lambda: float(next(ticks)))
    # A clock that goes on by a second at each look.
    assert cell.plan_ms == (1000.0,) * 3
    assert cell.kernels == (1, 1, 1)
    assert all(count > 500 for count in cell.characters)


def test_figures_are_medians_over_plans_and_a_kernel_gets_its_share():
    cells = [
        Cell("a", "x", (10.0, 40.0), (1, 2), (7, 7)),
        Cell("a", "y", (90.0,), (3,), (7,)),
    ]
    assert summary(cells) == {
        "plans": 3,
        "kernels": 6,
        "median_kernel_ms": 20.0,
        "median_plan_ms": 40.0,
        "largest_plan_ms": 90.0,
    }
    value = to_json(cells, {"seed": 1})
    assert (value["schema"], value["seed"], len(value["cells"])) == (SCHEMA, 1, 2)


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, ["bench", "generation", *arguments])


def test_the_command_writes_json_and_a_table(tmp_path: Path):
    out = tmp_path / "generation.json"
    asked = ("--layers", "vgg16/24", "--variants", "high-level", "--mappings", "2")
    result = run(*asked, "--out", str(out))
    # Code 1 would say that this machine is slow today.
    assert result.exit_code in (0, 1), result.output
    assert "median ms a kernel" in result.output
    value = json.loads(out.read_text())
    assert value["summary"]["plans"] == 2
    assert value["summary"]["median_kernel_ms"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variants", "fast"), "--variants: no variant or sketch of this name; found 'fast'"),
        (("--layers", "vgg16/99"), "no layer of this name"),
        (("--device", "abacus"), "no such device profile"),
    ],
)
def test_unknown_names_are_refused(arguments: tuple[str, str], message: str):
    result = run(*arguments)
    assert result.exit_code not in (0, 1)
    assert message in result.output
