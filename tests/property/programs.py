"""Random programs that type-check, with values under which all their obligations hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.proofs.soundness.elements import of_element
from mapper.ast_model.bounds import writes
from mapper.ast_model.index_expr import Expr, const, exact_div, floor_div, modulo, symbol
from mapper.ast_model.nodes import (
    COMPARISONS,
    Apply,
    AsScalar,
    AsVector,
    Call,
    Fill,
    FunctionExpr,
    Get,
    Input,
    Join,
    Kernel,
    Let,
    Literal,
    Map,
    Node,
    Op,
    OrderKind,
    Pad,
    Parameter,
    Program,
    Reduce,
    Ref,
    Relation,
    Reorder,
    Requirement,
    Slide,
    Split,
    To,
    Transpose,
    UserFunction,
    Zip,
    children,
)
from mapper.ast_model.type_check import check_program, infer
from mapper.ast_model.types import (
    FLOAT,
    ArrayType,
    Memory,
    ScalarType,
    TupleType,
    Type,
    VectorType,
    array,
    dimensions,
    element_dtype,
)
from mapper.elements import Element, Kind
from mapper.errors import TypeErrors

MAX_RESULT = 300
numbers = st.integers(-3, 3).map(float) | st.floats(-2, 2, width=16)


@dataclass(frozen=True)
class Case:
    """A program, values of its tuning parameters, and its inputs."""

    program: Program
    values: dict[str, int]
    inputs: dict[str, NDArray[Any]]


def function_bodies(parameters: tuple[str, ...]) -> st.SearchStrategy[FunctionExpr]:
    leaves: st.SearchStrategy[FunctionExpr] = st.sampled_from(parameters) | numbers

    def operators(inner: st.SearchStrategy[FunctionExpr]) -> st.SearchStrategy[FunctionExpr]:
        two = st.tuples(
            st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN, Op.DOT]), inner, inner
        )
        return (
            two.map(lambda t: Apply(t[0], t[1:]))
            | st.tuples(inner, inner, inner).map(lambda t: Apply(Op.FMA, t))
            | inner.map(lambda x: Apply(Op.SUM, (x,)))
            | inner.map(lambda x: Apply(Op.SQRT, (Apply(Op.ABS, (x,)),)))
            | st.tuples(st.sampled_from(COMPARISONS), inner, inner, inner, inner).map(
                lambda t: Apply(Op.SELECT, (Apply(t[0], t[1:3]), t[3], t[4]))
            )
        )

    return st.recursive(leaves, operators, max_leaves=6)


def expressions(names: tuple[str, ...] = ("a", "b", "c")) -> st.SearchStrategy[Expr]:
    """Integer expressions over symbols, in the canonical form that building them gives."""
    leaves = st.sampled_from(names).map(symbol) | st.integers(0, 12).map(const)
    divisors = st.sampled_from(names).map(symbol) | st.integers(1, 6).map(const)

    def operators(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pairs, divided = st.tuples(inner, inner), st.tuples(inner, divisors)
        return (
            pairs.map(lambda p: p[0] + p[1])
            | pairs.map(lambda p: p[0] - p[1])
            | pairs.map(lambda p: p[0] * p[1])
            | divided.map(lambda p: floor_div(*p))
            | divided.map(lambda p: modulo(*p))
            | divided.filter(lambda p: p[0].constant is None or p[1].constant is None).map(
                lambda p: exact_div(*p)
            )
        )

    return st.recursive(leaves, operators, max_leaves=6)


def has_map(node: Node) -> bool:
    """True if a map stands in it, so that it cannot stand twice in a program."""
    return isinstance(node, Map) or any(has_map(child) for _, child in children(node))


@dataclass
class _Growth:
    draw: st.DrawFn
    program: Program
    numbers: Mapping[str, int]
    fresh: int = 0
    fuel: int = 14

    def name(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    def pick(self, *choices: object) -> object:
        return self.draw(st.sampled_from(choices))

    def amount(self, low: int, high: int, dividing: int | None = None) -> Expr | None:
        """A constant or symbol in a range whose value divides, or None if there is none."""
        found = [
            e
            for e in [*(const(v) for v in range(low, high + 1)), *map(symbol, self.numbers)]
            if low <= (v := e.evaluate(self.numbers)) <= high
            and (dividing is None or dividing % v == 0)
        ]
        return self.draw(st.sampled_from(found)) if found else None

    def size(self, type_: Type) -> int:
        lengths, element = dimensions(type_)
        total = 1
        for length in lengths:
            total *= length.evaluate(self.numbers)
        if isinstance(element, VectorType):
            total *= element.width.evaluate(self.numbers)
        if isinstance(element, TupleType):
            total *= sum(self.size(item) for item in element.items)
        return total

    def grown(self, node: Node, env: dict[str, Type], steps: int) -> Node:
        for _ in range(steps):
            if self.fuel == 0:
                break
            self.fuel -= 1
            node = self.step(node, infer(node, env, self.program), env, steps)
        return node

    def step(self, node: Node, type_: Type, env: dict[str, Type], steps: int) -> Node:
        if self.size(type_) <= MAX_RESULT and self.draw(st.integers(0, 9)) == 0:
            name = self.name()
            return Let(name, node, self.grown(Ref(name), {**env, name: type_}, steps - 1))
        match type_:
            case ScalarType() | VectorType():
                return self.called(node, env)
            case TupleType(items):
                return Get(self.draw(st.integers(0, len(items) - 1)), node)
            case ArrayType():
                return self.array_step(node, type_, env, steps)

    def called(self, node: Node, env: dict[str, Type]) -> Node:
        others: list[Node] = [Ref(n) for n, t in env.items() if isinstance(t, ScalarType)]
        others += [Literal(self.draw(numbers)), *([] if has_map(node) else [node])]
        other = self.draw(st.sampled_from(others))
        functions = [(f.name, len(f.parameters)) for f in self.program.functions]
        name, count = self.draw(
            st.sampled_from([("id", 1), ("add", 2), ("max", 2), ("dot", 2), ("fma", 3), *functions])
        )
        call: Node = Call(name, (node, other, other)[:count])
        return To(self.draw(st.sampled_from(list(Memory))), call) if self.pick(0, 1) else call

    def array_step(self, node: Node, type_: ArrayType, env: dict[str, Type], steps: int) -> Node:
        length = type_.length.evaluate(self.numbers)
        small = self.size(type_) <= MAX_RESULT
        choices = ["map", "map", "split", "reorder", "reverse"]
        element = type_.element
        if isinstance(element, ArrayType):
            choices += ["join", "transpose"]
        if isinstance(element, ScalarType):
            choices += ["as_vector", "reduce", "reduce"]
        if isinstance(element, VectorType):
            choices += ["as_scalar"]
        if small:
            choices += ["slide", "slide_strict", "zip"]
        if not isinstance(dimensions(type_)[1], TupleType):
            choices += ["pad"] if small else []
        if writes(node):
            choices += ["to"]
        match self.pick(*choices):
            case "map":
                name = self.name()
                self.fresh += 1
                map_id = self.pick(self.fresh, f"m{self.fresh}", f"a map, {self.fresh}")
                assert isinstance(map_id, int | str)
                body = self.grown(Ref(name), {**env, name: element}, max(1, steps - 1))
                return Map(map_id, name, body, node)
            case "split":
                size = self.amount(1, length, length)
                return node if size is None else Split(size, node)
            case "reorder":
                stride = self.amount(1, length, length)
                return node if stride is None else Reorder(OrderKind.STRIDE, stride, node)
            case "reverse":
                return Reorder(OrderKind.REVERSE, const(1), node)
            case "join":
                return Join(node)
            case "transpose":
                return Transpose(node)
            case "as_vector":
                width = self.amount(1, length, length)
                return node if width is None else AsVector(width, node)
            case "as_scalar":
                return AsScalar(node)
            case "slide":
                size, step = self.amount(1, length), self.amount(1, 3)
                return node if size is None or step is None else Slide(size, step, node, False)
            case "slide_strict":
                step = self.amount(1, 3)
                if step is None:
                    return node
                left = length % step.evaluate(self.numbers)
                extra = const(left) if left else const(0)
                size = step + extra
                fits = size.evaluate(self.numbers) <= length
                return Slide(size, step, node, True) if fits else node
            case "pad":
                left, right = self.draw(st.integers(-2, 2)), self.amount(0, 2) or const(0)
                if length + left + right.evaluate(self.numbers) < 1:
                    left = 0
                return Pad(const(left), right, self.draw(numbers), node)
            case "zip":
                others: list[Node] = [
                    Ref(n)
                    for n, t in env.items()
                    if isinstance(t, ArrayType)
                    and t.length.evaluate(self.numbers) == length
                    and self.size(t) <= MAX_RESULT
                ]
                others += [] if has_map(node) else [node]
                return Zip((node, self.draw(st.sampled_from(others)))) if others else node
            case "to":
                return To(self.draw(st.sampled_from(list(Memory))), node)
            case "reduce":
                accumulator, name = self.name(), self.name()
                function = self.draw(st.sampled_from(["add", "max", "min"]))
                body = Call(function, (Ref(accumulator), Ref(name)))
                unroll = self.draw(st.sampled_from([const(0), const(1)]))
                start = Literal(self.draw(numbers))
                return Reduce(accumulator, name, body, start, node, unroll)
            case other:
                raise AssertionError(other)

    def without_tuples(self, node: Node, env: dict[str, Type]) -> Node:
        """Components taken until the result is an array of floats or vectors."""
        while isinstance(dimensions(infer(node, env, self.program))[1], TupleType):
            node = self.first_component(node, infer(node, env, self.program))
        return node

    def first_component(self, node: Node, type_: Type) -> Node:
        if isinstance(type_, TupleType):
            return Get(0, node)
        assert isinstance(type_, ArrayType)
        name = self.name()
        self.fresh += 1
        return Map(self.fresh, name, self.first_component(Ref(name), type_.element), node)


@st.composite
def cases(draw: st.DrawFn, max_steps: int = 5) -> Case:
    """A program that type-checks, with values that keep its obligations, and inputs."""
    names = draw(st.lists(st.sampled_from(["H", "W", "C", "size"]), unique=True, max_size=3))
    sizes = tuple((name, draw(st.integers(1, 6))) for name in names)
    parameters: list[Parameter] = []
    values: dict[str, int] = {}
    for name in draw(st.lists(st.sampled_from(["p", "q", "step"]), unique=True, max_size=2)):
        allowed = draw(st.lists(st.integers(1, 5), unique=True, min_size=1, max_size=5))
        parameters.append(Parameter(name, tuple(sorted(allowed))))
        values[name] = draw(st.sampled_from(allowed))
    functions: list[UserFunction] = []
    for name in draw(st.lists(st.sampled_from(["f", "g"]), unique=True, max_size=2)):
        arguments = ("x", "y", "z")[: draw(st.integers(1, 3))]
        functions.append(UserFunction(name, arguments, draw(function_bodies(arguments))))
    held = {**dict(sizes), **values}
    relations = st.sampled_from([Relation.LE, Relation.GT, Relation.NE])
    requirements = tuple(
        Requirement(symbol(name), draw(relations), const(draw(st.integers(1, 5))))
        for name in values
    )
    requirements = tuple(r for r in requirements if _holds(r, held))
    lengths = [*map(symbol, dict(sizes)), const(draw(st.integers(1, 6))), const(4)]
    inputs: list[Input] = []
    arrays: dict[str, NDArray[np.float64]] = {}
    for name in ["x", "input"][: draw(st.integers(1, 2))]:
        shape = draw(st.lists(st.sampled_from(lengths), min_size=1, max_size=3))
        width = draw(st.sampled_from([None, const(2)]))
        inputs.append(Input(name, array(FLOAT if width is None else VectorType(width), *shape)))
        counts = [e.evaluate(held) for e in [*shape, *([] if width is None else [width])]]
        seed = draw(st.integers(0, 2**16))
        arrays[name] = np.random.default_rng(seed).integers(-3, 4, counts).astype(np.float64)
    program = Program(
        "random", sizes, tuple(parameters), requirements, tuple(functions), tuple(inputs), ()
    )
    growth = _Growth(draw, program, held)
    env: dict[str, Type] = {i.name: i.type for i in inputs}
    kernels: list[Kernel] = []
    for name in ["first", "kernel"][: draw(st.integers(1, 2))]:
        fill = Fill(draw(numbers), (draw(st.sampled_from(lengths)), const(2)))
        start = draw(st.sampled_from([*map(Ref, env), fill]))
        body = growth.grown(start, dict(env), draw(st.integers(1, max_steps)))
        body = growth.without_tuples(body, dict(env))
        kernels.append(Kernel(name, body))
        env[name] = infer(body, env, program)
    return Case(replace(program, kernels=tuple(kernels)), values, arrays)


@st.composite
def typed_cases(draw: st.DrawFn) -> tuple[Case, Element]:
    """A case all of whose elements have another type than 32-bit floats, and that type."""
    case, element = draw(cases()), draw(st.sampled_from([*Element][1:]))
    program = of_element(case.program, element)
    try:
        types = check_program(program).kernel_types.values()
    except TypeErrors:  # sqrt has no integers
        types = ()
    # A function that is a constant gives floats.
    assume(types and all(element_dtype(type_) is element for type_ in types))
    inputs: dict[str, NDArray[Any]] = {}
    for name, whole in case.inputs.items():
        positive = np.abs(whole) if element.kind is Kind.UNSIGNED else whole
        inputs[name] = positive.astype(element.value)
    return Case(program, case.values, inputs), element


def _holds(requirement: Requirement, values: Mapping[str, int]) -> bool:
    left, right = requirement.left.evaluate(values), requirement.right.evaluate(values)
    match requirement.relation:
        case Relation.LE:
            return left <= right
        case Relation.GT:
            return left > right
        case _:
            return left != right
