"""All outputs, or some where all take too long; which, and how much was spent on them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mapper.ast_model import evaluator, some_outputs
from mapper.ast_model.nodes import Program
from mapper.ast_model.outputs import outputs
from mapper.ast_model.text_form import parse
from mapper.errors import InputError, LimitError

PRODUCT = """program "p" {{ size M = {m} size N = {n} size K = {k}
    input a : [[float]K]M input b : [[float]K]N
    kernel out = map#r(x => join(map#c(y =>
      reduce((acc, k) => {step}, 0.0, zip(x, y)), b)), a) }}"""
LONGEST = "max(acc, add(k.0, k.1))"
SUM = "fma(k.0, k.1, acc)"


def product(m: int, n: int, k: int, step: str) -> tuple[Program, dict[str, np.ndarray]]:
    source = np.random.default_rng(4)
    a, b = (source.standard_normal((rows, k), dtype=np.float32) for rows in (m, n))
    return parse(PRODUCT.format(m=m, n=n, k=k, step=step)), {"a": a, "b": b}


def test_product_is_known_as_a_whole_in_no_time():
    program, inputs = product(1024, 1024, 1024, SUM)
    began = time.process_time()
    found = outputs(program, {}, inputs, 1)
    assert time.process_time() - began < 2.0
    assert found.known is None
    wanted = inputs["a"].astype(float) @ inputs["b"].astype(float).T
    np.testing.assert_allclose(found.values, wanted, atol=1e-9)


def test_some_outputs_are_exact_and_at_corners():
    program, inputs = product(2048, 1024, 1024, LONGEST)
    began = time.process_time()
    found = outputs(program, {}, inputs, 1)
    assert time.process_time() - began < 2.0
    known = np.argwhere(~np.isnan(found.values))
    assert found.known == len(known) >= 4096
    for row, column in ((0, 0), (0, 1023), (2047, 0), (2047, 1023)):
        assert not np.isnan(found.values[row, column])
    for row, column in known[::16]:
        total = np.max(inputs["a"][row].astype(float) + inputs["b"][column])
        assert found.values[row, column] == max(0.0, total)
    again = outputs(program, {}, inputs, 1)
    np.testing.assert_array_equal(again.values, found.values)
    other = outputs(program, {}, inputs, 2)
    assert not np.array_equal(np.isnan(other.values), np.isnan(found.values))


def test_later_kernels_see_outputs_that_are_not_all_known(monkeypatch: pytest.MonkeyPatch):
    program = parse(
        'program "p" { size N = 40 input a : [[float]N]N '
        "kernel one = map#r(x => map#c(v => mul(v, 2.0), x), a) "
        "kernel two = transpose(map#s(x => map#d(v => add(v, 1.0), x), one)) }"
    )
    inputs = {"a": np.arange(1600, dtype=np.float32).reshape(40, 40)}
    monkeypatch.setattr(evaluator, "MAX_OPERATIONS", 1)
    found = outputs(program, {}, inputs, 1, sampled=100)
    known = ~np.isnan(found.values)
    assert found.known == known.sum() >= 100
    np.testing.assert_array_equal(found.values[known], (2 * inputs["a"].T + 1)[known])


def test_where_single_outputs_take_too_long_nothing_is_known(monkeypatch: pytest.MonkeyPatch):
    program, inputs = product(8, 8, 8, SUM)
    monkeypatch.setattr(evaluator, "MAX_OPERATIONS", 1)
    monkeypatch.setattr(some_outputs, "MAX_ELEMENTS", 1)
    with pytest.raises(LimitError, match="depend on too many elements"):
        outputs(program, {}, inputs, 1, sampled=10)


def test_a_chain_of_outputs_that_is_too_long_to_follow_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Each kernel sees the one before; all at once that is no chain."""
    kernels = [
        f"kernel k{n} = map#m{n}(v => add(v, 1.0), {f'k{n - 1}' if n else 'a'})" for n in range(200)
    ]
    program = parse(f'program "p" {{ size N = 8 input a : [float]N {" ".join(kernels)} }}')
    inputs = {"a": np.arange(8, dtype=np.float32)}
    found = outputs(program, {}, inputs, 1)
    assert found.known is None
    np.testing.assert_array_equal(found.values, inputs["a"] + 200)
    monkeypatch.setattr(evaluator, "MAX_OPERATIONS", -1)
    with pytest.raises(LimitError, match="too long a chain"):
        outputs(program, {}, inputs, 1, sampled=4)


def test_inputs_are_checked():
    program, inputs = product(8, 8, 8, SUM)
    with pytest.raises(InputError, match="no array"):
        outputs(program, {}, {"a": inputs["a"]}, 1)
