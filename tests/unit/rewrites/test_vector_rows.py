"""Rows of the image copied in vectors: where it applies, what it computes and what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import Subject, choices_of, derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.rewrites.blocking import Blocking
from mapper.rewrites.families import Family
from mapper.rewrites.rules import ImageToLocal, PadImage, VectorRows, rewritten
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.reference import convolve
from tests.conformance.random_layers import inputs_of

VARIANTS = (
    "tiled-vectors",
    "tiled-vectors-slices",
    "tiled-vectors-split",
    "tiled-vectors-slices-split",
)
PLAIN = LayerSpec(4, 8, 12, 8, 3, 3, pad_top=1, pad_left=1, layout=Layout.NCHW, name="plain")
OTHERS = (
    replace(PLAIN, kernel_height=1, kernel_width=1, pad_top=0, pad_left=0, name="pointwise"),
    replace(PLAIN, kernel_width=5, pad_left=3, pad_right=0, name="asymmetric"),
    replace(PLAIN, stride_y=2, stride_x=2, pad_left=0, name="strided"),
    replace(PLAIN, batch=2, groups=2, dilation_x=2, bias=True, activation="relu", name="all"),
)


def candidates(
    layer: LayerSpec, variant: str, count: int
) -> tuple[Subject, list[Mapping[Variable, int]]]:
    """Candidates as a search of an H200 proposes them, which keep every rule."""
    profile = load_profile("h200")
    subject = subject_of_layer(layer, variant)
    space = derive_space(subject, Mode.STRICT, profile, RuleOptions())
    proposals = BlockedProposals(
        layer, variant, subject, space, profile, Family.GROUPS, 5, smallest_group=1
    )
    return subject, proposals.propose(count)


@pytest.mark.parametrize(
    ("layer", "variant"),
    [(PLAIN, name) for name in VARIANTS] + [(layer, "tiled-vectors-slices") for layer in OTHERS],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_proposed_programs_compute_the_convolution(layer: LayerSpec, variant: str) -> None:
    subject, found = candidates(layer, variant, 2)
    assert found, "nothing was proposed"
    inputs = inputs_of(layer)
    expected = convolve(layer, **inputs)
    for assignment in found:
        values = choices_of(assignment).parameters
        result = interpret(subject.require_program(), values, inputs)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def copies(source: str) -> Iterator[str]:
    """The lines that load the image."""
    yield from (line for line in source.splitlines() if "g_image)[" in line or "g_image[" in line)


def test_one_guard_serves_a_vector_and_no_pixel_is_loaded_alone() -> None:
    subject, found = candidates(PLAIN, "tiled-vectors", 6)
    for assignment in found:
        width = assignment[ParameterVariable("iv")]
        lines = list(copies(generate_kernels(subject, assignment).source))
        assert lines
        for line in lines:
            assert f"(__global const float{width} *)g_image)[" in line
            assert line.count("g_image") == 1
            assert re.search(r"\? .* : \(float\d\)\(0\.0f\)\)", line), "outside there are zeros"


@pytest.mark.parametrize(
    ("layer", "field"),
    [
        (replace(PLAIN, layout=Layout.NHWC), "layer.layout"),
        (replace(PLAIN, width=7), "layer.width"),
    ],
)
def test_what_has_no_rows_of_vectors_is_refused(layer: LayerSpec, field: str) -> None:
    with pytest.raises(InputError, match=field):
        subject_of_layer(layer, "tiled-vectors")


def test_an_image_is_padded_first_or_copied_in_vectors() -> None:
    vectors = rewritten(PLAIN, ImageToLocal(), VectorRows())
    assert PadImage().why_not(vectors) is not None
    padded = rewritten(PLAIN, ImageToLocal(), PadImage())
    assert VectorRows().why_not(padded) is not None
    assert VectorRows().why_not(Blocking(PLAIN)) is not None
