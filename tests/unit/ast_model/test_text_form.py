"""How programs print, and what the parser says to what it cannot read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mapper.ast_model.index_expr import exact_div, floor_div, modulo, symbol
from mapper.ast_model.nodes import Get, Let, Literal, Map, OrderKind, Program, Ref, Reorder
from mapper.ast_model.text_form import parse, parse_expr, parse_requirement, parse_type, to_text
from mapper.ast_model.types import FLOAT, VectorType, array
from mapper.errors import InputError, LimitError

TEXT = """program "conv" {  # comments
  size H = 112
  size W = 8
  param theta in {3, 5, 7}
  param q in 0..12 step 4
  param r in 1..9
  require theta <= H
  require W | 2*H
  fun axpy(x, y, z) = x * y + z - (max(x, -1.5) - y) * 2.0
  input x : [[[float]4]W]H
  input v : [float<4>](H*W)
  kernel padded = map#1(row => map#2(e => id(e), row.0.1), pad(1, -q, 0.0, x))
  kernel out = let n = reduce[unroll=1]((acc, y) => fma(acc, y, 1e-05), to_private(0.0),
      slide_strict(theta, theta - 2, x)) in map#"a b"(z => z, reorder(reverse,
      reorder(stride(H/theta), zip(n, transpose(split(2, fill(0.0, H//3, W%theta + 1)))))))
}
"""


def test_printed_program(golden: Callable[[str, str], None]) -> None:
    program = parse(TEXT)
    golden("program.txt", to_text(program))
    assert parse(to_text(program)) == program


def test_expressions() -> None:
    a, b = symbol("a"), symbol("b")
    assert parse_expr("2*(a + b) - -3") == 2 * a + 2 * b + 3
    assert parse_expr("a/b") == exact_div(a, b)
    assert parse_expr("a // 3 % b") == modulo(floor_div(a, 3), b)
    assert str(parse_requirement("a|b*2")) == "a | 2*b"
    assert parse_type("[[float<2>](a + 1)]b") == array(VectorType(parse_expr("2")), b, a + 1)
    assert parse_type("[float]3") == array(FLOAT, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a**2", "powers"),
        ("f(x)", "call nothing"),
        ("__import__('os')", "call nothing"),
        ("a.b", "line 1, column 2"),
        ("1.5", "whole numbers"),
        ("'a'", "not understood"),
        ("a b", "column 3"),
        ("", "found the end"),
        ("a +", "found the end"),
        ("7/2", "leaves a remainder"),
        ("a % 0", "not positive"),
        ("a // (1 - 2)", "not positive"),
        ("9" * 30, "too large"),
        ("(" * 65 + "1" + ")" * 65, "64 levels"),
        ("1 + " * 4000 + "1", "10000 characters"),
        ("a//b%c" + "//b%c" * 40, "too large"),
        ("(a+b+c+d+e+f)" + "*(a+b+c+d+e+f)" * 9, "too large"),
        ("a" + "*a" * 99, "too large"),
        ("9999999999*9999999999", "too large"),
    ],
)
def test_refused_expressions(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_expr(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("map#1", "map", "map#1(x => body, argument)"),
        ("reverse", "backwards", "reverse stride"),
        ("max(x", "pow(x", "line 9, column 36: not an operator"),
        ("step 4", "step 0", "not a usable range"),
        ("0..12", "0..999999999", "not a usable range"),
        ("1e-05", "1e999", "must be finite"),
        ("size H = 112", "size = 112", "line 2, column 8"),
        ('"a b"', '"a\\q"', "not a text"),
        ("}\n", "", "found the end"),
        ("zip(n,", "map(n,", "not understood"),
    ],
)
def test_refused_programs(old: str, new: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(new.join(TEXT.rsplit(old, 1)))
    assert words in str(caught.value)


def test_depth_is_bounded() -> None:
    deep = "join(" * 10_000 + "x" + ")" * 10_000
    with pytest.raises(InputError, match="nest too deeply"):
        parse(f'program "x" {{ kernel k = {deep} }}')
    lets = "let a = b in " * 10_000 + "b"
    with pytest.raises(LimitError, match="nested too deeply"):
        parse(f'program "x" {{ kernel k = {lets} }}')


def test_odd_nodes_are_read_back() -> None:
    base = parse('program "x" { kernel k = y }')

    def back(program: Program) -> Program:
        return parse(to_text(program))

    for body in (
        Get(0, Let("a", Ref("y"), Get(1, Ref("a")))),
        Get(0, Literal(-1.0)),
        Map('say "\\" \n', "v", Ref("v"), Ref("y")),
        Map("in", "v", Ref("v"), Ref("y")),
        Reorder(OrderKind.REVERSE, symbol("q"), Ref("y")),
    ):
        odd = Program(base.name, (), (), (), (), (), (type(base.kernels[0])("k", body),))
        assert back(odd) == odd
