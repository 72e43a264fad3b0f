"""Square root, absolute value, comparison and selection: read, typed, interpreted, in kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nodes import Apply, Op
from mapper.ast_model.printer import function_text
from mapper.ast_model.text_form import parse, parse_function, to_text
from mapper.ast_model.type_check import check_program
from mapper.errors import InputError, TypeErrors
from mapper.kernel_gen.generate import Choices, generate
from mapper.schedule import ScheduleCode
from tests.kernels import run_once

X = np.array([-3, -2, -1, -0.0, 0, 1, 2, 3, -8, 8, 0.5, -0.5, 4, 9, 16, 2.25], np.float32)
SEQUENTIAL = Choices({}, {1: ScheduleCode.SEQUENTIAL}, {})


def text_of(function: str, body: str = "map#1(a => f(a), x)", element: str = "float") -> str:
    return f'program "t" {{ fun f(v) = {function} input x : [{element}]16 kernel k = {body} }}'


@pytest.mark.parametrize(
    "text",
    [
        "select(v < 0.0, 0.1 * v, v)",
        "select(v + 1.0 >= v * v, v, select(v == 2.0, 1.0, v))",
        "sqrt(abs(v)) - 1.0",
    ],
)
def test_functions_are_printed_as_they_are_read(text: str) -> None:
    program = parse(text_of(text))
    assert f"= {text}\n" in to_text(program)
    assert parse(to_text(program)) == program
    assert program_from_json(program_to_json(program)) == program


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_bind_weaker_than_sums_and_do_not_chain(op: str) -> None:
    assert parse_function(f"a + b {op} c - -1.0") == Apply(
        Op(op), (Apply(Op.ADD, ("a", "b")), Apply(Op.SUB, ("c", -1.0)))
    )
    with pytest.raises(InputError, match="not understood"):
        parse_function(f"a {op} b {op} c")
    nested = f"(a {op} b) {op} c + (a {op} b)"
    read = parse_function(nested)
    assert isinstance(read, Apply) and read.op is Op(op)
    assert function_text(read) == nested


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("v < 1.0", r"in f, conditions are not stored; found a condition as the result; "
         r"allowed: a number \(try: select\(…, 1.0, 0.0\) makes a number of it\)"),
        ("(v < 1.0) + v", r"in f, \+ works on numbers of one type; found a condition and float; "),
        ("select(v, v, v)", "in f, select takes a condition first; found float; "
         "allowed: a condition"),
        ("select(v < 1.0, v, v < 2.0)", "in f, select chooses between numbers of one type; "
         "found float and a condition"),
        ("select(v < 1.0, half_of(v), v)", "found half and float; allowed: float and float"),
        ("select(v < 1.0, v)", "wrong number of operands of select; found 2; allowed: 3"),
        ("sqrt(v, v)", "wrong number of operands of sqrt; found 2; allowed: 1"),
    ],
)  # fmt: skip
def test_what_is_no_number_and_no_condition_is_named(function: str, message: str) -> None:
    with pytest.raises(TypeErrors, match=message):
        check_program(parse(text_of(function)))


def test_what_is_compared_may_have_another_type_than_what_is_chosen() -> None:
    check_program(parse(text_of("select(float_of(v) < 1.0, v, 2.0)", element="half")))
    with pytest.raises(TypeErrors, match="in f, < works on numbers of one type; found half and"):
        check_program(parse(text_of("select(v < float_of(v), v, v)", element="half")))


@pytest.mark.parametrize(
    ("function", "meaning"),
    [
        ("sqrt(abs(v))", lambda x: np.sqrt(np.abs(x))),
        ("select(v < 0.0, 0.5 * v, v)", lambda x: np.where(x < 0, x / 2, x)),
        ("select(v <= 2.0, 1.0, 2.0)", lambda x: np.where(x <= 2, 1, 2)),
        ("select(2.0 > v, v, 7.0)", lambda x: np.where(x < 2, x, 7)),
        ("select(v >= 0.0, v, 0.0 - v)", np.abs),
        ("select(v == 0.0, 5.0, v)", lambda x: np.where(x == 0, 5, x)),
        ("select(v != 0.0, 1.0, 0.0)", lambda x: np.where(x != 0, 1, 0)),
        ("select(1.0 < 2.0, v, 0.0)", lambda x: x),
        ("select(sum(v) < 0.0, v, 2.0 * v)", None),
    ],
)
@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.kernels
def test_kernels_compute_what_the_interpreter_does(
    function: str, meaning: object, width: int
) -> None:
    x = X if width != 3 else X[:15]
    body = "map#1(a => f(a), x)"
    if width > 1:
        body = f"as_scalar(map#1(a => f(a), as_vector({width}, x)))"
    program = parse(text_of(function, body).replace("[float]16", f"[float]{len(x)}"))
    expected: NDArray[np.float64] = interpret(program, {}, {"x": x})
    if callable(meaning):
        np.testing.assert_array_equal(expected, meaning(x.astype(np.float64)))
    found = run_once(generate(program, SEQUENTIAL), {"x": x}).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_built_in_functions_have_the_same_names() -> None:
    x = np.abs(X)
    for name, meaning in (("sqrt", np.sqrt), ("abs", np.abs), ("exp", np.exp)):
        program = parse(text_of("v", f"map#1(a => {name}(a), x)"))
        found = interpret(program, {}, {"x": x})
        np.testing.assert_allclose(found, meaning(x.astype(np.float64)))
    halved = parse(text_of("v", "map#1(a => div(a, 2.0), x)"))
    np.testing.assert_array_equal(interpret(halved, {}, {"x": x}), x / 2)


def test_a_select_of_a_scalar_condition_takes_whole_vectors() -> None:
    body = "as_scalar(map#1(a => f(a, 0.5), as_vector(4, x)))"
    text = text_of("v", body).replace("f(v) = v", "f(v, t) = select(t < 1.0, v, t)")
    source = generate(parse(text), SEQUENTIAL).source
    assert "(0.5f < 1.0f) ?" in source
    assert "select(" not in source
