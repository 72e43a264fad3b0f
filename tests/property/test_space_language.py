"""What an expression becomes holds exactly where Python, over exact fractions, says true.

The reference is Python's own parser and evaluator with ``fractions.Fraction`` for every number;
where it raises ZeroDivisionError the configuration is invalid. It shares nothing with ours.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from hypothesis import example, given, reject
from hypothesis import strategies as st

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError
from mapper.solver.diagram.compile import compile_space
from mapper.solver.enumeration import enumerate_assignments
from mapper.tuning_space.document import TuningConstraint, TuningParameter, TuningSpace, Value
from mapper.tuning_space.lowering import solver_space

PARAMETERS = (
    TuningParameter("a", (-3, -1, 0, 2)),
    TuningParameter("b", (0, 1, 4)),
    TuningParameter("c", (2, 3, 12)),
    TuningParameter("d", (-2, 5)),
    TuningParameter("one", (7,)),
    TuningParameter("zero", (0,)),
    TuningParameter("s", (False, True)),
    TuningParameter("on", (True,)),
    TuningParameter("t", ("row", "column", "tile")),
    TuningParameter("u", ("tile", "row")),
)
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}


class _Exact(ast.NodeTransformer):
    """Every integer becomes a Fraction, and ``/`` a quotient of Fractions."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return ast.Call(ast.Name("Fraction", ast.Load()), [node], [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node = ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        if isinstance(node.op, ast.Div):
            return ast.Call(ast.Name("quotient", ast.Load()), [node.left, node.right], [])
        return node


def reference(text: str) -> Callable[[Mapping[str, Value]], bool]:
    tree = ast.fix_missing_locations(_Exact().visit(ast.parse(text, mode="eval")))
    code = compile(tree, "<expression>", "eval")
    known: dict[str, Any] = {
        "__builtins__": {},
        "Fraction": Fraction,
        "quotient": lambda left, right: Fraction(left) / Fraction(right),
        "min": min,
        "max": max,
        "abs": abs,
        "true": True,
        "false": False,
    }

    def holds(values: Mapping[str, Value]) -> bool:
        exact = {
            name: Fraction(value) if type(value) is int else value for name, value in values.items()
        }
        try:
            return bool(eval(code, known, exact))
        except ZeroDivisionError:
            return False

    return holds


@st.composite
def numbers(draw: st.DrawFn, depth: int = 3) -> str:
    """Operators in a row, so that precedence is asked too."""
    found = draw(operands(depth))
    for _ in range(draw(st.integers(0, 2))):
        operator = draw(st.sampled_from(["+", "-", "*", "/", "//", "%", " - "]))
        found += operator + draw(operands(depth))
    return found


@st.composite
def operands(draw: st.DrawFn, depth: int) -> str:
    names = ["a", "b", "c", "d", "one", "zero"]
    simple = st.sampled_from([*names, *names, "0", "1", "2", "3", "10"])
    if depth == 0:
        return draw(simple)
    match draw(st.integers(0, 11)):
        case 0:
            return f"-{draw(operands(depth - 1))}"
        case 1:
            return f"({draw(numbers(depth - 1))})"
        case 2:
            return f"{draw(simple)}**{draw(st.sampled_from(['0', '1', '2', '3', 'b', 'c']))}"
        case 3:
            return f"({draw(numbers(depth - 1))})**{draw(st.sampled_from(['0', '2', 'b']))}"
        case 4:
            function = draw(st.sampled_from(["min", "max"]))
            return f"{function}({draw(numbers(depth - 1))}, {draw(numbers(depth - 1))})"
        case 5:
            return f"abs({draw(numbers(depth - 1))})"
        case 6:
            then, otherwise = draw(numbers(depth - 1)), draw(numbers(depth - 1))
            return f"({then} if ({draw(conditions(depth - 1))}) else {otherwise})"
        case _:
            return draw(simple)


@st.composite
def comparisons(draw: st.DrawFn, depth: int) -> str:
    relations = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    match draw(st.integers(0, 8)):
        case 0:
            items = draw(st.lists(numbers(0), max_size=3))
            brackets = "[{}]" if len(items) < 2 else draw(st.sampled_from(["[{}]", "({})"]))
            operator = draw(st.sampled_from(["in", "not in"]))
            return f"{draw(numbers(depth))} {operator} {brackets.format(', '.join(items))}"
        case 1:
            return f"t {draw(st.sampled_from(['==', '!=']))} 'row'"
        case 2:
            return draw(st.sampled_from(["t == u", "u != t", "t in ['row', \"tile\"]", "u in (t,)",
                                         "'tile' != u", "t not in []"]))  # fmt: skip
        case 3:
            return draw(st.sampled_from(["s", "on", "s == true", "false != s", "s in [on, false]",
                                         "true", "s != on"]))  # fmt: skip
        case 4 if depth:
            operator = draw(st.sampled_from(["==", "!="]))
            return f"({draw(conditions(depth - 1))}) {operator} ({draw(conditions(depth - 1))})"
        case _:
            found = draw(numbers(depth))
            for _ in range(draw(st.integers(1, 2))):
                found += f" {draw(relations)} {draw(numbers(depth))}"
            return found


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    found = ""
    for index in range(draw(st.integers(1, 3))):
        found += draw(st.sampled_from([" and ", " or "])) if index else ""
        found += draw(st.sampled_from(["", "", "", "not ", "not not "]))
        if depth and draw(st.integers(0, 4)) == 0:
            found += f"({draw(conditions(depth - 1))})"
        else:
            found += draw(comparisons(depth))
    if depth and draw(st.integers(0, 9)) == 0:
        found += f" if {draw(comparisons(0))} else {draw(conditions(depth - 1))}"
    return found


def configurations(names: list[str]) -> Iterator[dict[str, Value]]:
    for values in product(*(BY_NAME[name].values for name in names)):
        yield dict(zip(names, values, strict=True))


def assert_as_python(text: str) -> None:
    try:
        space = solver_space(TuningSpace("x", PARAMETERS, (TuningConstraint(text),)))
    except LimitError:
        reject()
    (constraint,) = space.constraints
    holds = reference(text)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    names = [name for name in BY_NAME if name in used]
    for values in configurations(names):
        assignment = {}
        for name, value in values.items():
            number = BY_NAME[name].number_of(value)
            assert number is not None
            assignment[BY_NAME[name].variable] = number
        assert evaluate(constraint.predicate, assignment) is holds(values), values


@given(conditions())
@example("b != 0 and 12 % b == 0")
@example("b == 0 or 12 % b == 0")
@example("not (b != 0 and 12 / b > 3)")
@example("12 % a == 0 or b > 0")
@example("not 12 % a == 0")
@example("a // d == -1 and a % d < 0")
@example("c % (1 / a) == 0")
@example("(c / b) % (a / d) >= a / c")
@example("-a**2 < 2**3**0")
@example("a >= 0 and (c / 5)**a > b")
@example("(1 < b) == true if s else on")
@example("a > 0 and 1 / a > 0 or a < 0 and 1 / a < 0")
@example("0 * (1 / b) == 0")
@example("min(1 / b, 2) < 1 if b != 0 else false")
@example("c in [2, 3]")
@example("c / 2 in [1, 6]")
@example("zero == 0 or 1 % zero == 0")
def test_an_expression_means_what_python_means(text: str):
    assert_as_python(text)


@given(st.lists(conditions(1), min_size=1, max_size=3))
@example(["(c**20 * b**20) % 7 == 1", "c**30 > 3**29 * b"])
@example(["c**64 / (b + 1)**64 > 2**64"])
@example(["-a == -a//-c or -b == -2"])  # nothing is known of a lone state's three values
def test_solvers_find_the_configurations_of_a_space(texts: list[str]):
    used = {n.id for t in texts for n in ast.walk(ast.parse(t)) if isinstance(n, ast.Name)}
    parameters = tuple(parameter for parameter in PARAMETERS if parameter.name in used)
    if not parameters:
        reject()
    stated = TuningSpace("x", parameters, tuple(TuningConstraint(text) for text in texts))
    try:
        space = solver_space(stated)
    except LimitError:
        reject()

    def configuration(answer: Mapping[Variable, int]) -> tuple[Value, ...]:
        return tuple(parameter.value_of(answer[parameter.variable]) for parameter in parameters)

    every = [reference(text) for text in texts]
    names = [parameter.name for parameter in parameters]
    theirs = {tuple(v.values()) for v in configurations(names) if all(holds(v) for holds in every)}
    diagram = compile_space(space)
    assert diagram.count == len(theirs)
    assert {configuration(answer) for answer in diagram.table().assignments()} == theirs
    try:
        with enumerate_assignments(space) as found:
            assert {configuration(answer) for answer in found} == theirs
    except LimitError:
        pass  # beyond 64 bits, in which CP-SAT computes
