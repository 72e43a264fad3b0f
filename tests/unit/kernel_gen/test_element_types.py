"""Integers and 16-bit floats in programs: what is typed, what kernels and interpreter compute."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import Declare
from mapper.ast_model.nodes import MapId, Program
from mapper.ast_model.text_form import parse, to_text
from mapper.ast_model.type_check import check_program
from mapper.elements import BY_TEXT, Element
from mapper.errors import InputError, TypeErrors
from mapper.kernel_gen.generate import Choices, generate
from mapper.pipeline import subject_of_program
from mapper.schedule import ScheduleCode
from nestmap.tuning.reference import make_workload
from tests.kernels import run_once
from worker.measuring.kernel_text import refuse_foreign_text
from worker.oclgrind import check

SEQUENTIAL = Choices({}, {1: ScheduleCode.SEQUENTIAL}, {})
INTEGERS = [element for element in Element if element.is_integer]


def program_of(function: str, element: str, width: int = 1, length: int = 48) -> Program:
    """``f(v, w)`` of every element of x and y."""
    pairs = "zip(x, y)" if width == 1 else f"zip(as_vector({width}, x), as_vector({width}, y))"
    body = f"map#1(p => f(p.0, p.1), {pairs})"
    if width > 1:
        body = f"as_scalar({body})"
    return parse(
        f'program "t" {{ fun f(v, w) = {function} input x : [{element}]{length} '
        f"input y : [{element}]{length} kernel k = {body} }}"
    )


def drawn(element: Element, length: int = 48) -> dict[str, NDArray]:
    """Any numbers of the type; the ends of the range, 0 and -1 meet."""
    low, high = element.range
    source = np.random.default_rng(3)
    x, y = source.integers(low, high + 1, (2, length))
    x[:6] = [low, low, high, high, 0, low]
    y[:6] = [0, max(low, -1), 0, high, 0, low]
    y[6:30] %= 7
    return {"x": x.astype(element.value), "y": y.astype(element.value)}


def wrapped(value: int, element: Element) -> int:
    low, high = element.range
    return (value - low) % (high - low + 1) + low


def combined(v: int, w: int, element: Element) -> int:
    """What the function of the test below says, in whole numbers of any length."""

    def of(op: Callable[[int, int], int], a: int, b: int) -> int:
        return wrapped(op(a, b), element)

    quotient = (
        0 if w == 0 else wrapped(abs(v) // abs(w) * (1 if (v < 0) == (w < 0) else -1), element)
    )
    first = of(operator.sub, of(operator.add, of(operator.mul, v, w), v), quotient)
    size = wrapped(abs(v), element)
    return of(operator.add, max(first, min(size, w)), w if v < w else 7)


COMBINED = "max(fma(v, w, v) - v / w, min(abs(v), w)) + select(v < w, w, 7.0)"


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("element", "width"),
    [("char", 1), ("uchar", 4), ("short", 3), ("ushort", 1), ("int", 1), ("int", 4), ("uint", 16)],
)
def test_integers_wrap_around_and_divide_towards_zero(element: str, width: int) -> None:
    program, arrays = program_of(COMBINED, element, width), drawn(BY_TEXT[element])
    kind = BY_TEXT[element]
    meant = [combined(int(v), int(w), kind) for v, w in zip(arrays["x"], arrays["y"], strict=True)]
    found = interpret(program, {}, arrays)
    assert found.dtype == kind.value
    assert found.tolist() == meant
    printed = run_once(generate(program, SEQUENTIAL), arrays)
    assert printed.dtype == kind.value
    assert printed.reshape(-1).tolist() == meant


@pytest.mark.kernels
@pytest.mark.parametrize("width", [1, 4])
def test_floats_become_the_nearest_integers_towards_zero_that_there_are(width: int) -> None:
    x = np.array([0.9, -0.9, 1e20, -1e20, np.nan, 127.6, -129, 255.9, 3e9, -3e9, 2.5, -0.0])
    x = x.astype(np.float32)
    given = {"x": x, "y": x}
    for name, meant in {
        "char": [0, 0, 127, -128, 0, 127, -128, 127, 127, -128, 2, 0],
        "uint": [0, 0, 2**32 - 1, 0, 0, 127, 0, 255, 3000000000, 0, 2, 0],
    }.items():
        program = program_of(f"{name}_of(v)", "float", width, len(x))
        assert interpret(program, {}, given).tolist() == meant
        assert run_once(generate(program, SEQUENTIAL), given).reshape(-1).tolist() == meant


@pytest.mark.kernels
@pytest.mark.parametrize("width", [1, 4])
def test_integers_become_others_by_their_lower_bits_and_the_nearest_floats(width: int) -> None:
    x = np.array([2**24 + 1, 2**31 - 1, -(2**31), 300, -129, 65519, 65520, -1], np.int32)
    given = {"x": x, "y": x}
    for name in ("uchar", "short", "float", "half"):
        program = program_of(f"{name}_of(v)", "int", width, len(x))
        with np.errstate(over="ignore"):
            meant = x.astype(BY_TEXT[name].value).tolist()
        assert interpret(program, {}, given, np.float32).tolist() == meant
        assert run_once(generate(program, SEQUENTIAL), given).reshape(-1).tolist() == meant


@pytest.mark.kernels
@pytest.mark.parametrize("width", [1, 4])
def test_halves_are_rounded_after_each_operator(width: int) -> None:
    source = np.random.default_rng(5)
    x, y = source.standard_normal((2, 48)).astype(np.float16)
    x[:3], y[:3] = [60000, 6e-8, 0.0001], [30000, 0.5, 0.0001]
    program = program_of("(v + w) * 0.1 - v / 3.0 * w", "half", width)
    with np.errstate(all="ignore"):
        meant = (x + y) * np.float16(0.1) - x / np.float16(3.0) * y
    assert meant.dtype == np.float16
    wide = x.astype(np.float64), y.astype(np.float64)
    once = (wide[0] + wide[1]) * 0.1 - wide[0] / 3.0 * wide[1]
    assert (meant[3:] != once[3:].astype(np.float16)).any()
    found = interpret(program, {}, {"x": x, "y": y})
    np.testing.assert_array_equal(found, meant)
    printed = run_once(generate(program, SEQUENTIAL), {"x": x, "y": y})
    np.testing.assert_array_equal(printed.reshape(-1), meant)


def test_sums_over_lanes_and_steps_of_halves_stay_halves() -> None:
    program = parse(
        'program "t" { size n = 4096 input x : [half]n kernel k = '
        "reduce((acc, v) => add(acc, v), 0:half, x) }"
    )
    ones = np.ones(4096, np.float16)
    # From 2048 on, one more is half a unit in the last place.
    assert interpret(program, {}, {"x": ones}).tolist() == [2048.0]
    lanes = parse(
        'program "t" { input x : [half]16 kernel k = map#1(v => f(v), as_vector(16, x)) '
        "fun f(v) = sum(v) }"
    )
    large = np.array([2048.0] + [1.0] * 15, np.float16)
    assert interpret(lanes, {}, {"x": large}).tolist() == [2048.0]


@pytest.mark.parametrize(
    ("function", "element", "message"),
    [
        ("v + 0.5", "int", r"in f, 0.5 is no int; found 0.5 beside int; allowed: whole numbers"),
        ("max(v, 300.0)", "char", r"300 is no char; .* allowed: whole numbers from -128 to 127"),
        ("v - 1.0 * -1.0", "uchar", r"- works on numbers of one type; found uchar and float"),
        ("exp(v)", "int", r"exp works on floats; found int, int; allowed: float, half"),
        ("int_of(v)", "int", r"int_of changes no int; .* \(try: leave it out\)"),
        ("v + float_of(w)", "short", r"\+ works on numbers of one type; found short and float"),
    ],
)
def test_nothing_is_converted_by_itself(function: str, element: str, message: str) -> None:
    with pytest.raises(TypeErrors, match=message):
        check_program(program_of(function, element))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reduce((acc, v) => add(acc, v), 0.0, x)", "add works|found float and int"),
        ("reduce((acc, v) => add(acc, v), 0.5:int, x)", "the constant is no int; found 0.5"),
        ("map#1(v => id(v), pad(1, 1, 0.5, x))", "the constant is no int; found 0.5"),
        ("map#1(v => id(v), fill(256:uchar, 3))", "the constant is no uchar; found 256"),
    ],
)
def test_constants_of_integers_are_whole_and_in_range(text: str, message: str) -> None:
    with pytest.raises(TypeErrors, match=message):
        check_program(parse(f'program "t" {{ input x : [int]4 kernel k = {text} }}'))


def test_element_types_that_there_are_not_are_refused() -> None:
    for text in ("input x : [long]4 kernel k = map#1(v => id(v), x)",
                 "input x : [int]4 kernel k = map#1(v => add(v, 3:long), x)"):  # fmt: skip
        with pytest.raises(InputError, match="not an element type; found long; allowed: float, ha"):
            parse(f'program "t" {{ {text} }}')


def test_functions_may_be_called_like_element_types() -> None:
    program = parse(
        'program "t" { fun half(v) = v * 0.5 input half : [float]4 '
        "kernel k = map#1(int => half(int), half) }"
    )
    check_program(program)
    assert parse(to_text(program)) == program


def test_typed_constants_are_read_back_from_text_and_json() -> None:
    text = "reduce((acc, v) => add(acc, v), 4294967295:uint, fill(3:uint, 5))"
    program = parse(f'program "t" {{ input x : [uint<2>]4 kernel k = {text} }}')
    assert text in to_text(program)
    assert parse(to_text(program)) == program
    value = program_to_json(program)
    assert value["kernels"][0]["body"]["initial"]["dtype"] == "uint"
    assert program_from_json(value) == program
    value["kernels"][0]["body"]["initial"]["dtype"] = "int64"
    with pytest.raises(InputError, match="not an element type; found the text 'int64'"):
        program_from_json(value)
    plain = parse('program "t" { input x : [float]4 kernel k = map#1(v => add(v, 1.0), x) }')
    assert "dtype" not in str(program_to_json(plain))


def test_inputs_hold_what_their_type_does() -> None:
    program = program_of("v + w", "uchar", length=2)
    fits = {"x": np.array([0.0, 255.0]), "y": np.array([1, 1])}
    assert interpret(program, {}, fits).tolist() == [1, 0]
    for wrong in ([0.5, 1.0], [-1, 0], [256, 0]):
        with pytest.raises(InputError, match="inputs/x: the array holds numbers that are no uchar"):
            interpret(program, {}, fits | {"x": np.array(wrong)})


@pytest.mark.parametrize("element", Element)
def test_buffers_take_the_bytes_of_their_elements(element: Element) -> None:
    text = element.text
    program = parse(
        f'program "t" {{ input x : [{text}]8 kernel k = let t = to_local(map#1(v => id(v), x)) in '
        "let p = to_private(map#2(v => id(v), t)) in map#3(v => id(v), p) }"
    )
    kernel = elaborate(program).kernels[0]
    declared = [s.buffer.element_bytes for s in kernel.statements if isinstance(s, Declare)]
    held = 4 if element is Element.FLOAT16 else np.dtype(element.value).itemsize
    assert declared == [np.dtype(element.value).itemsize, held]
    alone = parse(
        f'program "t" {{ input x : [{text}]8 kernel k = '
        "let p = to_private(map#2(v => id(v), x)) in map#3(v => id(v), p) }"
    )
    codes: dict[MapId, ScheduleCode] = dict.fromkeys((2, 3), ScheduleCode.SEQUENTIAL)
    plan = generate(alone, Choices({}, codes, {}))
    assert plan.launches[0].private_bytes == 8 * held
    assert [b.bytes for b in plan.buffers] == [8 * np.dtype(element.value).itemsize] * 2


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("element", ["char", "half"])
def test_the_simulator_finds_nothing_in_a_product(element: str) -> None:
    convert, start = ("int_of(k.{})", "0:int") if element == "char" else ("k.{}", "0:half")
    step = f"fma({convert.format(0)}, {convert.format(1)}, acc)"
    program = parse(
        f'program "t" {{ input a : [[{element}]8]3 input b : [[{element}]8]4 kernel k = '
        f"map#1(x => join(map#2(y => reduce((acc, k) => {step}, {start}, zip(x, y)), b)), a) }}"
    )
    subject = subject_of_program(program)
    workload = make_workload(subject, 1, {})
    codes: dict[MapId, ScheduleCode] = dict.fromkeys((1, 2), ScheduleCode.SEQUENTIAL)
    plan = generate(program, Choices({}, codes, {}))
    report = check(plan, workload.inputs, workload.expected, tolerance=replace(workload.tolerance))
    assert report.ok, report.messages


@pytest.mark.parametrize("element", [*BY_TEXT])
@pytest.mark.parametrize("width", [1, 4])
def test_workers_take_kernels_of_every_element_type(element: str, width: int) -> None:
    texts = [COMBINED, "fma(v, w, v) / w - min(v, 3.0)"]
    texts += [f"{name}_of(v)" for name in BY_TEXT if name != element]
    for text in texts:
        refuse_foreign_text(generate(program_of(text, element, width), SEQUENTIAL).source)
