"""When two plans are one kernel, and when they are not."""

from __future__ import annotations

import pytest

from bench.proofs.completeness.kernel_text import exact_form, normal_form
from mapper.pipeline import generate_kernels
from tests.unit.kernel_gen.listing1 import assignment, strict_space
from tests.unit.kernel_gen.test_sound_checker import subject_of

ROWS = """program "rows" { size N = 4 size M = 6 input x : [[float]M]N
  kernel out = map#A(r => map#B(v => add(v, 1.0), r), x) }"""


def form(codes: str, local: tuple[int, int, int]) -> str:
    subject = subject_of(ROWS)
    return normal_form(
        generate_kernels(subject, assignment(strict_space(subject), "A B", codes, local))
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("S S", (1, 1, 1)), ("L0 S", (1, 1, 1))),
        (("W0 S", (1, 1, 1)), ("G0 S", (1, 1, 1))),
        (("L0 S", (4, 1, 1)), ("G0 S", (4, 1, 1))),
        (("L0 L1", (2, 3, 1)), ("L1 L0", (3, 2, 1))),
        (("S S", (1, 1, 1)), ("S S", (4, 1, 1))),
    ],
)
def test_one_kernel(
    first: tuple[str, tuple[int, int, int]], second: tuple[str, tuple[int, int, int]]
) -> None:
    assert form(*first) == form(*second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("S S", (1, 1, 1)), ("L0 S", (2, 1, 1))),
        (("W0 S", (1, 1, 1)), ("L0 S", (4, 1, 1))),
        (("L0 S", (2, 1, 1)), ("L0 S", (4, 1, 1))),
        (("L0 S", (2, 1, 1)), ("S L0", (2, 1, 1))),
        (("L0 L1", (2, 3, 1)), ("L1 L0", (2, 3, 1))),
    ],
)
def test_two_kernels(
    first: tuple[str, tuple[int, int, int]], second: tuple[str, tuple[int, int, int]]
) -> None:
    assert form(*first) != form(*second)


def test_comments_make_no_plan_another() -> None:
    subject = subject_of(ROWS)
    renamed = subject_of(ROWS.replace('"rows"', '"lines"'))
    plans = [
        generate_kernels(item, assignment(strict_space(item), "A B", "W0 L0", (2, 1, 1)))
        for item in (subject, renamed)
    ]
    assert plans[0].source != plans[1].source
    assert exact_form(plans[0]) == exact_form(plans[1])
