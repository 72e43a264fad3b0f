"""The hand-written convolution is right at every kind of point, and stands beside the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.kernels import by_hand
from bench.kernels.by_hand import POINTS, HandWritten, Point, point_of
from bench.kernels.cpu import CpuRounds, CpuRow, compare_on_cpu
from bench.kernels.judging import Judge
from bench.kernels.operands import library_operands, own_layout
from bench.kernels.tuning_stage import bordered
from mapper.errors import NestmapError
from mapper.layer_sets import load_layer_set, named_layer
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import subject_of_layer
from nestmap.tuning.reference import make_workload
from worker.devices.opencl import profile_of
from worker.measuring.loaded_plan import Session, open_session


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session("pocl")


def _layer(channels: int, size: int, filters: int, layout: Layout = Layout.NCHW) -> LayerSpec:
    like = named_layer("vgg16/24")
    return replace(
        like, name="small", channels=channels, height=size, width=size, filters=filters,
        layout=layout,
    )  # fmt: skip


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("layer", "point"),
    [
        (_layer(3, 8, 32), Point(1, 4, 2, 4, chunked=False)),
        (_layer(32, 8, 64), Point(2, 4, 1, 8, chunked=False)),
        (_layer(48, 6, 32, Layout.NHWC), Point(2, 3, 2, 2, chunked=True)),
        (_layer(32, 4, 16, Layout.NCHW16C), Point(1, 4, 1, 4, chunked=True)),
        (bordered(_layer(32, 8, 64)), Point(2, 4, 1, 8, chunked=False)),
        (bordered(_layer(3, 8, 32)), Point(1, 4, 2, 4, chunked=False)),
    ],
    ids=["planes", "whole", "chunked", "one-block", "bordered", "bordered planes"],
)
def test_results_are_those_of_the_reference(
    session: Session, layer: LayerSpec, point: Point
) -> None:
    workload = make_workload(subject_of_layer(layer, "high-level"), 3, {})
    judge = Judge(workload.expected, workload.tolerance)
    with HandWritten(session, layer, library_operands(layer, workload), point) as kernel:
        assert len(kernel.turn(0.0, 3).times) == 3
        verdict = judge.verdict(own_layout(layer, kernel.result()))
    assert verdict.wrong is None and 0 < verdict.relative_error < 1e-6


def test_points_are_whole_tiles_and_bands_of_vgg16() -> None:
    layers = [entry.layer for entry in load_layer_set("vgg16").layers]
    assert {(layer.channels, layer.height, layer.filters) for layer in layers} == set(POINTS)
    for layer in layers:
        point = point_of(layer)
        assert layer.height % point.band == point.band % point.rows == 0
        assert layer.width % point.pixels == layer.filters % (16 * point.vectors) == 0
        assert not point.chunked or layer.channels % 16 == 0
        assert point.vectors * point.rows * point.pixels <= 16
        assert point_of(bordered(layer)) == point


@pytest.mark.parametrize(
    "other",
    [
        _layer(32, 8, 32),
        replace(named_layer("vgg16/24"), batch=2),
        replace(named_layer("vgg16/24"), pad_left=0),
        replace(named_layer("vgg16/24"), width=28),
        replace(bordered(named_layer("vgg16/24")), height=14, pad_top=1, pad_bottom=1),
    ],
)
def test_of_other_layers_there_is_none(other: LayerSpec) -> None:
    with pytest.raises(NestmapError, match="nobody wrote one"):
        point_of(other)


@pytest.mark.kernels
def test_it_takes_turns_with_the_others(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = _layer(16, 8, 16)
    how = CpuRounds(rounds=1, most=2, turn_s=0.0, least=2)

    def compared(folder: str) -> CpuRow:
        return compare_on_cpu(
            layer, [], session, profile_of(session.device), [], tmp_path / folder, how,
            lambda process: ({}, 60.0), by_hand=True,
        )  # fmt: skip

    missing = compared("first")
    assert "nobody wrote one" in missing.figures[-1].failure and not missing.accepted
    monkeypatch.setitem(by_hand.POINTS, (16, 8, 16), Point(1, 4, 1, 8, chunked=False))
    row = compared("second")
    figure = row.figures[-1]
    assert figure.contestant == "by-hand" and not figure.failure
    assert len(figure.turns) == row.tried > 0 and 0 < figure.relative_error < 1e-6
    assert figure.details["point"]["pixels"] == 4
