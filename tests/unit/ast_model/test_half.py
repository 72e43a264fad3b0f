"""16-bit floats in programs: stored, moved, converted and computed with."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.element_types import uses_half
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import Declare
from mapper.ast_model.text_form import parse, parse_expr, parse_type, to_text
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import HALF, VectorType, array
from mapper.elements import Element
from mapper.errors import TypeErrors
from nestmap.tuning.reference import half_roundings


def program(body: str, function: str = "") -> str:
    return f'program "p" {{ size n = 4 {function} input x : [half]n kernel out = {body} }}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "map#1(v => add(v, 1.0), x)",
            r"in add, \+ works on numbers of one type; found half and float; allowed: float and "
            r"float, int and int and so on \(try: float_of\(…\), int_of\(…\) and so on convert\)",
        ),
        (
            "map#1(v => float_of(1.0), x)",
            r"in float_of, float_of changes no float; found float; allowed: another type",
        ),
        (
            "map#1(v => half_of(v), x)",
            r"in half_of, half_of changes no half; found half; allowed: another type",
        ),
        (
            "reduce((a, v) => add(a, float_of(v)), half_of(0.0), x)",
            r"in add, \+ works on numbers of one type; found half and float",
        ),
    ],
)
def test_halves_and_floats_do_not_mix(body: str, message: str) -> None:
    with pytest.raises(TypeErrors, match=message):
        check_program(parse(program(body)))


def test_types_and_conversions_are_read_back_from_text_and_json() -> None:
    text = program("map#1(v => f(v), x)", "fun f(y) = half_of(float_of(y) * 2.0)")
    read = parse(text)
    assert parse(to_text(read)) == read
    assert program_from_json(program_to_json(read)) == read
    assert parse_type("[[half]3]n") == array(HALF, parse_expr("n"), 3)
    assert parse_type("half<4>") == VectorType(parse_expr("4"), Element.FLOAT16)
    assert check_program(read).kernel_types["out"] == array(HALF, parse_expr("n"))


def test_the_interpreter_rounds_inputs_and_conversions_to_nearest_even() -> None:
    read = parse(program("map#1(v => half_of(add(float_of(v), 1.0)), x)"))
    # 1 + 2^-11 lies between two 16-bit floats: the even one is 1; next comes 1 + 3 * 2^-11.
    given = np.array([2.0**-11, 3 * 2.0**-11, 0.1, 65504.0])
    found = interpret(read, {}, {"x": given})
    assert found.dtype == np.float16
    expected = (given.astype(np.float16).astype(np.float64) + 1).astype(np.float16)
    assert found.tolist() == expected.tolist()
    assert found[:2].tolist() == [1.0, 1 + 2.0**-9]


def test_lanes_of_vectors_keep_their_element_type() -> None:
    body = "as_scalar(map#1(v => half_of(float_of(v)), as_vector(2, x)))"
    read = parse(program(body))
    assert check_program(read).kernel_types["out"] == array(HALF, parse_expr("n"))
    given = np.arange(4.0)
    assert interpret(read, {}, {"x": given}).tolist() == given.tolist()


def test_padding_holds_what_16_bits_can_hold() -> None:
    read = parse(program("map#1(v => id(v), pad(1, 1, 0.1, x))"))
    found = interpret(read, {}, {"x": np.zeros(4)})
    assert found[0] == np.float16(0.1) == Element.FLOAT16.stored(0.1)
    (store,) = elaborate(read).kernels[0].statements[0].body  # type: ignore[union-attr]
    assert store.value.otherwise == float(np.float16(0.1))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "held"), [(1e6, float("inf")), (-1e6, float("-inf")), (1e-9, 0.0), (0.5, 0.5)]
)
def test_constants_beyond_16_bits_become_infinite_or_nothing(value: float, held: float) -> None:
    assert Element.FLOAT16.stored(value) == held
    assert Element.FLOAT32.stored(value) == value


def test_buffers_take_two_bytes_an_element_in_shared_memory_and_four_in_registers() -> None:
    body = (
        "let t = to_local(map#1(v => id(v), x)) in let p = to_private(map#2(v => id(v), t)) in "
        "map#3(v => id(v), p)"
    )
    read = parse(program(body))
    kernel = elaborate(read).kernels[0]
    declared = [s.buffer for s in kernel.statements if isinstance(s, Declare)]
    assert [(b.memory.value, b.element_bytes) for b in declared] == [("local", 2), ("private", 4)]
    assert kernel.output.element_bytes == 2


def test_who_uses_half_is_seen_from_inputs_and_conversions() -> None:
    assert uses_half(parse(program("map#1(v => float_of(v), x)")))
    plain = 'program "p" { size n = 4 input x : [float]n kernel out = map#1(v => id(v), x) }'
    assert not uses_half(parse(plain))
    rounding = plain.replace("id(v)", "float_of(half_of(v))")
    assert uses_half(parse(rounding))
    assert half_roundings(elaborate(parse(rounding))) == 1
