"""What is printed of an integer expression is, computed as C computes, what is meant.

Divisions round down for any sign, although C's round towards zero."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mapper.ast_model.index_expr import (
    Expr,
    as_they_are,
    const,
    floor_div,
    modulo,
    symbol,
)
from mapper.kernel_gen.c_expr import c_index

#: Loop variables with their extents, and sizes (which are at least 1).
LOOPS = {"i": 7, "j": 5, "k": 16}
SIZES = ("N", "M")


def computed_by_c(text: str, values: Mapping[str, int]) -> int:
    """The value of a C expression of ints, with C's division and remainder."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=operator, right=right):
                a, b = value(left), value(right)
                match operator:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.Div():
                        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
                    case ast.Mod():
                        return abs(a) % abs(b) * (-1 if a < 0 else 1)
        raise AssertionError(f"not printed by us: {ast.dump(node)}")

    return value(ast.parse(text, mode="eval").body)


def test_the_evaluator_rounds_as_c_does() -> None:
    # ISO C11, 6.5.5: the quotient is rounded towards zero, (a/b)*b + a%b is a.
    quotients = ((-1, 4), (7, -2), (-7, -2))
    assert [computed_by_c(f"({a})/({b})", {}) for a, b in quotients] == [0, -3, 3]
    remainders = ((-1, 4), (7, -2), (-8, 3))
    assert [computed_by_c(f"({a})%({b})", {}) for a, b in remainders] == [-1, 1, -2]


leaves = st.one_of(
    st.integers(-20, 20).map(const),
    st.sampled_from(sorted(LOOPS)).map(lambda name: symbol(name, LOOPS[name])),
    st.sampled_from(SIZES).map(symbol),
)
divisors = st.one_of(st.integers(1, 9).map(const), st.sampled_from(SIZES).map(symbol))


def combined(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.tuples(inner, st.integers(-4, 4)).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, divisors).map(lambda pair: floor_div(*pair)),
        st.tuples(inner, divisors).map(lambda pair: modulo(*pair)),
    )


values = st.fixed_dictionaries(
    {name: st.integers(0, extent - 1) for name, extent in LOOPS.items()}
    | {name: st.integers(1, 9) for name in SIZES}
)


@given(st.recursive(leaves, combined, max_leaves=12), values)
def test_printed_arithmetic_is_pythons(expression: Expr, values: dict[str, int]) -> None:
    assert computed_by_c(c_index(expression), values) == expression.evaluate(values)


@given(st.data(), values)
def test_divisions_that_were_not_simplified_are_printed_right_too(
    data: st.DataObject, values: dict[str, int]
) -> None:
    with as_they_are():
        expression = data.draw(st.recursive(leaves, combined, max_leaves=12))
        printed, meant = c_index(expression), expression.evaluate(values)
    assert computed_by_c(printed, values) == meant


def test_a_dividend_that_may_be_negative_is_rounded_down() -> None:
    size, index = symbol("N"), symbol("i", 7)
    assert computed_by_c(c_index(floor_div(const(-1), size)), {"N": 4}) == -1
    assert computed_by_c(c_index(modulo(index - size, size)), {"N": 4, "i": 1}) == 1
    # What cannot be negative is printed as plainly as ever.
    assert c_index(floor_div(index, size)) == "(i/N)"
    assert c_index(modulo(index + 3, const(4))) == "((i + 3)%4)"
