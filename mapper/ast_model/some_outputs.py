"""Single outputs of a program, exactly: only what they depend on is computed.

A value is a function from index arrays to elements, as the kernels' views are, for a few thousand
elements at once. Index arrays broadcast; a reduction puts an axis of its steps in front of theirs
and sums it, where its steps are a fold, and goes step by step where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.evaluator import operate
from mapper.ast_model.folds import Branch, Fold, Tree, fold_of
from mapper.ast_model.grids import Array
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import (
    Apply,
    AsScalar,
    AsVector,
    Call,
    Fill,
    FunctionExpr,
    Get,
    Join,
    Let,
    Literal,
    Map,
    Node,
    Op,
    OrderKind,
    Pad,
    Program,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    UserFunction,
    Zip,
)
from mapper.ast_model.operators import constant, held_as
from mapper.errors import LimitError, Problem

#: Elements that may be looked up and computed, about a second of one core.
MAX_ELEMENTS = 2**27
#: What a look-up costs besides, in elements.
_OVERHEAD = 500
#: Elements that are computed at a time.
_CHUNK = 2**19
_FLOATS = np.dtype(np.float64)

Indices = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Elements:
    """A scalar, a vector or an array: ``at`` gives elements by an index for each dimension.

    Lanes of a vector are the last dimension.
    """

    shape: tuple[int, ...]
    at: Callable[[Indices], Array]


Value = Elements | tuple["Value", ...]
Environment = Mapping[str, Value]


def elements_of(array: Array) -> Elements:
    """The elements of an array that is there."""
    return Elements(array.shape, lambda indices: np.asarray(array[indices]))


class SomeOutputs:
    """Elements of kernels' results, see :class:`mapper.ast_model.evaluator.Evaluator`."""

    def __init__(self, program: Program, numbers: Mapping[str, int]) -> None:
        self._program = program
        self._numbers = numbers
        self._spent = 0
        # Of the index arrays that elements are being looked up with.
        self._axes = 1
        self._size: int = 1
        self._folds: dict[int, Fold | None] = {}

    def kernel(self, body: Node, known: Mapping[str, Elements]) -> Elements:
        """A kernel's result; nothing is computed yet."""
        value = self.evaluate(body, known)
        assert isinstance(value, Elements)  # the type checker lets no tuples out
        return value

    def look_up(self, result: Elements, indices: tuple[NDArray[np.intp], ...]) -> Array:
        """Elements of a result by index arrays of one axis; LimitError if it takes too long."""
        self._size = len(indices[0])
        try:
            with np.errstate(all="ignore"):
                return np.broadcast_to(result.at(indices), (self._size,))
        except RecursionError:
            raise _refusal("outputs depend on each other in too long a chain") from None

    def evaluate(self, node: Node, env: Environment) -> Value:
        """The value of a node; what it costs is spent where it is looked up."""
        match node:
            case Ref(name):
                return env[name]
            case Literal(value, dtype):
                return elements_of(constant(value, held_as(dtype, _FLOATS)))
            case Fill(value, shape, dtype):
                lengths = tuple(self._number(length) for length in shape)
                single = constant(value, held_as(dtype, _FLOATS))
                return Elements(lengths, lambda _: single)
            case Call(name, arguments):
                function = self._program.function(name)
                assert function is not None  # the type checker knows it
                return self._called(function, [_one(self.evaluate(a, env)) for a in arguments])
            case Map():
                return self._mapped(node, env)
            case Reduce(_, _, _, initial, argument):
                source, start = self.evaluate(argument, env), self.evaluate(initial, env)
                if not isinstance(start, Elements):
                    raise _refusal("an accumulator is a tuple")
                return Elements(
                    (1, *start.shape),
                    lambda indices: self._reduced(node, env, source, start, indices[1:]),
                )
            case Zip(arguments):
                return tuple(self.evaluate(argument, env) for argument in arguments)
            case Get(index, argument):
                pair = self.evaluate(argument, env)
                assert isinstance(pair, tuple)
                return pair[index]
            case To(_, argument, _):
                return self.evaluate(argument, env)
            case Let(name, value, body):
                bound = _each(self.evaluate(value, env), _kept)
                return self.evaluate(body, {**env, name: bound})
            case _:
                change = self._layout(node)
                return _each(self.evaluate(node.argument, env), change)

    def _number(self, expression: Expr) -> int:
        return expression.evaluate(self._numbers)

    def _spend(self, elements: int) -> None:
        self._spent += elements + _OVERHEAD
        if self._spent > MAX_ELEMENTS:
            raise _refusal("outputs depend on too many elements")

    def _layout(
        self, node: Split | Join | Slide | Pad | Transpose | Reorder | AsVector | AsScalar
    ) -> Callable[[Elements], Elements]:
        match node:
            case Split(size, _) | AsVector(size, _):
                return _windows(self._number(size), self._number(size))
            case Join() | AsScalar():
                return _joined
            case Slide(size, step, _, _):
                return _windows(self._number(size), self._number(step))
            case Pad(left, right, fill, _):
                return _padded(self._number(left), self._number(right), fill)
            case Transpose():
                return lambda e: Elements(
                    (e.shape[1], e.shape[0], *e.shape[2:]),
                    lambda indices: e.at((indices[1], indices[0], *indices[2:])),
                )
            case Reorder(kind, amount, _):
                return _reordered(kind, self._number(amount))

    def _mapped(self, node: Map, env: Environment) -> Value:
        source = self.evaluate(node.argument, env)
        length = _first(source).shape[0]

        def body(index: Any) -> Value:
            return self.evaluate(node.body, {**env, node.parameter: _element(source, index)})

        def leaves(value: Value, path: tuple[int, ...]) -> Value:
            if isinstance(value, tuple):
                return tuple(leaves(item, (*path, i)) for i, item in enumerate(value))

            def at(indices: Indices) -> Array:
                found = body(indices[0])
                for position in path:
                    assert isinstance(found, tuple)
                    found = found[position]
                return _one(found).at(indices[1:])

            return Elements((length, *value.shape), at)

        return leaves(body(0), ())

    # Functions

    def _called(self, function: UserFunction, operands: list[Elements]) -> Elements:
        bound = dict(zip(function.parameters, operands, strict=True))

        def tree(body: FunctionExpr) -> _Applied:
            match body:
                case str():
                    return bound[body]
                case float() | int():
                    return float(body)
                case Apply(op, inner):
                    return _Operation(op, tuple(tree(operand) for operand in inner))

        applied = tree(function.body)
        width = _width(applied)
        return _kept(
            Elements(
                () if width is None else (width,),
                lambda indices: np.asarray(self._value(applied, indices)),
            )
        )

    def _value(self, applied: _Applied, lane: Indices) -> Array | float:
        """The value of operators on elements, of a vector in a lane."""
        match applied:
            case float() | int():
                return float(applied)
            case Elements(shape, at):
                result = at(lane if shape else ())
                self._spend(result.size)
                return result
            case _Operation(op, inner):
                if op in (Op.DOT, Op.SUM):
                    return self._lane_sum(op, inner)
                result = operate(op, [self._value(operand, lane) for operand in inner])
                self._spend(result.size)
                return result

    def _lane_sum(self, op: Op, inner: tuple[_Applied, ...]) -> Array:
        widths = [width for operand in inner if (width := _width(operand)) is not None]
        lanes = [
            operate(op, [self._value(operand, (lane,)) for operand in inner])
            for lane in range(widths[0] if widths else 1)
        ]
        return reduce(lambda total, lane: operate(Op.ADD, (total, lane)), lanes)

    # Reductions

    def _reduced(
        self, node: Reduce, env: Environment, source: Value, start: Elements, place: Indices
    ) -> Array:
        if id(node) not in self._folds:
            self._folds[id(node)] = fold_of(self._program, node)
        fold = self._folds[id(node)]
        steps = _first(source).shape[0]
        total = start.at(place)
        stepwise = total.dtype == np.float16  # each step is rounded
        if fold is not None and len(start.shape) <= 1 and not stepwise:
            return self._folded(node, fold, env, source, total, place)
        for step in range(steps):

            def held(indices: Indices, total: Array = total) -> Array:
                if not all(np.all(i == j) for i, j in zip(indices, place, strict=True)):
                    raise _refusal("an accumulator's elements depend on each other")
                return total

            inner = {
                **env,
                node.accumulator: Elements(start.shape, held),
                node.parameter: _element(source, step),
            }
            total = _one(self.evaluate(node.body, inner)).at(place)
        return total

    def _folded(
        self,
        node: Reduce,
        fold: Fold,
        env: Environment,
        source: Value,
        total: Array,
        lane: Indices,
    ) -> Array:
        axes, size, steps = self._axes, self._size, _first(source).shape[0]
        chunk, dtype = max(1, _CHUNK // size), total.dtype
        wide = np.int64 if dtype.kind in "iu" else np.float64
        for first in range(0, steps, chunk):
            indices = np.arange(first, min(first + chunk, steps))
            step = indices.reshape(-1, *(1,) * axes)
            inner = {**env, node.parameter: _element(source, step)}
            for product in fold.products:
                operands = tuple(self._tree(factor, inner) for factor in product.factors)
                self._axes, self._size = axes + 1, size * len(indices)
                try:
                    applied: _Applied = operands[0]
                    for operand in operands[1:]:
                        applied = _Operation(Op.MUL, (applied, operand))
                    if product.lanes:
                        applied = _Operation(Op.SUM, (applied,))
                    values = np.asarray(self._value(applied, lane), dtype=wide)
                finally:
                    self._axes, self._size = axes, size
                if values.ndim <= axes:  # the same in all steps
                    values = values.reshape(1, *(1,) * (axes - values.ndim), *values.shape)
                if fold.op is Op.ADD and len(values) == 1:
                    values = values * len(indices)
                total = _taken(total, values, fold.op, product.sign)
                if wide is np.int64:
                    total = total.astype(dtype)  # the lower bits
        return total

    def _tree(self, tree: Tree, env: Environment) -> _Applied:
        match tree:
            case float() | int():
                return float(tree)
            case Branch(op, operands):
                return _Operation(op, tuple(self._tree(operand, env) for operand in operands))
            case _:
                return _one(self.evaluate(tree, env))


@dataclass(frozen=True, slots=True)
class _Operation:
    op: Op
    operands: tuple[_Applied, ...]


_Applied = float | Elements | _Operation


def _width(applied: _Applied) -> int | None:
    """The lanes of what is a vector."""
    match applied:
        case float() | int():
            return None
        case Elements(shape, _):
            return shape[0] if shape else None
        case _Operation(op, operands):
            if op in (Op.DOT, Op.SUM):
                return None
            return next((w for o in operands if (w := _width(o)) is not None), None)


def _taken(total: Array, values: Array, op: Op, sign: int) -> Array:
    match op:
        case Op.MAX:
            return np.maximum(total, values.max(axis=0))
        case Op.MIN:
            return np.minimum(total, values.min(axis=0))
        case _:
            return total + sign * values.sum(axis=0)


def _windows(size: int, step: int) -> Callable[[Elements], Elements]:
    return lambda e: Elements(
        ((e.shape[0] - size) // step + 1, size, *e.shape[1:]),
        lambda indices: e.at((indices[0] * step + indices[1], *indices[2:])),
    )


def _joined(elements: Elements) -> Elements:
    outer, inner = elements.shape[:2]
    return Elements(
        (outer * inner, *elements.shape[2:]),
        lambda indices: elements.at((indices[0] // inner, indices[0] % inner, *indices[1:])),
    )


def _padded(left: int, right: int, fill: float) -> Callable[[Elements], Elements]:
    def padded(elements: Elements) -> Elements:
        length = elements.shape[0]

        def at(indices: Indices) -> Array:
            index = np.asarray(indices[0] - left)
            values = elements.at((np.clip(index, 0, length - 1), *indices[1:]))
            if values.dtype == np.float32:
                values = values.astype(_FLOATS)
            held = values.dtype.type(fill)
            return np.where((index >= 0) & (index < length), values, held)

        return Elements((length + left + right, *elements.shape[1:]), at)

    return padded


def _reordered(kind: OrderKind, amount: int) -> Callable[[Elements], Elements]:
    def reordered(elements: Elements) -> Elements:
        length = elements.shape[0]

        def at(indices: Indices) -> Array:
            index = indices[0]
            match kind:
                case OrderKind.STRIDE:
                    run = length // amount
                    index = index // run + amount * (index % run)
                case OrderKind.REVERSE:
                    index = length - 1 - index
            return elements.at((index, *indices[1:]))

        return Elements(elements.shape, at)

    return reordered


def _kept(elements: Elements) -> Elements:
    """A single element is computed once."""
    if math.prod(elements.shape) != 1:
        return elements
    found: list[Array] = []

    def at(_: Indices) -> Array:
        if not found:
            found.append(elements.at((0,) * len(elements.shape)))
        return found[0]

    return Elements(elements.shape, at)


def _element(value: Value, index: Any) -> Value:
    return _each(
        value,
        lambda e: _kept(Elements(e.shape[1:], lambda indices: e.at((index, *indices)))),
    )


def _each(value: Value, function: Callable[[Elements], Elements]) -> Value:
    if isinstance(value, tuple):
        return tuple(_each(item, function) for item in value)
    return function(value)


def _first(value: Value) -> Elements:
    while isinstance(value, tuple):
        value = value[0]
    return value


def _one(value: Value) -> Elements:
    assert isinstance(value, Elements)  # the type checker has no tuples here
    return value


def _refusal(message: str) -> LimitError:
    return LimitError(Problem("", f"single outputs cannot be computed in time: {message}"))
