"""What holds of every program: both forms give it back, and it has one meaning."""

from __future__ import annotations

import json
import warnings

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.index_expr import Expr, exact_div, symbol
from mapper.ast_model.interpreter import interpret_all
from mapper.ast_model.nodes import FunctionExpr
from mapper.ast_model.printer import function_text
from mapper.ast_model.text_form import parse, parse_expr, parse_function, to_text
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import Type, VectorType, dimensions
from mapper.elements import Element
from mapper.errors import InputError
from tests.property.programs import Case, cases, expressions, function_bodies, typed_cases
from tests.property.slow_meaning import slow_meaning


def shape_of(type_: Type, values: dict[str, int]) -> tuple[int, ...]:
    lengths, element = dimensions(type_)
    if isinstance(element, VectorType):
        lengths = (*lengths, element.width)
    return tuple(length.evaluate(values) for length in lengths)


@given(cases())
def test_text_gives_a_program_back(case: Case) -> None:
    assert parse(to_text(case.program)) == case.program


@given(cases())
def test_json_gives_a_program_back(case: Case) -> None:
    assert program_from_json(json.dumps(program_to_json(case.program))) == case.program


@given(cases())
def test_obligations_hold_and_types_say_the_shapes(case: Case) -> None:
    types = check_program(case.program)
    numbers = {**dict(case.program.sizes), **case.values}
    assert all(obligation.holds(numbers) for obligation in types.obligations)
    results = interpret_all(case.program, case.values, case.inputs)
    for name, result in results.items():
        assert result.shape == shape_of(types.kernel_types[name], numbers)


@given(cases())
def test_batched_and_slow_meanings_agree(case: Case) -> None:
    fast = interpret_all(case.program, case.values, case.inputs)
    slow = slow_meaning(case.program, case.values, case.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinities may meet
        for name, expected in slow.items():
            np.testing.assert_allclose(fast[name], expected, rtol=1e-9, atol=1e-9)


@given(typed_cases())
def test_the_meanings_are_the_same_in_every_element_type(typed: tuple[Case, Element]) -> None:
    case, element = typed

    def held(value: float) -> float:
        if not element.is_integer:
            return float(np.float16(value))
        low, high = element.range
        return (int(value) - low) % (high - low + 1) + low

    fast = interpret_all(case.program, case.values, case.inputs)
    slow = slow_meaning(case.program, case.values, case.inputs, held)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinities may meet
        for name, expected in slow.items():
            assert fast[name].dtype == element.value
            np.testing.assert_array_equal(fast[name], expected)


@given(expressions())
@example(-exact_div(symbol("a"), symbol("b")))
def test_text_gives_an_expression_back(expression: Expr) -> None:
    assert parse_expr(str(expression)) == expression


@given(function_bodies(("x", "y")))
def test_text_gives_a_function_back(body: FunctionExpr) -> None:
    assert parse_function(function_text(body)) == body


@given(st.text(max_size=60) | st.text("ab019+-*/%() ._", max_size=60))
def test_any_text_is_an_expression_or_an_input_error(text: str) -> None:
    try:
        parse_expr(text)
    except InputError as error:
        assert error.problems


@given(st.text(max_size=80))
def test_any_text_is_a_program_or_an_input_error(text: str) -> None:
    try:
        parse('program "x" {' + text)
    except InputError as error:
        assert error.problems


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["op", "name", "kernels", "body", "argument", "schema", "inputs", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_value_is_a_program_or_an_input_error(value: object) -> None:
    try:
        program_from_json(value)
    except InputError as error:
        assert error.problems
