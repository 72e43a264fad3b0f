"""A campaign counts every kind of outcome, and every failure can be reproduced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.proofs.layers.campaign import (
    Cell,
    CellResult,
    Limits,
    Part,
    cells_of,
    cut_layer,
    markdown_table,
    run_cell,
)
from bench.proofs.layers.result_file import read_results, write_results
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError
from mapper.layer_sets import named_layer
from mapper.layer_spec import VGG16_UNIQUE, LayerSpec
from mapper.measurement import CompileError, Outcome, Timeout, Wrong
from mapper.pipeline import (
    assignment_from_json,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from nestmap.tuning.calibration import scaled_layer
from tests.unit.tuning.fakes import TINY, ScriptedDevice, draw_once
from worker.devices.null import NULL_PROFILE


def cell(count: int = 4, part: Part = Part.FULL) -> Cell:
    return Cell(TINY, "high-level", part, count, 3)


def run(device: ScriptedDevice, of: Cell) -> CellResult:
    return run_cell(of, device, Limits(), draw=draw_once)


def test_right_candidates_are_counted():
    result = run(ScriptedDevice(), cell())
    assert (result.tried, result.outcomes, result.failures) == (4, {"timed": 4}, [])
    assert result.best_ms is not None


def test_failures_carry_all_that_reproduces_them():
    def answer(number: int, candidate: str) -> Outcome | None:
        return (None, Wrong(1.0, (0,), "off by one"), CompileError("bad"), Timeout(9.0))[number]

    result = run(ScriptedDevice(answer), cell())
    assert result.outcomes == {"timed": 1, "wrong": 1, "compile-error": 1, "timeout": 1}
    assert [failure["kind"] for failure in result.failures] == ["wrong", "compile-error"]
    assert len(result.timeouts) == 1, "slow is not wrong"
    failure = json.loads(json.dumps(result.failures[0]))
    subject = subject_of_layer(LayerSpec.from_json(failure["size"]), failure["variant"])
    space = derive_space(subject, Mode.STRICT, NULL_PROFILE, DEFAULT_OPTIONS)
    generate_kernels(subject, assignment_from_json(space, failure["candidate"]))


def test_sampler_that_fails_is_a_failure():
    def draw(space: object, count: int, seed: int) -> list:
        raise LimitError("too large")

    result = run_cell(cell(), ScriptedDevice(), Limits(), draw=draw)
    assert {failure["kind"] for failure in result.failures} == {"sampler-error"}


def test_sizes_differ_from_layer_to_layer_and_are_small():
    layers = [named_layer(name) for name in VGG16_UNIQUE]
    for shrink, largest in ((scaled_layer, 15_000_000), (cut_layer, 11_000)):
        for layer in map(shrink, layers):
            assert layer.operations // 2 <= largest
    assert len({(s.channels, s.height, s.filters) for s in map(scaled_layer, layers)}) >= 8


def test_cells_share_the_candidates():
    cells = list(
        cells_of((TINY,), ("partial", "direct"), candidates=7, full=2, simulated=3, seed=1)
    )
    assert [(c.part, c.count) for c in cells] == [
        (Part.OCLGRIND, 3), (Part.OCLGRIND, 3), (Part.SCALED, 5), (Part.SCALED, 5),
        (Part.FULL, 2), (Part.FULL, 2),
    ]  # fmt: skip
    assert len({c.key for c in cells}) == len(cells)


def test_results_are_read_back(tmp_path: Path):
    path = tmp_path / "new" / "results.json"
    assert read_results(path) == []
    results = [run(ScriptedDevice(), cell())]
    value = write_results(path, results, {"device.name": "null"}, 3)
    assert read_results(path) == results
    assert value["outcomes"] == {"timed": 4}
    assert set(value["versions"]) >= {"nestmap", "numpy", "ortools"}
    assert "| tiny | high-level | 4 / 0 / 4 | - | - | 0 |" in markdown_table(results)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "other"}', '{"schema": 1, "cells": 2}'])
def test_another_file_is_not_overwritten(tmp_path: Path, text: str):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InputError, match="holds no results"):
        read_results(path)


def test_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_results(tmp_path / "file" / "results.json", [], {}, 0)
