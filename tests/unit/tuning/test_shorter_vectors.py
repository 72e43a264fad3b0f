"""What was found for longer vectors than a device has is had there in its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.constraint_rules.rule import Mode
from mapper.cpu_targets import vector_bits
from mapper.device_profile import DeviceProfile
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import (
    Subject,
    assignment_to_json,
    choices_of,
    derive_space,
    subject_of_layer,
)
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.sampling import sample
from mapper.tuning_records import best_record, shipped_records
from nestmap.device_limits import limits_of_device
from nestmap.tuning.record_subjects import schedule_of
from nestmap.tuning.reference import make_workload
from nestmap.tuning.shorter_vectors import fitting, longest_vector, readable
from nestmap.tuning.sketch_subjects import layer_in, with_suits
from nestmap.tuning.valid_records import as_recorded, plan_of
from tests.kernels import run_once
from tests.spaces import derived
from tests.unit.tuning.records import record

WIDE, NARROW = limits_of_device("pocl"), limits_of_device("pocl@haswell")
SMALL = LayerSpec(channels=16, height=9, width=9, filters=32, kernel_height=3, kernel_width=3,
                  pad_top=1, pad_left=1, pad_bottom=1, pad_right=1,
                  layout=Layout.NCHW)  # fmt: skip
LANES = ParameterVariable("lanes_filter")


def wide_choices(subject: Subject, count: int) -> list[dict[str, object]]:
    """Mappings of a sketch in vectors of 16 filters, as records have them."""
    space = derive_space(subject, Mode.STRICT, WIDE, with_suits(subject, DEFAULT_OPTIONS))
    draws, random = SuitedSpace(space), Random(5)
    found: list[dict[str, object]] = []
    while len(found) < count:
        drawn = draws.draw_joint(random) or {}
        if drawn[LANES] == 16:
            found.append(assignment_to_json(drawn))
    return found


def values(assignment: Mapping[Variable, int]) -> dict[str, int]:
    return dict(choices_of(assignment).parameters)


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NCHW16C])
@pytest.mark.parametrize("sketch", ["tile-packed-filter", "blocks-packed-filter"])
def test_a_work_item_keeps_its_sums_and_makes_fewer_filters(sketch: str, layout: Layout) -> None:
    subject = layer_in(replace(SMALL, layout=layout), sketch, WIDE)
    space = derive_space(subject, Mode.STRICT, NARROW, DEFAULT_OPTIONS)
    stored = wide_choices(subject, 3)
    before = readable(space, stored)
    after = fitting(subject, space, NARROW, stored)
    assert len(before) == len(after) == 3
    for old, new in zip(map(values, before), map(values, after), strict=True):
        halved = {"lanes_filter", "own_filter", "tile_filter"} & old.keys()
        # Vectors that are only copied are of 8, too.
        halved |= {name for name, x in old.items() if name.startswith("copy") and x == 16}
        assert new == {name: x // 2 if name in halved else x for name, x in old.items()}


def test_what_fits_stays_as_it_is() -> None:
    subject = layer_in(SMALL, "tile-packed-filter", WIDE)
    space = derive_space(subject, Mode.STRICT, WIDE, DEFAULT_OPTIONS)
    stored = wide_choices(subject, 2)
    assert fitting(subject, space, WIDE, stored) == readable(space, stored)


@pytest.mark.parametrize("device", [WIDE, NARROW], ids=["16 floats", "8 floats"])
def test_a_mapping_whose_vectors_are_codes_alone_has_no_shorter_form(device: DeviceProfile) -> None:
    wanted = derived(replace(SMALL, layout=Layout.NHWC), "partial", device)
    wide = next(one for one in sample(wanted.space, 16, 1) if longest_vector(one) == 16)
    stored = assignment_to_json(wide)
    found = fitting(wanted.subject, wanted.space, device, [stored])
    assert found == ([wide] if device is WIDE else [])
    # Whoever wants this record and no other has it all the same.
    kept = record(layer=wanted.layer, variant="partial", choices=stored)
    assert as_recorded(wanted.subject, wanted.space, device, kept) == wide


def test_shipped_kernels_of_longer_vectors_are_made_in_the_devices_own() -> None:
    of_512 = [
        r for r in shipped_records("pocl")
        if r.schedule is not None and vector_bits(r.target) == 512
    ]  # fmt: skip
    best = best_record(of_512, replace(named_layer("vgg16/24"), layout=Layout.NCHW))
    assert best is not None and best.choices["parameters"]["lanes_filter"] == 16
    wide, narrow = plan_of(best, WIDE), plan_of(best, NARROW)
    assert "float16" in wide.source and "float16" not in narrow.source and "float8" in narrow.source


@pytest.mark.kernels
@pytest.mark.parametrize("sketch", ["tile-packed-filter", "blocks-packed-filter"])
def test_a_sketch_in_shorter_lanes_computes_the_same(sketch: str) -> None:
    wide = layer_in(SMALL, sketch, WIDE)
    (choices,) = wide_choices(wide, 1)
    kept = record(layer=SMALL, variant=sketch, schedule=schedule_of(wide), choices=choices)
    plan = plan_of(kept, NARROW)
    assert "float8" in plan.source and "float16" not in plan.source
    inputs = make_workload(subject_of_layer(SMALL, "high-level"), 1, {}).inputs
    expected = interpret(wide.require_program(), kept.choices["parameters"], inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)
