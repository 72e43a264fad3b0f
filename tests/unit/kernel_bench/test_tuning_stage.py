"""The stage of searches before a comparison: which variants it searches in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mapper.errors import InputError
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import LayerSpec, Layout
from nestmap.kernel_bench import tuning_stage
from nestmap.kernel_bench.tuning_stage import Tuning, bordered, tune_layers
from nestmap.tuning.layer_search import Budget, Quest
from nestmap.tuning.measuring.pool import DeviceState
from tests.unit.tuning.records import SMALL
from worker.devices.null import NULL_PROFILE

FACTS = {"device.name": "fake", "driver.version": "1", "platform.version": "1"}


class IdlePool:
    """A device that is asked for nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> IdlePool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def device(self) -> DeviceState:
        return DeviceState(dict(FACTS), NULL_PROFILE)

    def forget(self) -> None: ...


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The variants that were searched in, in order."""
    found: list[str] = []

    def search(wanted: Quest, *_: Any, **__: Any) -> list[Any]:
        found.append(wanted.variant)
        return []

    monkeypatch.setattr(tuning_stage, "Pool", IdlePool)
    monkeypatch.setattr(tuning_stage, "search", search)
    return found


def tuned(folder: Path, layers: list[LayerSpec], *variants: str) -> list[str]:
    said: list[str] = []
    how = Tuning(variants, Budget(candidates=1), 1, folder / "journal")
    tune_layers(layers, "null", how, folder, said.append)
    return said


def test_a_variant_that_cannot_compute_a_layer_is_left_out_and_said(
    searched: list[str], tmp_path: Path
):
    said = tuned(tmp_path, [SMALL], "direct", "tiled-vectors", "partial")
    assert searched == ["direct", "partial"]
    assert [line for line in said if "left out" in line] == [
        line for line in said if "tiled-vectors" in line
    ]


def test_a_layer_that_no_variant_can_compute_does_not_end_the_search_of_others(
    searched: list[str], tmp_path: Path
):
    tuned(tmp_path, [SMALL, replace(layer_of_name("vgg16/7"), layout=Layout.NCHW)], "tiled-vectors")
    assert searched == ["tiled-vectors"]


def test_where_nothing_can_be_searched_the_reasons_are_an_error(
    searched: list[str], tmp_path: Path
):
    with pytest.raises(InputError, match="tiled-vectors"):
        tuned(tmp_path, [SMALL], "tiled-vectors", "tiled-vectors-slices")
    assert not searched


def test_a_layer_without_padding_is_no_other_with_its_border_given():
    plain = replace(SMALL, pad_top=0, pad_left=0, pad_bottom=0, pad_right=0)
    assert bordered(plain) is plain
    wide = bordered(SMALL)
    assert (wide.height, wide.width, wide.pad_top) == (8, 8, 0) and wide.name == "small bordered"
