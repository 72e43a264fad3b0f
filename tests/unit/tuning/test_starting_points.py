"""A search of a layer starts from what suits the device, whatever the space holds beside it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.constraint_rules.rule import Mode
from mapper.cpu_targets import vector_bits
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import Layout
from mapper.pipeline import choices_of, derive_space, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.space import check
from mapper.tuning_records import best_record, records_of, shipped_records
from nestmap.device_limits import limits_of_device
from nestmap.tuning.starting_points import (
    STARTING_CANDIDATES,
    starting_candidates,
    tuned_variants,
)
from tests.unit.tuning.fakes import TINY

CPU, GPU = {"device.kind": "cpu"}, {"device.kind": "gpu"}


@pytest.mark.parametrize(
    ("facts", "own"), [(CPU, ("blocked", "blocked-in-place")), (GPU, ()), ({}, ())]
)
def test_the_variants_that_are_tuned_suit_the_kind_of_device(
    facts: dict[str, str], own: tuple[str, ...]
) -> None:
    assert tuned_variants(facts) == (*own, "direct", "partial")


def test_of_a_layer_the_variants_that_compute_it_are_tuned() -> None:
    assert tuned_variants(CPU, TINY) == tuned_variants(CPU)
    depthwise = replace(TINY, groups=TINY.channels, filters=TINY.channels)
    assert tuned_variants(CPU, depthwise) == ("channelwise", "blocked", "blocked-in-place")
    assert tuned_variants(GPU, depthwise) == ("high-level",)


def test_the_variant_of_a_layers_fastest_record_is_tuned_first() -> None:
    h200 = GPU | {"device.name": "NVIDIA H200"}
    layer = replace(layer_of_name("vgg16/17"), layout=Layout.NCHW)
    best = best_record(shipped_records("h200"), layer)
    assert best is not None
    assert tuned_variants(h200, layer) == (best.variant,)
    assert tuned_variants(GPU, layer) == ("high-level",), "nothing is known of it there"
    pocl = CPU | {"platform.version": "OpenCL 2.0 pocl 3.0-rc2"}
    in_place = next(
        r.layer for r in shipped_records("pocl")
        if best_record(shipped_records("pocl"), r.layer) is r and r.variant == "blocked-in-place"
    )  # fmt: skip
    assert tuned_variants(CPU, in_place)[:2] == ("blocked", "blocked-in-place")
    assert tuned_variants(pocl, in_place)[:2] == ("blocked-in-place", "blocked")


@pytest.mark.parametrize(("variant", "facts"), [("blocked", CPU), ("tiled", GPU)])
def test_blocked_variants_start_from_valid_candidates_of_the_devices_family(
    variant: str, facts: dict[str, str]
) -> None:
    subject = subject_of_layer(TINY, variant)
    profile = load_profile("pocl")
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    found = starting_candidates(subject, space, profile, facts)
    assert 0 < len(found) <= STARTING_CANDIDATES
    assert found == starting_candidates(subject, space, profile, facts), "from no clock"
    for assignment in found:
        assert check(space, assignment) == ()
        assert ParameterVariable("tm") in assignment
        sizes = choices_of(assignment).local_sizes["convolution"]
        if variant == "blocked":
            # Each work-item works alone, whatever stands beside it.
            assert sizes[0] in (1, 4, 16) and sizes[1:] == (1, 1)
        else:
            assert prod(sizes) > 1


def test_on_a_target_of_shorter_vectors_nothing_longer_is_tried_first() -> None:
    """Records of AVX-512 come first all the same, in vectors of 8 filters."""
    layer = layer_of_name("resnet50/3")
    (best,) = (r for r in records_of(shipped_records("pocl"), layer) if r.variant == "blocked")
    assert vector_bits(best.target) == 512
    narrow, facts = limits_of_device("pocl@haswell"), CPU | {"platform.version": "pocl"}
    subject = subject_of_layer(layer, "blocked")
    space = derive_space(subject, Mode.STRICT, narrow, DEFAULT_OPTIONS)
    found = starting_candidates(subject, space, narrow, facts)
    assert len(found) == 1 + STARTING_CANDIDATES
    assert {assignment[ParameterVariable("v")] for assignment in found} == {8}
    first, wide = choices_of(found[0]).parameters, best.choices["parameters"]
    for name in ("tr", "tp", "bc"):
        assert first[name] == wide[name]


def test_other_variants_start_from_records_alone() -> None:
    subject = subject_of_layer(TINY, "direct")
    profile = load_profile("pocl")
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    assert starting_candidates(subject, space, profile, CPU) == ()
