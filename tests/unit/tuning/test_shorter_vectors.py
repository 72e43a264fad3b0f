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
    assignment_to_json,
    choices_of,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from mapper.rewrites.families import Family
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.sampling import sample
from mapper.tuning_records import best_record, shipped_records
from nestmap.device_limits import limits_of_device
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.proposals.shorter_vectors import fitting, longest_vector, readable
from nestmap.tuning.record_subjects import schedule_of
from nestmap.tuning.reference import make_workload
from nestmap.tuning.sketch_subjects import layer_in, with_suits
from nestmap.tuning.valid_records import as_recorded, plan_of
from tests.kernels import run_once
from tests.spaces import Derived, derived
from tests.unit.tuning.records import record

WIDE, NARROW = limits_of_device("pocl"), limits_of_device("pocl@haswell")
SMALL = LayerSpec(channels=16, height=9, width=9, filters=32, kernel_height=3, kernel_width=3,
                  pad_top=1, pad_left=1, pad_bottom=1, pad_right=1,
                  layout=Layout.NCHW)  # fmt: skip


def wide_choices(wanted: Derived, count: int = 1) -> list[dict[str, object]]:
    """The first proposals in vectors of 16 filters, as records have them."""
    proposals = BlockedProposals(
        wanted.layer, wanted.variant, wanted.subject, wanted.space, WIDE, Family.SINGLE, 0
    )
    found = [a for a in proposals.propose(64) if longest_vector(a) == 16]
    return [assignment_to_json(assignment) for assignment in found[:count]]


def values(assignment: Mapping[Variable, int]) -> dict[str, int]:
    return {v.name: x for v, x in assignment.items() if isinstance(v, ParameterVariable)}


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NCHW16C])
@pytest.mark.parametrize("variant", ["blocked", "blocked-bands"])
def test_a_work_item_keeps_its_sums_and_makes_fewer_filters(variant: str, layout: Layout) -> None:
    wanted = derived(replace(SMALL, layout=layout), variant, NARROW)
    stored = wide_choices(wanted, 3)
    before = readable(wanted.space, stored)
    after = fitting(wanted.subject, wanted.space, NARROW, stored)
    assert len(before) == len(after) == 3
    for old, new in zip(map(values, before), map(values, after), strict=True):
        assert (new["v"], new["tm"]) == (8, old["tm"] // 2)
        assert {k: x for k, x in new.items() if k not in ("v", "tm", "bm")} == {
            k: x for k, x in old.items() if k not in ("v", "tm", "bm")
        }


@pytest.mark.kernels
def test_the_shorter_form_computes_the_same() -> None:
    wanted = derived(SMALL, "blocked", NARROW)
    (shorter,) = fitting(wanted.subject, wanted.space, NARROW, wide_choices(wanted))
    assert wanted.subject.program is not None
    plan = generate_kernels(wanted.subject, shorter)
    assert "float8" in plan.source and "float16" not in plan.source
    inputs = make_workload(wanted.subject, 1, {}).inputs
    expected = interpret(wanted.subject.program, dict(choices_of(shorter).parameters), inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)


def test_what_fits_stays_as_it_is() -> None:
    wanted = derived(SMALL, "blocked", WIDE)
    stored = wide_choices(wanted, 2)
    assert fitting(wanted.subject, wanted.space, WIDE, stored) == readable(wanted.space, stored)


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


@pytest.mark.parametrize("of_sketch", [False, True], ids=["variant", "sketch"])
def test_shipped_kernels_of_longer_vectors_are_made_in_the_devices_own(of_sketch: bool) -> None:
    of_512 = [
        r for r in shipped_records("pocl")
        if vector_bits(r.target) == 512 and (r.schedule is not None) == of_sketch
    ]  # fmt: skip
    best = best_record(of_512, replace(named_layer("vgg16/24"), layout=Layout.NCHW))
    assert best is not None
    assert best.choices["parameters"]["lanes_filter" if of_sketch else "v"] == 16
    wide, narrow = plan_of(best, WIDE), plan_of(best, NARROW)
    assert "float16" in wide.source and "float16" not in narrow.source and "float8" in narrow.source


@pytest.mark.kernels
def test_a_sketch_in_shorter_lanes_keeps_its_sums_and_computes_the_same() -> None:
    wide = layer_in(SMALL, "tile-packed-filter", WIDE)
    space = derive_space(wide, Mode.STRICT, WIDE, with_suits(wide, DEFAULT_OPTIONS))
    draws, lanes = SuitedSpace(space), ParameterVariable("lanes_filter")
    random = Random(5)
    drawn = (draws.draw_joint(random) or {} for _ in range(1000))
    stored = next(one for one in drawn if one[lanes] == 16)
    kept = record(layer=SMALL, variant="tile-packed-filter", schedule=schedule_of(wide),
                  choices=assignment_to_json(stored))  # fmt: skip
    plan = plan_of(kept, NARROW)
    assert "float8" in plan.source and "float16" not in plan.source
    inputs = make_workload(subject_of_layer(SMALL, "high-level"), 1, {}).inputs
    assert wide.program is not None
    expected = interpret(wide.program, values_of(stored), inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)


def values_of(assignment: Mapping[Variable, int]) -> dict[str, int]:
    return dict(choices_of(assignment).parameters)
