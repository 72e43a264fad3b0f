"""The one meaning of programs, in NumPy; every kernel is held against it.

Values are batched: inside ``n`` maps a value carries ``n`` leading *batch axes*, of the
maps' lengths or of length 1 where the value does not depend on that map. A map therefore
runs its body once, for all elements together. A reduction runs its body once for each
step, in order, as the kernels do. Lanes of a vector are one trailing axis; an array of
tuples is a tuple of arrays. Integers and 16-bit floats are held and computed with as they are,
32-bit floats in the type that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import DTypeLike, NDArray

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
    Zip,
)
from mapper.ast_model.obligations import Obligation
from mapper.ast_model.operators import added_lanes, constant, held_as, operated
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import VectorType, dimensions, element_dtype
from mapper.errors import InputError, LimitError, Problem

Array = NDArray[Any]
Value = Array | tuple["Value", ...]
# A value, and the number of batch axes that it was bound under.
Environment = Mapping[str, tuple[Value, int]]

MAX_ELEMENTS = 2**28
MAX_AXES = 60  # NumPy itself stops at 64


def _unwatched() -> None:
    """Nobody bounds the time."""


def interpret(
    program: Program,
    values: Mapping[str, int],
    inputs: Mapping[str, Array],
    dtype: DTypeLike = np.float64,
    tick: Callable[[], None] = _unwatched,
) -> Array:
    """The result of the program's last kernel; see :func:`interpret_all`."""
    return interpret_all(program, values, inputs, dtype, tick)[program.kernels[-1].name]


def interpret_all(
    program: Program,
    values: Mapping[str, int],
    inputs: Mapping[str, Array],
    dtype: DTypeLike = np.float64,
    tick: Callable[[], None] = _unwatched,
) -> dict[str, Array]:
    """Every kernel's result, by name, in the program's order.

    ``values`` has a value for every tuning parameter, ``inputs`` an array for every input,
    outermost dimension first, lanes last; ``dtype`` is what 32-bit floats are computed and held
    in; ``tick`` is called before each step and may end it all by raising.
    Raises TypeErrors for a program that is not well
    typed; InputError for values that are missing or break an obligation (all are named)
    and for arrays of another shape; LimitError when an intermediate value is too large.
    """
    types = check_program(program)
    numbers = all_values(program, values)
    check_obligations(types.obligations, numbers)
    env: dict[str, tuple[Value, int]] = {}
    for name, array in checked_inputs(program, numbers, inputs, np.dtype(dtype)).items():
        env[name] = (array, 0)
    run = _Interpreter(program, numbers, np.dtype(dtype), tick)
    results: dict[str, Array] = {}
    for kernel in program.kernels:
        with np.errstate(all="ignore"):  # overflow is for the comparison to judge
            result = run.evaluate(kernel.body, env, 0)
        assert isinstance(result, np.ndarray)  # the type checker lets no tuples out
        _bounded(result.shape)
        results[kernel.name] = np.array(result)  # a copy: it may be a view of an input
        env[kernel.name] = (result, 0)
    return results


def all_values(program: Program, values: Mapping[str, int]) -> dict[str, int]:
    problems: list[Problem] = []
    known = {p.name: p for p in program.parameters}
    for name in sorted(known.keys() - values.keys()):
        problems.append(Problem(f"values/{name}", "a tuning parameter has no value"))
    for name, value in values.items():
        if name not in known:
            problems.append(Problem(f"values/{name}", "no such tuning parameter", name,
                                    ", ".join(sorted(known)) or "none"))  # fmt: skip
        elif value not in known[name].values:
            listed = ", ".join(str(v) for v in known[name].values[:30])
            problems.append(
                Problem(f"values/{name}", "not among the parameter's values", str(value), listed)
            )
    if problems:
        raise InputError(problems)
    return {**dict(program.sizes), **{name: int(value) for name, value in values.items()}}


def check_obligations(obligations: tuple[Obligation, ...], numbers: Mapping[str, int]) -> None:
    broken: list[Problem] = []
    for obligation in obligations:
        try:
            holds = obligation.holds(numbers)
        except InputError:  # a division by zero, by a parameter that is 0
            holds = False
        if not holds:
            names = sorted(obligation.left.names() | obligation.right.names())
            found = ", ".join(f"{name} = {numbers[name]}" for name in names)
            broken.append(
                Problem(obligation.path, f"{obligation.rule}: {obligation.sentence}", found,
                        str(obligation))
            )  # fmt: skip
    if broken:
        raise InputError(broken)


def checked_inputs(
    program: Program, numbers: Mapping[str, int], inputs: Mapping[str, Array], dtype: np.dtype[Any]
) -> dict[str, Array]:
    problems: list[Problem] = []
    arrays: dict[str, Array] = {}
    for input_ in program.inputs:
        path = f"inputs/{input_.name}"
        if input_.name not in inputs:
            problems.append(Problem(path, "the input has no array"))
            continue
        lengths, single = dimensions(input_.type)
        if isinstance(single, VectorType):
            lengths = (*lengths, single.width)
        shape = tuple(length.evaluate(numbers) for length in lengths)
        array = np.asarray(inputs[input_.name])
        if array.shape != shape:
            problems.append(Problem(path, "the array has another shape", str(array.shape),
                                    str(shape)))  # fmt: skip
        elif array.dtype.kind not in "fiub":
            problems.append(Problem(path, "the array is not of real numbers", str(array.dtype)))
        else:
            element = element_dtype(input_.type)
            held = array.astype(held_as(element, dtype))
            if element.is_integer and not np.array_equal(held, array):
                message = f"the array holds numbers that are no {element.text}"
                low, high = element.range
                problems.append(Problem(path, message, "", f"whole numbers from {low} to {high}"))
            arrays[input_.name] = held
    for name in inputs.keys() - {input_.name for input_ in program.inputs}:
        problems.append(Problem(f"inputs/{name}", "no such input", name))
    if problems:
        raise InputError(problems)
    return arrays


class _Interpreter:
    def __init__(
        self,
        program: Program,
        numbers: Mapping[str, int],
        dtype: np.dtype[Any],
        tick: Callable[[], None],
    ) -> None:
        self._program = program
        self._tick = tick
        self._numbers = numbers
        self._dtype = dtype

    def evaluate(self, node: Node, env: Environment, depth: int) -> Value:
        """The value of a node under ``depth`` batch axes."""
        self._tick()
        match node:
            case Ref(name):
                value, bound = env[name]
                return _each(value, lambda a: _with_batch_axes(a, bound, depth))
            case Literal(value, dtype):
                single = constant(value, held_as(dtype, self._dtype))
                return single.reshape((1,) * depth)
            case Fill(value, shape, dtype):
                lengths = tuple(self._number(length) for length in shape)
                single = constant(value, held_as(dtype, self._dtype))
                return np.broadcast_to(single, _bounded((1,) * depth + lengths))
            case Call(name, arguments):
                operands: list[Array] = []
                for argument in arguments:
                    operand = self.evaluate(argument, env, depth)
                    assert isinstance(operand, np.ndarray)
                    operands.append(operand)
                return self._call(name, operands, depth)
            case Map(_, parameter, body, argument):
                source = self.evaluate(argument, env, depth)
                length = _first(source).shape[depth]
                inner = {**env, parameter: (source, depth + 1)}
                result = self.evaluate(body, inner, depth + 1)
                # The body may not have looked at its element: then all elements are one.
                return _each(result, lambda a: _lengthened(a, depth, length))
            case Reduce(accumulator, parameter, body, initial, argument):
                source = self.evaluate(argument, env, depth)
                total = self.evaluate(initial, env, depth)
                for step in range(_first(source).shape[depth]):
                    element = _element(source, depth, step)
                    inner = {**env, accumulator: (total, depth), parameter: (element, depth)}
                    total = self.evaluate(body, inner, depth)
                return _each(total, lambda a: np.expand_dims(a, depth))
            case Zip(arguments):
                items: list[Value] = []
                for argument in arguments:
                    items.append(self.evaluate(argument, env, depth))
                return tuple(items)
            case Get(index, argument):
                pair = self.evaluate(argument, env, depth)
                assert isinstance(pair, tuple)
                return pair[index]
            case Split(size, argument):
                chunk = self._number(size)
                source = self.evaluate(argument, env, depth)
                return _each(source, lambda a: _split(a, depth, chunk))
            case Join(argument):
                source = self.evaluate(argument, env, depth)
                return _each(source, lambda a: _join(a, depth))
            case Slide(size, step, argument, _):
                window, stride = self._number(size), self._number(step)
                source = self.evaluate(argument, env, depth)
                return _each(source, lambda a: _slide(a, depth, window, stride))
            case Pad(left, right, fill, argument):
                amounts = (self._number(left), self._number(right))
                source = self.evaluate(argument, env, depth)
                return _each(source, lambda a: _pad(a, depth, amounts, fill))
            case Transpose(argument):
                source = self.evaluate(argument, env, depth)
                return _each(source, lambda a: a.swapaxes(depth, depth + 1))
            case Reorder(kind, amount, argument):
                source = self.evaluate(argument, env, depth)
                order = _order(kind, self._number(amount), _first(source).shape[depth])
                return _each(source, lambda a: _taken(a, order, depth))
            case AsVector(width, argument):
                lanes = self._number(width)
                source = self.evaluate(argument, env, depth)
                # A float array's elements are scalars, so its axis is the last one.
                return _each(source, lambda a: _split(a, depth, lanes))
            case AsScalar(argument):
                source = self.evaluate(argument, env, depth)
                return _each(source, lambda a: _join(a, depth))
            case To(_, argument, _):
                return self.evaluate(argument, env, depth)
            case Let(name, value, body):
                bound_value = self.evaluate(value, env, depth)
                return self.evaluate(body, {**env, name: (bound_value, depth)}, depth)

    def _number(self, expression: Expr) -> int:
        return expression.evaluate(self._numbers)

    def _call(self, name: str, operands: list[Array], depth: int) -> Array:
        function = self._program.function(name)
        assert function is not None  # the type checker knows it
        lanes = any(a.ndim > depth for a in operands)
        shapes = [a.shape if a.ndim > depth or not lanes else (*a.shape, 1) for a in operands]
        _bounded(np.broadcast_shapes(*shapes))
        arguments = dict(zip(function.parameters, operands, strict=True))
        result = self._apply(function.body, arguments, depth)
        array = np.asarray(result, None if isinstance(result, np.ndarray) else self._dtype)
        return array.reshape((1,) * depth) if array.ndim < depth else array

    def _apply(
        self, body: FunctionExpr, arguments: Mapping[str, Array], depth: int
    ) -> Array | float:
        """A function's body on scalars (``depth`` axes) and vectors (one axis more)."""
        match body:
            case str():
                return arguments[body]
            case float() | int():
                return float(body)
            case Apply(op, inner):
                operands = [self._apply(operand, arguments, depth) for operand in inner]
        arrays = [a for a in operands if isinstance(a, np.ndarray)]
        vectors = any(a.ndim > depth for a in arrays)
        if vectors:  # scalars go to every lane
            operands = [
                a[..., np.newaxis] if isinstance(a, np.ndarray) and a.ndim == depth else a
                for a in operands
            ]
        if op not in (Op.DOT, Op.SUM):
            return operated(op, operands, self._dtype)
        product = operated(Op.MUL, operands, self._dtype) if op is Op.DOT else operands[0]
        return added_lanes(product) if vectors and isinstance(product, np.ndarray) else product


def _each(value: Value, function: Callable[[Array], Array]) -> Value:
    """``function`` on every array of a value."""
    if isinstance(value, tuple):
        return tuple(_each(item, function) for item in value)
    return function(value)


def _first(value: Value) -> Array:
    while isinstance(value, tuple):
        value = value[0]
    return value


def _element(value: Value, depth: int, index: int) -> Value:
    return _each(value, lambda a: a[(slice(None),) * depth + (index,)])


def _bounded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape itself; LimitError if it is more than the interpreter may hold."""
    if math.prod(shape) > MAX_ELEMENTS or len(shape) > MAX_AXES:
        raise LimitError(
            Problem("", "an intermediate value is too large to interpret",
                    f"{math.prod(shape)} elements on {len(shape)} axes",
                    f"{MAX_ELEMENTS} elements on {MAX_AXES} axes", "a smaller layer")
        )  # fmt: skip
    return shape


def _with_batch_axes(array: Array, bound: int, depth: int) -> Array:
    """A value bound under ``bound`` batch axes, seen under ``depth`` of them."""
    if array.ndim + depth - bound > MAX_AXES:
        _bounded((1,) * (array.ndim + depth - bound))
    return np.expand_dims(array, tuple(range(bound, depth)))


def _lengthened(array: Array, axis: int, length: int) -> Array:
    return np.broadcast_to(array, (*array.shape[:axis], length, *array.shape[axis + 1 :]))


def _split(array: Array, axis: int, chunk: int) -> Array:
    shape = array.shape
    rows = shape[axis] // chunk
    return array.reshape(_bounded((*shape[:axis], rows, chunk, *shape[axis + 1 :])))


def _join(array: Array, axis: int) -> Array:
    shape = array.shape
    length = shape[axis] * shape[axis + 1]
    return array.reshape(_bounded((*shape[:axis], length, *shape[axis + 2 :])))


def _slide(array: Array, axis: int, window: int, stride: int) -> Array:
    if array.ndim >= MAX_AXES:
        _bounded((1,) * (array.ndim + 1))
    windows = sliding_window_view(array, window, axis=axis)
    return np.moveaxis(windows[(slice(None),) * axis + (slice(None, None, stride),)], -1, axis + 1)


def _pad(array: Array, axis: int, amounts: tuple[int, int], fill: float) -> Array:
    left, right = amounts
    length = array.shape[axis]
    padded = length + left + right
    shape = (*array.shape[:axis], padded, *array.shape[axis + 1 :])
    result = np.full(_bounded(shape), fill, array.dtype)
    # Element j of the argument is element j + left of the result, where there is such a one.
    first, end = max(0, -left), min(length, padded - left)
    if first < end:
        before = (slice(None),) * axis
        result[(*before, slice(first + left, end + left))] = array[(*before, slice(first, end))]
    return result


def _taken(array: Array, order: NDArray[np.intp], axis: int) -> Array:
    _bounded(array.shape)
    return array.take(order, axis=axis)


def _order(kind: OrderKind, amount: int, length: int) -> NDArray[np.intp]:
    position = np.arange(length, dtype=np.intp)
    match kind:
        case OrderKind.STRIDE:
            run = length // amount
            return position // run + amount * (position % run)
        case OrderKind.REVERSE:
            return length - 1 - position
