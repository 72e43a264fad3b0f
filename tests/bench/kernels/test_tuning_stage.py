"""The stage before a comparison: which variants it tunes, what it leaves in the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.kernels.tuning_stage import Tuning, bordered, tune_layers
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.measurement import Outcome
from mapper.tuning_records import best_record
from nestmap.tuning.record_files import device_folder, read_records
from nestmap.tuning.run import Budget
from tests.unit.tuning.fakes import ScriptedDevice, timed
from tests.unit.tuning.records import SMALL

#: Neither of the papers' variants computes it.
BIASED = replace(SMALL, bias=True)


def tuned(
    folder: Path,
    layers: list[LayerSpec],
    *variants: str,
    candidates: int = 6,
    device: ScriptedDevice | None = None,
) -> list[str]:
    said: list[str] = []
    how = Tuning(variants, Budget(candidates=candidates), folder / "store.sqlite3")
    tune_layers(layers, device or ScriptedDevice(), how, folder / "records", said.append)
    return said


def test_a_variant_that_cannot_compute_a_layer_is_left_out_and_said(tmp_path: Path):
    said = tuned(tmp_path, [BIASED], "high-level", "direct")
    assert [line for line in said if "left out" in line] == [
        line for line in said if line.startswith("small direct")
    ]
    (best,) = [line for line in said if "TFLOP/s" in line]
    assert best.startswith("small: 6 tried") and "; high-level: " in best


def test_a_layer_that_no_variant_can_compute_does_not_end_the_tuning_of_others(tmp_path: Path):
    other = replace(SMALL, name="plain")
    said = tuned(tmp_path, [BIASED, other], "direct", candidates=2)
    assert any(line.startswith("plain: 2 tried") for line in said)


def test_where_nothing_can_be_tuned_the_reasons_are_an_error(tmp_path: Path):
    with pytest.raises(InputError, match="direct"):
        tuned(tmp_path, [BIASED], "direct", "partial")


def test_a_layer_without_padding_is_no_other_with_its_border_given():
    plain = replace(SMALL, pad_top=0, pad_left=0, pad_bottom=0, pad_right=0)
    assert bordered(plain) is plain
    wide = bordered(SMALL)
    assert (wide.height, wide.width, wide.pad_top) == (8, 8, 0) and wide.name == "small bordered"


def test_records_have_the_times_of_the_turns_that_finalists_took_together(tmp_path: Path):
    """Searches follow each other, and a machine is slower in one minute than in another."""
    # Measured first the second is the fastest; in turns it is slower than the fourth.
    searched = [3.0, 1.0, 2.5, 1.1, 2.0, 2.8]
    fastest = ""

    def answer(number: int, candidate: str) -> Outcome:
        nonlocal fastest
        if number < len(searched):
            fastest = candidate if number == 1 else fastest
            return timed(searched[number])
        return timed(1.6 if candidate == fastest else 1.2)

    device = ScriptedDevice(answer)
    tuned(tmp_path, [SMALL], "direct", device=device)
    best = best_record(read_records(tmp_path / "records", device_folder(device.facts())), SMALL)
    assert best is not None and best.time_ms == 1.2 and best.trials > 3


def test_what_the_store_holds_is_not_measured_again(tmp_path: Path):
    def answer(number: int, candidate: str) -> Outcome:
        # So far apart that none but the best is a finalist.
        return timed(2.0**number)

    first, again = ScriptedDevice(answer), ScriptedDevice(answer)
    tuned(tmp_path, [SMALL], "direct", device=first)
    tuned(tmp_path, [SMALL], "direct", device=again)
    assert len(first.measured) == 6 and again.measured == []
