"""Numbers as pages show them."""

from __future__ import annotations

import math

import pytest

from api.dashboard import formats
from api.dashboard.views.budgets import parsed_size


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0, "0 ms"), (1.0, "1.00 ms"), (12.345, "12.3 ms"), (999.4, "999 ms"),
        (1234.0, "1.23 s"), (0.0456, "45.6 µs"), (0.00000123, "1.23 ns"), (9.996, "10.0 ms"),
        (math.inf, "–"), (None, "–"),
    ],
)  # fmt: skip
def test_times_have_three_figures_and_the_unit_that_reads_best(ms, text):
    assert formats.time_ms(ms).replace(formats.SPACE, " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1536 * 1024, "1.50 MiB"), (None, "–")],
)
def test_sizes_are_exact_below_a_kibibyte(value, text):
    assert formats.size(value).replace(formats.SPACE, " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(45, "45 s"), (60, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (277_000, "3 d 4 h")],
)
def test_spans_have_two_units_at_most(value, text):
    assert formats.seconds(value).replace(formats.SPACE, " ") == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096), ("64 KiB", 65_536), ("1.5MiB", 1_572_864), ("2 M", 2_000_000),
        ("", None), ("-4", None), ("4 apples", None), ("1e9", None),
    ],
)  # fmt: skip
def test_an_amount_of_memory_is_read_as_people_write_it(text, value):
    assert parsed_size(text) == value
