"""Without a variant named every layer that can be computed is answered, and the answer says how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mapper.layer_spec import LayerSpec
from mapper.profiles import load_profile, profile_names
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.choosing import DefaultVariant, facts_of_profile
from nestmap.cli import app
from tests.unit.tasks.child_replies import ask

PLAIN = {"channels": 32, "height": 8, "width": 8, "filters": 32}
LAYERS: dict[str, dict[str, Any]] = {
    "bias": {**PLAIN, "bias": True, "activation": "relu"},
    "groups": {**PLAIN, "groups": 4},
    "depthwise": {**PLAIN, "groups": 32, "activation": "relu6"},
    "dilation": {**PLAIN, "dilation": 2},
    "batch": {**PLAIN, "batch": 3},
    "nchw": {**PLAIN, "layout": "NCHW"},
    "blocks": {**PLAIN, "layout": "NCHW16c"},
    "line": {"channels": 8, "length": 40, "filters": 16, "bias": True},
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_direct_does_not_do_is_taken_as_it_is_written(name: str):
    default = DefaultVariant()
    layer = LayerSpec.from_json(dict(LAYERS[name]))
    assert VARIANTS["direct"].applies(layer) is not None
    assert default(layer) == LAST_RESORT
    assert VARIANTS[LAST_RESORT].applies(layer) is None
    # What is fast has to be asked for.
    assert default.reason.startswith("direct does not do layer.")
    assert default.reason.endswith("sketches by name")


def test_direct_stays_where_it_does_the_layer():
    default = DefaultVariant()
    # Whatever was chosen before.
    default(LayerSpec.from_json(dict(LAYERS["bias"])))
    assert default(LayerSpec.from_json(dict(PLAIN))) == "direct"
    assert default.reason == "does this layer; others by name"


def test_profiles_are_of_a_kind():
    kinds = {name: facts_of_profile(load_profile(name))["device.kind"] for name in profile_names()}
    assert kinds == {"h200": "gpu", "mali-g72": "gpu", "pocl": "cpu"}


@pytest.fixture
def biased(tmp_path: Path) -> str:
    path = tmp_path / "biased.json"
    path.write_text(json.dumps(LAYERS["bias"]))
    return str(path)


def test_a_command_says_which_variant_and_why(biased: str):
    found = CliRunner().invoke(app, ["kernel", biased, "--json"])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["variant"] == "high-level"
    assert answer["variant_reason"].startswith("direct does not do layer.bias True")
    assert f"note: variant: high-level ({answer['variant_reason']})" in found.stderr
    named = CliRunner().invoke(app, ["kernel", biased, "--variant", "high-level", "--json"])
    assert json.loads(named.stdout)["variant_reason"] == "as asked for"
    assert "variant" not in named.stderr


def test_other_commands_take_such_a_layer(biased: str, tmp_path: Path):
    run = CliRunner()
    solved = run.invoke(app, ["solve", biased, "--limit", "1", "--json"])
    assert solved.exit_code == 0, solved.output
    mapping = tmp_path / "mapping.json"
    mapping.write_text(solved.stdout)
    checked = run.invoke(app, ["check", biased, str(mapping), "--json"])
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["variant"] == "high-level"
    assert run.invoke(app, ["constraints", biased]).exit_code == 0


@pytest.mark.parametrize("kind", ["mappings", "constraints", "describe", "kernel"])
def test_a_solver_child_takes_such_a_layer(kind: str):
    more: dict[str, Any] = {"limit": 1} if kind == "mappings" else {}
    reply = ask(kind=kind, subject={"document": LAYERS["bias"]}, device="pocl", **more)
    assert reply.problem is None
    said = reply.end["facts"] if kind == "kernel" else reply.end
    assert said["variant"] == "high-level"
    assert "direct does not do layer.bias" in said["variant_reason"]
