"""``nestmap kernel --best``: kernels from the tuning records that are shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mapper.layer_sets import named_layer
from mapper.tuning_records import best_record, shipped_records
from nestmap.cli import app, recorded
from tests.unit.tuning.records import SMALL, record

CHOICES: dict[str, Any] = {
    "mapping": {"row": 0, "column": 1, "filter": 32},
    "local_sizes": {"convolution": [1, 1, 56]},
}


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["kernel", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = named_layer("vgg16/12")
    found = (
        record(layer=layer, variant="high-level", choices=CHOICES, time_ms=2.0),
        record(layer=SMALL, variant="high-level", choices={"mapping": {"gone": 0}}),
        record(layer=SMALL, variant="sketch-of-another-release", choices=CHOICES, time_ms=0.1),
    )
    monkeypatch.setattr(recorded, "shipped_records", lambda device: found)


def test_the_kernel_of_the_fastest_record_is_printed(records: None):
    text = run("vgg16/14", "--best")
    assert "variant high-level, measured on Some GPU: 2 ms" in text
    assert "__kernel void" in text


def test_a_layer_on_standard_input_is_read_once(records: None):
    layer = json.dumps(named_layer("vgg16/12").to_json())
    result = CliRunner().invoke(app, ["kernel", "-", "--best"], input=layer)
    assert result.exit_code == 0, result.output
    assert "variant high-level, measured on Some GPU: 2 ms" in result.output


def test_a_layer_without_a_record_says_what_to_do(records: None):
    assert "nestmap tune vgg16/0" in run("vgg16/0", "--best", code=2)
    assert "no tuning record" in run("vgg16/12", "--best", "--variant", "direct", code=2)


def test_a_record_that_is_valid_no_more_is_refused(records: None, tmp_path: Path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL.to_json()))
    assert "not valid under today's rules" in run(str(path), "--best", code=2)


@pytest.mark.parametrize("more", [["--sample"], ["--pin", "th=2"], ["--mode", "paper"]])
def test_what_would_choose_something_else_is_refused(more: list[str]):
    assert "--best" in run("vgg16/0", "--best", *more, code=2)


def test_a_shipped_record_still_makes_kernels():
    fastest = min(shipped_records("h200"), key=lambda r: r.time_ms)
    assert best_record([fastest], fastest.layer) == fastest
    result = CliRunner().invoke(
        app, ["kernel", fastest.layer.name, "--best", "--device", "h200", "--json"]
    )
    plan = json.loads(result.stdout)
    assert plan["choices"] == {key: value for key, value in fastest.choices.items() if value}
    assert plan["source"].count("__kernel void") == len(plan["launches"])
