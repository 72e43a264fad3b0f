"""Vectors are read through a padded border where none of them crosses it, and only there."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse
from mapper.pipeline import Subject, generate_kernels, subject_of_program
from mapper.solver.space import check
from tests.kernels import run_once
from tests.unit.kernel_gen.listing1 import assignment, strict_space
from tests.unit.kernel_gen.test_sound_checker import inputs_of
from worker.oclgrind import check as oclgrind_check

#: How many elements there are, pads before and behind, the length of a row; the widths of vectors
#: that none of the border's ends lies in.
BORDERS = [
    (20, (0, 12), 4, {2, 4}),
    (20, (0, 12), 8, {2, 4}),
    (16, (0, 16), 8, {2, 4, 8}),
    (20, (4, 8), 8, {2, 4}),
    (20, (2, 10), 8, {2}),
    (16, (8, 8), 8, {2, 4, 8}),
    (20, (3, 9), 8, set[int]()),
    (19, (0, 13), 8, set[int]()),
    (24, (-4, 12), 8, {2, 4}),
    (24, (-3, 11), 8, set[int]()),
]


def padded(length: int, pads: tuple[int, int], row: int) -> Subject:
    front, behind = pads
    return subject_of_program(
        parse(
            f"""
program "padded" {{
  size N = {length}
  fun f(x) = x * 2.0
  input x : [float]N
  kernel out = map#r(row => map#v(v => f(v), row), split({row}, pad({front}, {behind}, 0.5, x)))
}}
"""
        )
    )


@pytest.mark.parametrize(("length", "pads", "row", "widths"), BORDERS)
def test_a_width_is_allowed_that_no_end_of_a_border_lies_in(
    length: int, pads: tuple[int, int], row: int, widths: set[int]
) -> None:
    space = strict_space(padded(length, pads, row))
    for width in (2, 4, 8):
        if row % width == 0:
            found = check(space, assignment(space, "r v", f"S V{width}", (1, 1, 1)))
            assert tuple(v.constraint for v in found) == (
                () if width in widths else ("vectorisation/v",)
            ), width


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize(
    ("length", "pads", "row", "width"),
    [(n, pads, row, width) for n, pads, row, widths in BORDERS for width in sorted(widths)[-1:]],
)
def test_kernels_read_such_a_border_in_whole_vectors(
    length: int, pads: tuple[int, int], row: int, width: int
) -> None:
    subject = padded(length, pads, row)
    space = strict_space(subject)
    plan = generate_kernels(subject, assignment(space, "r v", f"S V{width}", (1, 1, 1)))
    body = plan.source[plan.source.index("__kernel") :]
    assert re.search(rf"vload{width}|global const float{width} \*\)g_x", body), body
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {}, inputs)
    np.testing.assert_allclose(run_once(plan, inputs).reshape(expected.shape), expected)
    report = oclgrind_check(plan, inputs, expected.astype(np.float32))
    assert report.ok, (report.messages, plan.source)
