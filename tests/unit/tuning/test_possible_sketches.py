"""Sketches that are known by their names, and derived when the search comes to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from db.store import Store
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, Problem
from mapper.layer_sets import layer_of_name
from mapper.pipeline import Subject, subject_of_layer
from mapper.profiles import load_profile
from mapper.variants import LAST_RESORT
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sketch_subjects import (
    PossibleSketch,
    derived,
    is_sketch,
    possible_subjects,
    sketched_subjects,
)
from nestmap.tuning.sources import Source
from tests.unit.tuning.test_several_kernels import SUBJECT as SEVERAL
from tests.unit.tuning.test_sketch_search import PRODUCT
from worker.devices.null import NullDevice

H200, POCL = load_profile("h200"), load_profile("pocl")
POINT = subject_of_layer(layer_of_name("mobilenet_v2/5"), LAST_RESORT)


@pytest.mark.parametrize(
    ("subject", "device"),
    [(PRODUCT, H200), (PRODUCT, POCL), (POINT, POCL)],
    ids=["product-h200", "product-pocl", "layer-pocl"],
)
def test_all_sketches_are_among_the_possible_ones_in_their_order(
    subject: Subject, device: DeviceProfile
) -> None:
    possible = possible_subjects(subject, device)
    assert not is_sketch(possible[-1])
    assert all(isinstance(one, PossibleSketch) for one in possible[:-1])
    assert derived(possible) == sketched_subjects(subject, device)
    assert {one.label for one in possible} == {subject.label}
    assert {one.layer for one in possible} == {subject.layer}


def test_what_is_no_program_of_one_kernel_is_derived_at_once() -> None:
    assert possible_subjects(SEVERAL, POCL) == sketched_subjects(SEVERAL, POCL)
    of_layer = subject_of_layer(layer_of_name("vgg16/7"), "direct")
    assert possible_subjects(of_layer, POCL) == (of_layer,)


def test_what_does_not_apply_or_does_the_same_again_is_not_tried(tmp_path: Path) -> None:
    (same,) = sketched_subjects(PRODUCT, H200, ["blocks-local-column"])
    assert same.scheduled is not None
    schedule = replace(same.scheduled.schedule, name="another-name")
    renamed = replace(same, scheduled=replace(same.scheduled, schedule=schedule))
    tuned = [
        PossibleSketch(PRODUCT, "blocks-of-nothing", H200),
        PossibleSketch(PRODUCT, "blocks-local-column", H200),
        renamed,
    ]
    with Store.open(tmp_path / "store.sqlite3") as store:
        result = tune(tuned, NullDevice(H200), store, budget=Budget(30))
        (counted,) = (s for s in store.studies() if store.measurements(s))
        assert result.refused == () and result.state.tried == 30
        assert counted.variant in ("blocks-local-column", renamed.variant)
        # The same command goes on where it stopped.
        again = tune(tuned, NullDevice(H200), store, budget=Budget(30))
        assert again.state.tried == 30 and again.front == result.front


def test_there_is_no_subject_of_what_does_not_apply() -> None:
    source = Source(0, PossibleSketch(PRODUCT, "blocks-of-nothing", H200), lambda _: None)  # pyright: ignore
    assert not source.exists and source.is_sketch and source.name == "blocks-of-nothing"
    with pytest.raises(InputError, match="does not apply"):
        _ = source.subject


def test_a_sketch_that_becomes_too_large_is_refused_and_the_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive = PossibleSketch.derive

    def too_large(self: PossibleSketch) -> Subject | None:
        if self.variant == "tile-column":
            raise LimitError(Problem("", "the program becomes too large"))
        return derive(self)

    monkeypatch.setattr(PossibleSketch, "derive", too_large)
    tuned = [PossibleSketch(PRODUCT, name, H200) for name in ("tile-column", "blocks-local-column")]
    with Store.open(tmp_path / "store.sqlite3") as store:
        result = tune(tuned, NullDevice(H200), store, budget=Budget(3))
    assert result.refused == ("tile-column: the program becomes too large",)
    assert result.state.tried == 3
