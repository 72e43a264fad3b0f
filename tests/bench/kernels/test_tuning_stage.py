"""The stage of searches before a comparison: which variants it searches in, what it keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.kernels import tuning_stage
from bench.kernels.tuning_stage import Tuning, bordered, tune_layers
from mapper.errors import InputError
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import LayerSpec, Layout
from mapper.tuning_records import TuningRecord
from nestmap.tuning.layer_search import Budget, Quest
from nestmap.tuning.measuring.pool import DeviceState
from nestmap.tuning.record_files import read_records, write_records
from tests.unit.tuning.records import SMALL, record
from tests.unit.tuning.slowing_pool import FACTS, SlowingPool, found
from worker.devices.null import NULL_PROFILE


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


def test_after_a_search_of_several_variants_only_times_of_the_same_turns_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {"direct": found("direct", 2, 0.1), "partial": found("partial", 1, 5.0)}
    other = record(layer=replace(SMALL, filters=16), source_hash="of another layer")
    write_records(tmp_path, "fake", [other, replace(found("direct", 3, 1.0)[2], time_ms=0.05)])
    pool = SlowingPool({"direct": 2.0, "partial": 1.0})
    monkeypatch.setattr(tuning_stage, "Pool", lambda *_: pool)
    monkeypatch.setattr(tuning_stage, "search", lambda wanted, *_, **__: records[wanted.variant])
    said: list[str] = []
    how = Tuning(("direct", "partial"), Budget(candidates=1), 1, tmp_path / "journal")
    tune_layers([SMALL], "null", how, tmp_path, said.append)
    kept = read_records(tmp_path, "fake")
    assert [r.source_hash for r in kept] == ["of another layer", "partial now"]
    assert any("4 kernels of direct, partial again, in turns" in line for line in said)


def test_ctrl_c_while_a_layer_settles_leaves_the_searches_records_and_the_other_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {"direct": found("direct", 1, 1.0), "partial": found("partial", 1, 5.0)}
    searched: list[str] = []

    def search(wanted: Quest, *_: Any, **__: Any) -> list[TuningRecord]:
        searched.append(wanted.variant)
        return records[wanted.variant]

    pool = SlowingPool({})

    def interrupted(*_: Any) -> list[TuningRecord]:
        pool.waiting = 1
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning_stage, "Pool", lambda *_: pool)
    monkeypatch.setattr(tuning_stage, "search", search)
    monkeypatch.setattr(tuning_stage, "in_the_same_turns", interrupted)
    how = Tuning(("direct", "partial"), Budget(candidates=1), 1, tmp_path / "journal")
    said: list[str] = []
    tune_layers([SMALL, SMALL], "null", how, tmp_path, said.append)
    assert searched == ["direct", "partial"] * 2
    assert [r.time_ms for r in read_records(tmp_path, "fake")] == [1.0]
    assert sum("stopped" in line for line in said) == 2


def test_records_of_one_variant_are_not_timed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = SlowingPool({"direct": 2.0})
    monkeypatch.setattr(tuning_stage, "Pool", lambda *_: pool)
    monkeypatch.setattr(tuning_stage, "search", lambda *_, **__: found("direct", 2, 0.1))
    how = Tuning(("direct",), Budget(candidates=1), 1, tmp_path / "journal")
    tune_layers([SMALL], "null", how, tmp_path, lambda _: None)
    assert not pool.measured
    assert len(read_records(tmp_path, "fake")) == 1
