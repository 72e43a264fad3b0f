"""Single primitives against NumPy, and what the interpreter refuses."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model import interpreter
from mapper.ast_model.interpreter import interpret, interpret_all
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse
from mapper.errors import InputError, LimitError

X = np.arange(12.0)
M = np.arange(12.0).reshape(3, 4) - 5


def program(body: str) -> Program:
    return parse(
        'program "t" { size N = 12 param p in {1, 2, 5} input x : [float]N '
        f"input m : [[float]4]3 kernel k = {body} }}"
    )


def run(body: str, p: int = 2) -> np.ndarray:
    return interpret(program(body), {"p": p}, {"x": X, "m": M})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x", X),
        ("map#1(a => 2.5, x)", np.full(12, 2.5)),
        ("reduce((s, a) => fma(a, a, s), 1.0, x)", np.array([1 + (X**2).sum()])),
        ("map#1(t => sub(t.1, t.0), zip(x, reorder(reverse, x)))", X[::-1] - X),
        ("split(p, x)", X.reshape(6, 2)),
        ("join(m)", M.ravel()),
        ("transpose(m)", M.T),
        ("slide(5, 3, x)", np.stack([X[0:5], X[3:8], X[6:11]])),
        ("pad(2, -10, 7.0, x)", np.array([7.0, 7, 0, 1])),
        ("pad(-20, 10, 7.0, x)", np.array([7.0, 7])),
        ("pad(1, 0, 0.0, m)", np.vstack([np.zeros(4), M])),
        ("reorder(stride(4), x)", X.reshape(3, 4).T.ravel()),
        ("as_vector(4, x)", X.reshape(3, 4)),
        ("map#1(a => dot(a, a), as_vector(4, x))", (X.reshape(3, 4) ** 2).sum(1)),
        ("as_scalar(map#1(a => max(a, 5.0), as_vector(4, x)))", np.maximum(X, 5)),
        ("map#1(r => join(map#2(c => reduce((s, a) => add(s, a), c, r), r)), m)",
         M + M.sum(1, keepdims=True)),
        ("map#1(r => map#2(a => add(a, 1.0), r), m)", M + 1),
        ("map#1(a => map#2(b => mul(a, b), x), x)", np.outer(X, X)),
        ("fill(3.0, 2, p)", np.full((2, 2), 3.0)),
        ("let y = map#1(a => to_private(add(a, a)), x) in map#2(a => id(a), y)", 2 * X),
    ],
)  # fmt: skip
def test_primitives(body: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(run(body), expected)


def test_kernels_follow_each_other_and_dtype_is_kept() -> None:
    text = (
        'program "t" { size N = 4 input x : [float]N kernel a = map#1(v => add(v, 1.0), x) '
        "kernel b = map#2(v => mul(v, v), a) }"
    )
    results = interpret_all(parse(text), {}, {"x": np.ones(4, np.float32)}, np.float32)
    assert {name: (r.dtype, r[0]) for name, r in results.items()} == {
        "a": (np.float32, 2),
        "b": (np.float32, 4),
    }


def test_results_are_the_callers_own() -> None:
    given = X.copy()
    result = interpret(program("x"), {"p": 1}, {"x": given, "m": M})
    result[0] = 99
    assert given[0] == 0


def test_broken_obligations_are_all_named() -> None:
    with pytest.raises(InputError) as caught:
        run("map#1(t => id(t), join(split(p, reorder(stride(p), x))))", p=5)
    assert [p.path for p in caught.value.problems] == [
        "kernels/k/body/argument/argument/argument",
        "kernels/k/body/argument/argument",
    ]
    assert "p = 5" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "inputs", "words"),
    [
        ({}, {"x": X, "m": M}, "no value"),
        ({"p": 3}, {"x": X, "m": M}, "not among"),
        ({"p": 2, "q": 1}, {"x": X, "m": M}, "no such tuning parameter"),
        ({"p": 2}, {"x": X}, "no array"),
        ({"p": 2}, {"x": X[1:], "m": M}, "another shape"),
        ({"p": 2}, {"x": X.astype(complex), "m": M}, "real numbers"),
        ({"p": 2}, {"x": X, "m": M, "y": X}, "no such input"),
    ],
)
def test_values_and_inputs_are_checked(
    values: dict[str, int], inputs: dict[str, np.ndarray], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        interpret(program("x"), values, inputs)


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimitError, match="too large to interpret"):
        run("join(fill(0.0, 1000000000, 1000000000))")
    monkeypatch.setattr(interpreter, "MAX_ELEMENTS", 100)
    with pytest.raises(LimitError):
        run("map#1(a => map#2(b => mul(a, b), x), x)")
