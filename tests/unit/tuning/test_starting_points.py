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
from mapper.rewrites.families import Family
from mapper.search.goal import Fastest
from mapper.solver.space import check
from mapper.tuning_records import best_record, records_of, shipped_records
from nestmap.device_limits import limits_of_device
from nestmap.tuning.sources import ignore_refusals
from nestmap.tuning.starting_points import promises_on, records_for, source_of, tuned_variants
from nestmap.tuning.template_search import (
    STARTING_CANDIDATES,
    TemplateSearch,
    first_candidates,
)
from tests.unit.tuning.fakes import TINY

CPU, GPU = {"device.kind": "cpu"}, {"device.kind": "gpu"}


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (CPU, ("channelwise", "blocked", "blocked-in-place")),
        (GPU, ("tiled-slices", "tiled-vectors-slices", "tiled")),
        (GPU | {"device.name": "Mali-G72"}, ("direct", "partial")),
        ({"device.kind": "null"}, ("direct", "partial")),
    ],
)
def test_the_variants_that_are_tuned_suit_the_kind_of_device(
    facts: dict[str, str], first: tuple[str, ...]
) -> None:
    assert tuned_variants(facts)[: len(first)] == first
    assert {"direct", "partial"} <= set(tuned_variants(facts)), "the paper's programs are there"


def test_of_a_layer_the_variants_that_compute_it_are_tuned() -> None:
    depthwise = replace(TINY, groups=TINY.channels, filters=TINY.channels)
    assert tuned_variants(CPU, depthwise)[0] == "channelwise"
    assert "channelwise" not in tuned_variants(CPU, TINY)
    assert "direct" not in tuned_variants(GPU, depthwise)
    assert tuned_variants({"device.kind": "null"}, depthwise) == ("high-level",)


def test_what_was_fastest_for_like_layers_promises_most() -> None:
    h200 = GPU | {"device.name": "NVIDIA H200"}
    layer = replace(layer_of_name("vgg16/12"), layout=Layout.NCHW)
    best = best_record(shipped_records("h200"), layer)
    assert best is not None
    promises = promises_on(h200, layer)
    assert promises[best.variant] == min(promises.values())
    assert promises["direct" if "direct" in promises else "tiled-in-place"] > promises[best.variant]


def test_records_of_another_kind_of_device_are_no_start() -> None:
    mali = GPU | {"device.name": "Mali-G52"}
    gpu_of_pocl = GPU | {"platform.version": "OpenCL 3.0 PoCL 5.0", "device.name": "cuda-x"}
    layer = replace(layer_of_name("vgg16/17"), layout=Layout.NCHW)
    assert records_for(mali) == ()
    assert {r.variant.partition("-")[0] for r in records_for(gpu_of_pocl)} == {"tiled", "blocks"}
    assert tuned_variants(mali, layer)[0] == "tiled-in-place"


def test_a_layer_without_records_starts_from_the_tiles_of_layers_like_it() -> None:
    """On a device without any records too, from those of its kind: a start, never an answer."""
    layer = replace(layer_of_name("vgg16/17"), layout=Layout.NCHW, height=29, width=29)
    profile = load_profile("h200")
    for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
        facts = GPU | {"device.name": name}
        subject = subject_of_layer(layer, "tiled-slices")
        space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
        source = source_of(subject, space, profile, facts, "program")
        assert source.known == ()
        assert source.hints and source.family is Family.GROUPS
        search = TemplateSearch(source, profile, 0, Fastest(), ignore_refusals)
        first = [search.next() for _ in source.hints]
        tiles = [choices_of(c.assignment).parameters for c in first if c is not None]
        alike = [
            (found, hint)
            for found in tiles
            for hint in source.hints
            if all(found[name] == hint[name] for name in ("tm", "bc", "ks", "v"))
        ]
        assert len(alike) >= len(source.hints) // 2


@pytest.mark.parametrize(("variant", "facts"), [("blocked", CPU), ("tiled", GPU)])
def test_blocked_variants_start_from_valid_candidates_of_the_devices_family(
    variant: str, facts: dict[str, str]
) -> None:
    subject = subject_of_layer(TINY, variant)
    profile = load_profile("pocl")
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    source = source_of(subject, space, profile, facts, "program")
    found = first_candidates(source, profile)
    assert 0 < len(found) <= len(source.known) + STARTING_CANDIDATES
    assert found == first_candidates(source, profile), "from no clock"
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
    found = first_candidates(source_of(subject, space, narrow, facts, "program"), narrow)
    assert len(found) == 1 + STARTING_CANDIDATES
    assert {assignment[ParameterVariable("v")] for assignment in found} == {8}
    first, wide = choices_of(found[0]).parameters, best.choices["parameters"]
    for name in ("tr", "tp", "bc"):
        assert first[name] == wide[name]


def test_other_variants_start_from_records_alone() -> None:
    subject = subject_of_layer(TINY, "direct")
    profile = load_profile("pocl")
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    source = source_of(subject, space, profile, CPU, "program")
    assert first_candidates(source, profile) == ()
