"""A search of a layer starts from what suits the device, and from what was fast there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.cpu_targets import vector_bits
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import (
    Subject,
    assignment_to_json,
    choices_of,
    derive_space,
    subject_of_layer,
)
from mapper.profiles import load_profile
from mapper.solver.space import Space, check
from mapper.tuning_records import best_record, shipped_records
from mapper.variants import LAST_RESORT
from nestmap.device_limits import limits_of_device
from nestmap.tuning.record_subjects import subject_of_record
from nestmap.tuning.shorter_vectors import longest_vector
from nestmap.tuning.sketch_subjects import Tuned, layer_in, possible_subjects, with_suits
from nestmap.tuning.starting_points import paper_variants, records_for, source_of
from tests.spaces import derived
from tests.unit.tuning.fakes import TINY, draw_once
from tests.unit.tuning.records import SMALL, record

POCL = load_profile("pocl")
WRITTEN = subject_of_layer(SMALL, LAST_RESORT)
CPU, GPU = {"device.kind": "cpu"}, {"device.kind": "gpu"}
MALI = GPU | {"device.name": "Mali-G52"}
DEPTHWISE = replace(TINY, groups=TINY.channels, filters=TINY.channels)


@pytest.mark.parametrize(
    ("layer", "variants"),
    [
        (TINY, ("direct", "partial")),
        (replace(TINY, stride_y=2), ("direct",)),
        (DEPTHWISE, ("high-level",)),
    ],
    ids=["plain", "unequal strides", "depthwise"],
)
def test_the_papers_variants_are_those_that_compute_the_layer(
    layer: LayerSpec, variants: tuple[str, ...]
) -> None:
    assert paper_variants(layer) == variants


def promises(subjects: Sequence[Tuned], facts: dict[str, str]) -> dict[str, float]:
    sources = (
        source_of(subject, never_derived, POCL, facts, "program", index=index)
        for index, subject in enumerate(subjects)
    )
    return {source.name: source.promise for source in sources}


def never_derived(subject: Subject) -> Space:
    raise AssertionError(f"the space of {subject.variant} is derived")


@pytest.mark.parametrize(
    ("facts", "order"),
    [
        (CPU, ["tile-filter", LAST_RESORT, "direct"]),
        (GPU, ["tile-filter", LAST_RESORT, "direct"]),
        (MALI, ["direct", "tile-filter", LAST_RESORT]),
    ],
    ids=["cpu", "gpu", "mali"],
)
def test_the_papers_variants_promise_most_where_they_were_measured_and_least_elsewhere(
    facts: dict[str, str], order: list[str]
) -> None:
    subjects = [layer_in(SMALL, name, POCL) for name in order]
    for given in (subjects, subjects[::-1]):
        promised = promises(given, facts)
        assert sorted(promised, key=promised.__getitem__) == order
    sketches = promises(possible_subjects(WRITTEN, POCL), facts)
    assert list(sketches.values()) == sorted(set(sketches.values())), "in their maker's order"


def test_what_there_are_records_of_promises_more_than_the_first_sketch() -> None:
    """Of those of the layer, and of no other."""
    first, *others = (one for one in possible_subjects(WRITTEN, POCL))
    last = others[-2]
    for layer, has_record in ((SMALL, True), (TINY, False)):
        own = (record(layer=layer, variant=last.variant),)
        source = source_of(last, never_derived, POCL, CPU, "program", index=9, own=own)
        assert source.has_record is has_record
        assert (source.promise < promises([first], CPU)[first.variant]) is has_record


def test_records_of_another_kind_of_device_are_no_start() -> None:
    of_pocl = {"platform.version": "OpenCL 3.0 PoCL 5.0", "device.name": "cuda-x"}
    assert records_for(MALI) == records_for({"device.kind": "null"}) == ()
    # Of another device of its kind they are.
    unknown = {"device.name": "nobody's"}
    assert records_for(GPU | of_pocl) == records_for(GPU | unknown) == shipped_records("h200")
    assert records_for(CPU | of_pocl) == records_for(CPU | unknown) == shipped_records("pocl")
    assert records_for(GPU | {"device.name": "NVIDIA H200"}) == shipped_records("h200")


def test_on_a_target_of_shorter_vectors_nothing_longer_is_tried_first() -> None:
    """Records of AVX-512 come first all the same, in vectors of 8 filters."""
    layer = replace(layer_of_name("vgg16/24"), layout=Layout.NCHW)
    of_512 = [
        r for r in shipped_records("pocl")
        if r.schedule is not None and vector_bits(r.target) == 512
    ]  # fmt: skip
    best = best_record(of_512, layer)
    assert best is not None and best.choices["parameters"]["lanes_filter"] == 16
    narrow, facts = limits_of_device("pocl@haswell"), CPU | {"platform.version": "pocl"}
    subject = subject_of_record(best, narrow)

    def known(options: RuleOptions) -> tuple[Mapping[Variable, int], ...]:
        space = derive_space(subject, Mode.STRICT, narrow, options)
        found = source_of(subject, space, narrow, facts, "program").known
        assert {longest_vector(one) for one in found} <= {1, 2, 4, 8}
        assert all(not check(space, one) for one in found)
        return found

    found = known(DEFAULT_OPTIONS)
    first, wide = choices_of(found[0]).parameters, best.choices["parameters"]
    of_vectors = ("lanes", "copy", "own", "tile")
    assert {n for n, x in first.items() if x != wide[n]} <= {
        n for n in wide if n.startswith(of_vectors)
    }
    # And of these what suits the device, where a search keeps to that.
    assert {*map(repr, known(with_suits(subject, DEFAULT_OPTIONS)))} <= {*map(repr, found)}


def test_a_variant_of_the_papers_starts_from_its_own_records_alone() -> None:
    wanted = derived(TINY, "partial", POCL)
    one, other = (assignment_to_json(found) for found in draw_once(wanted.space, 2, 1))
    own = (
        record(layer=TINY, variant="partial", choices=one, time_ms=2.0),
        record(layer=TINY, variant="partial", choices=other, time_ms=1.0),
        record(layer=TINY, variant="direct", time_ms=0.5),
    )
    for given, known in ((own, [other, one]), ((), [])):
        source = source_of(wanted.subject, wanted.space, POCL, CPU, "program", own=given)
        assert [assignment_to_json(found) for found in source.known] == known
