"""Tolerance, protocol, comparison, checks and wire format: the pure parts of measuring."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.elements import Element
from mapper.errors import InputError
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
)
from tests.unit.worker.plans import DOUBLE, SIZE, one_kernel_plan
from worker.measuring.checks import check_plan, check_workload
from worker.measuring.comparison import NOT_FINITE_ERROR, compare
from worker.measuring.settings import Protocol, Tolerance
from worker.measuring.wire import (
    BadMessage,
    DeadlinePassed,
    StreamEnded,
    outcome_from_json,
    outcome_to_json,
    receive,
    send,
)


@given(st.integers(1, 8192), st.integers(0, 2**32 - 1))
def test_rounding_is_right_and_a_missing_term_is_wrong(length: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    left = random.standard_normal((16, length)).astype(np.float32)
    right = random.standard_normal((16, length)).astype(np.float32)
    expected = (left.astype(np.float64) * right).sum(axis=1)
    tolerance = Tolerance(length)
    in_order = np.zeros(16, np.float32)
    for term in range(length):
        in_order += left[:, term] * right[:, term]
    assert compare(in_order, expected, tolerance).wrong is None
    assert compare(in_order - left[:, 0] * right[:, 0], expected, tolerance).wrong is not None


def test_reference_of_zeros_allows_only_tiny_errors() -> None:
    zeros = np.zeros((2, 3))
    assert compare(zeros, zeros, Tolerance()).wrong is None
    off = zeros.copy()
    off[1, 2] = 1e-3
    wrong = compare(off, zeros, Tolerance()).wrong
    assert wrong is not None and wrong.first_bad_index == (1, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_has_the_largest_finite_error(value: float) -> None:
    comparison = compare(np.array([1.0, value]), np.ones(2), Tolerance(10**9, factor=1e9))
    assert comparison.max_relative_error == NOT_FINITE_ERROR
    assert comparison.wrong is not None and comparison.wrong.first_bad_index == (1,)


def test_slow_kernels_are_repeated_as_often_as_fits_and_fast_ones_until_full() -> None:
    protocol = Protocol(
        repetitions=10, max_repetitions=50, slow_after_ms=200, budget_ms=2000, fill_ms=5
    )
    assert protocol.timed_runs(0.0) == 50
    assert protocol.timed_runs(0.2) == 25
    assert protocol.timed_runs(100.0) == 10
    assert protocol.timed_runs(500.0) == 4
    assert protocol.timed_runs(60_000.0) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"warmup": -1},
        {"min_repetitions": 0},
        {"repetitions": 60},
        {"min_repetitions": 11},
        {"budget_ms": float("nan")},
    ],
)
def test_contradictory_protocols_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"protocol\."):
        Protocol(**arguments)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("arguments", [(0, 8.0), (1, 0.0), (1, float("inf"))])
def test_useless_tolerances_are_refused(arguments: tuple[int, float]) -> None:
    with pytest.raises(InputError, match=r"tolerance\."):
        Tolerance(*arguments)


def test_every_contradiction_of_a_plan_is_named() -> None:
    plan = one_kernel_plan(DOUBLE)
    launch = replace(plan.launches[0], arguments=("a", "c"), local_size=(15, 1, 1))
    small = replace(plan.buffers[1], bytes=4 * SIZE - 4)
    bad = replace(plan, buffers=(plan.buffers[0], small), launches=(launch,))
    with pytest.raises(InputError) as caught:
        check_plan(bad, {"a": (SIZE, 1)}, {"a": np.dtype(np.float32)})
    text = str(caught.value)
    for part in ("names no buffer", "do not divide", "unusable size", "input a does not fit"):
        assert part in text


OUTCOMES: list[Outcome] = [
    Timed((3, 1, 2), 1e-7, 12.5, {"driver.version": "1"}, (4, 1, 2)),
    Wrong(NOT_FINITE_ERROR, (0, 3), "wrong"),
    CompileError("no"),
    ResourceError("too much"),
    Timeout(2.5),
    Crash(-11, "SIGSEGV"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_outcomes_survive_the_pipe(outcome: Outcome) -> None:
    reader, writer = os.pipe()
    send(writer, outcome_to_json(outcome))
    assert outcome_from_json(receive(reader)) == outcome
    os.close(writer)
    with pytest.raises(StreamEnded):
        receive(reader)
    os.close(reader)


def test_a_recording_of_before_has_no_spans() -> None:
    value = outcome_to_json(Timed((3,), 0.0, 1.0, {}, (4,)))
    del value["spans_ns"]
    before = outcome_from_json(value)
    assert isinstance(before, Timed)
    assert before == Timed((3,), 0.0, 1.0) and before.span_ms == before.kernel_ms


def test_nonsense_on_the_pipe_is_refused_and_silence_ends_at_the_deadline() -> None:
    reader, writer = os.pipe()
    with pytest.raises(DeadlinePassed):
        receive(reader, time.monotonic() + 0.05)
    for body, prefix in ((b"", 2**60), (b"[1]", 3), (b"{x}", 3)):
        os.write(writer, struct.pack("<Q", prefix) + body)
        with pytest.raises(BadMessage):
            receive(reader, time.monotonic() + 1)
    os.close(reader)
    with pytest.raises(StreamEnded):
        send(writer, {})
    os.close(writer)


def test_16_bit_results_may_be_off_by_their_rounding_and_not_by_more():
    expected = np.linspace(1.0, 2.0, 1000)
    rounded = expected.astype(np.float16)
    assert compare(rounded, expected, Tolerance()).wrong is not None
    assert compare(rounded, expected, Tolerance(half_roundings=1)).wrong is None
    next_ones = np.nextafter(rounded, np.float16(3))
    assert compare(next_ones, expected, Tolerance(half_roundings=1)).wrong is not None
    with pytest.raises(InputError, match="half_roundings"):
        Tolerance(half_roundings=-1)


def test_integers_have_to_be_the_same_also_where_floats_would_not_tell():
    expected = np.array([2.0**31 - 1, 5.0, -(2.0**31)])
    output = expected.astype(np.int32)
    exact = Tolerance(4096, dtype=Element.INT32)
    assert exact.relative == 0.0
    assert compare(output, expected, exact).wrong is None
    output[0] -= 1
    assert compare(output, expected, Tolerance(4096)).wrong is None
    wrong = compare(output, expected, exact).wrong
    assert wrong is not None and wrong.first_bad_index == (0,)


def test_sums_in_16_bits_may_be_off_by_the_root_of_their_length():
    wide, short, long = (
        Tolerance(16),
        Tolerance(16, dtype="float16"),
        Tolerance(64, dtype="float16"),
    )
    assert short.relative == 2**13 * wide.relative
    assert long.relative == 2 * short.relative
    assert "dtype" not in wide.to_json()
    assert Tolerance(**long.to_json()) == long
    with pytest.raises(InputError, match=r"tolerance.dtype: must be of float32, float16, int8"):
        Tolerance(dtype="float64")


def test_inputs_of_another_element_type_than_their_buffers_are_refused():
    plan = one_kernel_plan(DOUBLE)
    with pytest.raises(InputError, match=r"input a has another type; found float16; .*float32"):
        check_plan(plan, {"a": (SIZE,)}, {"a": np.dtype(np.float16)})
    check_workload({"a": np.ones(3, np.float16)}, np.ones(3))
    with pytest.raises(InputError, match=r"inputs/a: of no element type; found float64"):
        check_workload({"a": np.ones(3)}, np.ones(3))
