"""Types of each primitive, what they oblige, and every way to be wrong, with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.index_expr import const, symbol
from mapper.ast_model.nodes import Call, Join, Kernel, Map, Program, Ref, Split, Zip
from mapper.ast_model.text_form import parse
from mapper.ast_model.type_check import check_program
from mapper.errors import LimitError, TypeErrors

HEAD = """program "t" {
  size H = 12
  size W = 8
  param p in {2, 3, 5}
  param z in {0, 1}
  fun norm(x, y) = sum(x * y) - 1.0
  fun scale(acc, x, y) = acc + dot(x, y)
  input x : [float]H
  input m : [[float]W]H
  input v : [float<4>]H
"""


def program(body: str) -> Program:
    return parse(f"{HEAD}  kernel k = {body}\n}}")


def checked(body: str) -> tuple[str, list[str]]:
    types = check_program(program(body))
    return str(types.kernel_types["k"]), [f"{o.rule}: {o}" for o in types.obligations]


@pytest.mark.parametrize(
    ("body", "type_", "obligations"),
    [
        ("map#1(a => id(a), x)", "[float]{H}", []),
        ("reduce((s, a) => add(s, a), 0.0, x)", "[float]{1}", []),
        ("map#1(t => add(t.0, t.1), zip(x, x))", "[float]{H}", []),
        ("split(p, x)", "[[float]{p}]{H/p}", ["split: p | H"]),
        ("join(split(p, x))", "[float]{H}", ["split: p | H"]),
        ("join(m)", "[float]{H*W}", []),
        ("slide(3, 2, x)", "[[float]{3}]{((H + 1) // 2) - 1}", ["slide: 3 <= H"]),
        ("slide(p, 1, x)", "[[float]{p}]{H - p + 1}", ["slide: p <= H"]),
        (
            "slide_strict(p + 2, p, x)",
            "[[float]{p + 2}]{(H - 2)/p}",
            ["slide-strict: p + 2 <= H", "slide-strict: p | H - 2"],
        ),
        ("pad(1, p, 0.0, x)", "[float]{H + p + 1}", []),
        ("pad(0 - p, 0, 0.0, x)", "[float]{H - p}", ["pad: 1 <= H - p"]),
        ("transpose(m)", "[[float]{H}]{W}", []),
        ("reorder(stride(p), x)", "[float]{H}", ["reorder: p | H"]),
        ("reorder(reverse, x)", "[float]{H}", []),
        ("as_vector(p, x)", "[float<p>]{H/p}", ["as-vector: p | H"]),
        ("as_vector(1, x)", "[float<1>]{H}", []),
        ("as_scalar(v)", "[float]{4*H}", []),
        ("map#1(a => dot(a, a), v)", "[float]{H}", []),
        ("map#1(a => norm(a, 2.0), v)", "[float]{H}", []),
        ("map#1(a => mul(a, 2.0), v)", "[float<4>]{H}", []),
        ("reduce((s, a) => scale(s, a, a), 0.0, v)", "[float]{1}", []),
        ("map#1(a => to_private(id(a)), x)", "[float]{H}", []),
        ("let n = x in split(3, n)", "[[float]{3}]{H/3}", ["split: 3 | H"]),
        ("fill(0.0, p, 2)", "[[float]{2}]{p}", []),
        ("fill(0.0, z + 1)", "[float]{z + 1}", ["requirement: 1 <= z + 1"]),
        (
            "map#1(t => add(t.0, t.1), zip(x, fill(0.0, 6*p)))",
            "[float]{H}",
            ["equal-length: H == 6*p"],
        ),
    ],
)
def test_primitives(body: str, type_: str, obligations: list[str]) -> None:
    assert checked(body) == (type_, obligations)


@pytest.mark.parametrize(
    ("body", "place", "words"),
    [
        ("y", "", "unknown name"),
        ("map#1(a => foo(a), x)", "/body", "unknown function"),
        ("map#1(a => add(a), x)", "/body", "wrong number of arguments"),
        ("add(x, 1.0)", "/arguments/0", "map it"),
        ("map#1(a => id(a), map#1(b => id(b), x))", "/argument", "map id is taken"),
        ("split(5, x)", "", "5 | H"),
        ("split(0, x)", "", "at least 1"),
        ("split(nope, x)", "", "unknown name in the size of split"),
        ("slide(13, 1, x)", "", "no longer than the array"),
        ("slide_strict(3, 2, x)", "", "nothing left"),
        ("slide(3, 0, x)", "", "at least 1"),
        ("pad(-6, -6, 0.0, x)", "", "after cropping"),
        ("pad(1, 1, 0.0, zip(x, x))", "", "pad before zip"),
        ("zip(x, m, fill(0.0, 3))", "/arguments/2", "equal-length"),
        ("zip(x)", "", "two or more"),
        ("map#1(t => t.2, zip(x, x))", "/body", ".0 to .1"),
        ("x.0", "", "a tuple"),
        ("join(x)", "", "arrays of arrays"),
        ("transpose(x)", "", "arrays of arrays"),
        ("as_vector(2, m)", "", "map as_vector"),
        ("as_scalar(x)", "", "[float<w>]n"),
        ("reduce((s, a) => a, 0.0, m)", "/body", "another type"),
        ("reduce((s, s) => s, 0.0, x)", "", "one name"),
        ("reduce[unroll=2]((s, a) => s, 0.0, x)", "", "unroll is not 0 or 1"),
        ("map#1(a => add(a, a.0), v)", "/body/arguments/1", "a tuple"),
        (
            "map#1(t => add(t.0, t.1), zip(v, as_vector(6, join(m))))",
            "/argument/arguments/1",
            "equal-length",
        ),
        ("to_local(x)", "", "map id over it"),
        ("zip(x, x)", "", "scalars or vectors"),
        ("1.0", "", "scalars or vectors"),
        ("reorder(stride(5), x)", "", "5 | H"),
    ],
)
def test_errors_name_the_place(body: str, place: str, words: str) -> None:
    with pytest.raises(TypeErrors) as caught:
        check_program(program(body))
    (problem,) = caught.value.problems
    assert problem.path == f"kernels/k/body{place}"
    assert words in str(problem)


WRONG = """program "wrong" {
  size H = 0
  size H = 3
  param p in {3, 2}
  param q in {}
  require p <= nope
  require 3 < 2
  fun f(x) = x * y
  fun id2(x, x) = x
  input x : [float]H
  input p : float
  kernel a = map#1(r => add(r, missing), zz)
  kernel b = split(5, map#1(r => fma(r, 1.0), a))
  kernel c = join(reduce((s, v) => max(s, v), 0.0, x))
  kernel d = to_private(slide(3, 1, fill(0.0, 2)))
}
"""


def test_all_errors_are_told_at_once(golden: Callable[[str, str], None]) -> None:
    with pytest.raises(TypeErrors) as caught:
        check_program(parse(WRONG))
    golden("type_errors.txt", f"{caught.value}\n")


def test_kernels_see_earlier_kernels_only() -> None:
    text = HEAD + "kernel a = map#1(r => id(r), b)\nkernel b = map#2(r => id(r), a)\n}"
    with pytest.raises(TypeErrors) as caught:
        check_program(parse(text))
    assert [p.path for p in caught.value.problems] == ["kernels/a/body/argument"]


def test_loop_variables_are_no_part_of_programs() -> None:
    kernel = Kernel("k", Split(symbol("p", 3), Ref("x")))
    with pytest.raises(TypeErrors, match="loop variable"):
        check_program(replace(program("x"), kernels=(kernel,)))


def test_programs_nest_200_levels_deep() -> None:
    node = Ref("x")
    for _ in range(99):
        node = Join(Split(const(3), node))
    deep = replace(program("x"), kernels=(Kernel("k", Map(1, "a", Call("id", (Ref("a"),)), node)),))
    assert str(check_program(deep).kernel_types["k"]) == "[float]{H}"
    assert elaborate(deep).kernels[0].statements
    too_deep = replace(deep, kernels=(Kernel("k", Join(Split(const(3), Join(node)))),))
    with pytest.raises(LimitError, match="nested too deeply"):
        check_program(too_deep)


def test_programs_have_10_000_nodes() -> None:
    node = Ref("x")
    for _ in range(40):  # few objects, but 2^40 nodes
        node = Zip((node, node))
    with pytest.raises(LimitError, match="too large"):
        check_program(replace(program("x"), kernels=(Kernel("k", node),)))


def test_types_and_lengths_stay_small() -> None:
    lets = "".join(f"let a{i + 1} = zip(a{i}, a{i}) in " for i in range(20))
    with pytest.raises(TypeErrors, match="grown too large"):
        check_program(program(f"let a0 = x in {lets} a20"))
    slides = "x"
    for _ in range(40):
        slides = f"join(slide(3, 2, pad(0, p, 0.0, {slides})))"
    with pytest.raises(TypeErrors, match="grown too large"):
        check_program(program(slides))
