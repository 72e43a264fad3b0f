"""Division and exponential: in the text form, in the interpreter, in kernels."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nodes import Apply, Op
from mapper.ast_model.text_form import parse, to_text
from mapper.errors import TypeErrors
from mapper.kernel_gen.generate import Choices, generate
from mapper.measurement import Timed
from mapper.pipeline import subject_of_program
from mapper.schedule import ScheduleCode
from worker.measuring import MeasuringChild, Tolerance

SIGMOID = "1.0 / (1.0 + exp(0.0 - v))"
X = np.linspace(-100, 100, 16, dtype=np.float32)


def text_of(function: str, body: str) -> str:
    return f'program "t" {{ fun f(v) = {function} input x : [float]16 kernel k = {body} }}'


@pytest.mark.parametrize(
    ("text", "op", "operands"),
    [
        ("v / 2.0 / v", Op.DIV, (Apply(Op.DIV, ("v", 2.0)), "v")),
        ("v / (2.0 / v)", Op.DIV, ("v", Apply(Op.DIV, (2.0, "v")))),
        ("v * 2.0 / v", Op.DIV, (Apply(Op.MUL, ("v", 2.0)), "v")),
        ("v * (2.0 / v)", Op.MUL, ("v", Apply(Op.DIV, (2.0, "v")))),
        ("(v + 1.0) / (v - 1.0)", Op.DIV,
         (Apply(Op.ADD, ("v", 1.0)), Apply(Op.SUB, ("v", 1.0)))),
        ("exp(v)", Op.EXP, ("v",)),
    ],
)  # fmt: skip
def test_division_binds_as_multiplication_does(text: str, op: Op, operands: tuple[object, ...]):
    program = parse(text_of(text, "map#1(a => f(a), x)"))
    assert program.functions[0].body == Apply(op, operands)  # pyright: ignore[reportArgumentType]
    printed = to_text(program)
    assert f"= {text}\n" in printed
    assert parse(printed) == program


def test_exponential_takes_one_operand():
    with pytest.raises(TypeErrors, match="wrong number of operands of exp; found 2; allowed: 1"):
        subject_of_program(parse(text_of("exp(v, v)", "map#1(a => f(a), x)")))


@pytest.mark.kernels
@pytest.mark.parametrize(
    "body",
    ["map#1(a => f(a), x)", "as_scalar(map#1(a => f(a), as_vector(4, x)))"],
    ids=["scalars", "vectors"],
)
def test_sigmoid_is_right_where_it_overflows_and_in_every_lane(body: str):
    program = parse(text_of(SIGMOID, body))
    exact = 1 / (1 + np.exp(-X.astype(np.float64)))
    np.testing.assert_allclose(interpret(program, {}, {"x": X}), exact, rtol=1e-12)
    plan = generate(program, Choices({}, {1: ScheduleCode.SEQUENTIAL}, {}))
    with MeasuringChild() as device:
        device.upload_workload("w", {"x": X}, exact)
        outcome = device.measure(plan, workload="w", tolerance=Tolerance())
    assert isinstance(outcome, Timed), outcome
