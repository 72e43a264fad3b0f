"""The meaning of programs once more, fast enough for large ones: whole arrays, BLAS for products.

Results equal the interpreter's (:mod:`mapper.ast_model.interpreter`) in 64-bit floats but for the
order in which sums of 32-bit floats are added. Values are batched as there, on arrays that no
change of layout copies (:mod:`mapper.ast_model.grids`). A reduction that adds products is a
contraction, but for those of 16-bit floats, where each step rounds; others run step by step, on as
much of a mapped dimension at a time as stays in a processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mapper.ast_model.contraction import contract, exact, independent
from mapper.ast_model.folds import Branch, Fold, Product, Tree, fold_of, names_in
from mapper.ast_model.grids import Array, Grid, aligned, bounded
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
from mapper.ast_model.operators import added_lanes, constant, held_as, operated
from mapper.errors import LimitError, Problem

Value = Grid | tuple["Value", ...]
#: A value, and the number of batch dimensions that it was bound under.
Environment = Mapping[str, tuple[Value, int]]

#: Operators on elements that a program may take, about a second of one core, and multiplications
#: of matrices (4300 cubed), about a second and a half of two.
MAX_OPERATIONS = 2**30
MAX_MULTIPLICATIONS = 5 * 2**34
#: What an operator on a 16-bit float costs, which NumPy converts to and fro.
_HALF_COST = 4
#: What an operator on whole arrays costs besides, in operations.
_OVERHEAD = 10_000
#: Elements of a step's result that are computed at a time.
_CHUNK = 2**17
#: Factors of products are computed first if they have no more elements than this.
_SMALL = 2**22
#: Terms up to which a sum may be added step by step.
_STEPS = 64
#: What 32-bit floats are computed in.
_FLOATS = np.dtype(np.float64)


class Evaluator:
    """Evaluates nodes of one program; LimitError where it would take too long or too much memory.

    ``numbers`` are the sizes and the values of the tuning parameters.
    """

    def __init__(self, program: Program, numbers: Mapping[str, int]) -> None:
        self._program = program
        self._numbers = numbers
        self._operations = 0
        self._multiplications: int = 0
        self._folds: dict[int, Fold | None] = {}

    def kernel(self, body: Node, arrays: Mapping[str, Array]) -> Array:
        """A kernel's result from arrays by name, lanes last; 32-bit floats in 64 bits."""
        env: dict[str, tuple[Value, int]] = {n: (Grid.of(a), 0) for n, a in arrays.items()}
        with np.errstate(all="ignore"):  # overflow is for the comparison to judge
            result = _grid(self.evaluate(body, env, 0))
            bounded(result.shape)
            whole = result.whole()
        return np.ascontiguousarray(whole, dtype=_held(whole.dtype))

    def evaluate(self, node: Node, env: Environment, depth: int) -> Value:
        """The value of a node under ``depth`` batch dimensions."""
        match node:
            case Ref(name):
                value, bound = env[name]
                return _each(value, lambda g: g.under(bound, depth))
            case Literal(value, dtype):
                return Grid.of(constant(value, held_as(dtype, _FLOATS)).reshape((1,) * depth))
            case Fill(value, shape, dtype):
                lengths = tuple(self._number(length) for length in shape)
                single = constant(value, held_as(dtype, _FLOATS))
                return Grid.of(np.broadcast_to(single, (1,) * depth + lengths))
            case Call(name, arguments):
                function = self._program.function(name)
                assert function is not None  # the type checker knows it
                operands = [_grid(self.evaluate(a, env, depth)) for a in arguments]
                bound = dict(zip(function.parameters, operands, strict=True))
                return _as_grid(self._applied(function.body, bound, depth), depth, _FLOATS)
            case Map(_, parameter, body, argument):
                source = self.evaluate(argument, env, depth)
                length = _first(source).length(depth)
                result = self.evaluate(body, {**env, parameter: (source, depth + 1)}, depth + 1)
                return _each(result, lambda g: g.lengthened(depth, length))
            case Reduce():
                return self._reduced(node, env, depth)
            case Zip(arguments):
                return tuple(self.evaluate(argument, env, depth) for argument in arguments)
            case Get(index, argument):
                pair = self.evaluate(argument, env, depth)
                assert isinstance(pair, tuple)
                return pair[index]
            case To(_, argument, _):
                return self.evaluate(argument, env, depth)
            case Let(name, value, body):
                bound_value = self.evaluate(value, env, depth)
                return self.evaluate(body, {**env, name: (bound_value, depth)}, depth)
            case _:
                change = self._layout(node, depth)
                return _each(self.evaluate(node.argument, env, depth), change)

    def _layout(
        self,
        node: Split | Join | Slide | Pad | Transpose | Reorder | AsVector | AsScalar,
        depth: int,
    ) -> Callable[[Grid], Grid]:
        match node:
            case Split(size, _) | AsVector(size, _):
                chunk = self._number(size)
                return lambda g: g.split(depth, chunk)
            case Join() | AsScalar():
                return lambda g: g.joined(depth)
            case Slide(size, step, _, _):
                window, stride = self._number(size), self._number(step)
                return lambda g: g.slid(depth, window, stride)
            case Pad(left, right, fill, _):
                before, after = self._number(left), self._number(right)
                return lambda g: g.padded(depth, before, after, fill)
            case Transpose():
                return lambda g: g.transposed(depth)
            case Reorder(kind, amount, _):
                count = self._number(amount)
                return lambda g: g.reordered(depth, kind, count)

    def _number(self, expression: Expr) -> int:
        return expression.evaluate(self._numbers)

    def _spend(self, operations: int, multiplications: int = 0) -> None:
        operations += self._operations + _OVERHEAD
        multiplications = multiplications + self._multiplications
        if operations > MAX_OPERATIONS or multiplications > MAX_MULTIPLICATIONS:
            raise LimitError(
                Problem("", "the program takes too many operations",
                        f"{operations} and {multiplications} multiplications of matrices",
                        f"{MAX_OPERATIONS} and {MAX_MULTIPLICATIONS}")
            )  # fmt: skip
        self._operations, self._multiplications = operations, multiplications

    def _refuse_over(self, operations: int) -> None:
        """What is sure to take too long is not begun."""
        before = self._operations
        self._spend(operations)
        self._operations = before

    # Functions

    def _applied(self, body: FunctionExpr, bound: Mapping[str, Grid], depth: int) -> Grid | float:
        match body:
            case str():
                return bound[body]
            case float() | int():
                return float(body)
            case Apply(op, inner):
                return self._operated(op, [self._applied(o, bound, depth) for o in inner], depth)

    def _operated(self, op: Op, operands: Sequence[Grid | float], depth: int) -> Grid:
        """An operator on scalars (``depth`` dimensions) and vectors (one more)."""
        grids = [o for o in operands if isinstance(o, Grid)]
        grids = aligned(_with_lanes(grids or [Grid.of(np.zeros((1,) * depth))], depth))
        full = np.broadcast_shapes(*(g.array.shape for g in grids))
        arrays = [independent(g.array) for g in grids]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        halves = any(array.dtype == np.float16 for array in arrays)
        self._spend(math.prod(bounded(shape)) * (_HALF_COST if halves else 1))
        left = iter(arrays)
        result = operate(op, [next(left) if isinstance(o, Grid) else o for o in operands])
        digits = grids[0].digits
        if op in (Op.DOT, Op.SUM) and len(digits) > depth:
            lanes = tuple(range(sum(digits[:depth]), len(full)))
            if halves:
                every = np.broadcast_to(result, full)
                summed = added_lanes(every.reshape(*full[: lanes[0]], -1))
            else:
                repeated = math.prod(full[a] for a in lanes) // math.prod(shape[a] for a in lanes)
                summed = (result.sum(axis=lanes) * repeated).astype(result.dtype)
            full, digits, result = full[: lanes[0]], digits[:depth], summed
        return Grid(np.broadcast_to(result, full), digits)

    def _tree(self, tree: Tree, env: Environment, depth: int) -> Grid | float | None:
        """A factor's value; None if it would have many more elements than what it is made of."""
        match tree:
            case float() | int():
                return float(tree)
            case Branch(op, inner):
                found: list[Grid | float] = []
                for part in inner:
                    value = self._tree(part, env, depth)
                    if value is None:
                        return None
                    found.append(value)
                grids = [value for value in found if isinstance(value, Grid)]
                if not grids:
                    return self._operated(op, found, depth)
                arrays = [independent(g.array) for g in aligned(_with_lanes(grids, depth))]
                size = math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
                if size > max(_SMALL, *(array.size for array in arrays)):
                    return None
                return self._operated(op, found, depth)
            case _:
                return _grid(self.evaluate(tree, env, depth))

    # Reductions

    def _reduced(self, node: Reduce, env: Environment, depth: int) -> Value:
        source = self.evaluate(node.argument, env, depth)
        initial = self.evaluate(node.initial, env, depth)
        if id(node) not in self._folds:
            self._folds[id(node)] = fold_of(self._program, node)
        fold = self._folds[id(node)]
        if fold is not None and isinstance(initial, Grid) and len(initial.digits) <= depth + 1:
            total = self._folded(node, fold, source, initial, env, depth)
            if total is not None:
                return _inserted(total, depth)
        return _each(self._stepped(node, source, initial, env, depth),
                     lambda g: _inserted(g, depth))  # fmt: skip

    def _folded(
        self, node: Reduce, fold: Fold, source: Value, initial: Grid, env: Environment, depth: int
    ) -> Grid | None:
        """All steps at once; None where steps one by one are better.

        So they are where each is rounded to 16 bits.
        """
        dtype = _held(initial.array.dtype)
        if fold.op is Op.ADD and dtype == np.float16:
            return None
        inner = {**env, node.parameter: (source, depth + 1)}
        steps = _first(source).length(depth)
        total = initial
        planned: list[tuple[Product, list[Grid]]] = []
        for product in fold.products:
            grids: list[Grid] = []
            for factor in product.factors:
                value = self._tree(factor, inner, depth + 1)
                if value is None:
                    return None
                # What does not look at its element is the same in all steps.
                grids.append(_as_grid(value, depth + 1, dtype).lengthened(depth, steps))
            planned.append((product, grids))
        parts: list[Grid] = []
        for product, grids in planned:
            part = self._summed(fold.op, product, grids, depth)
            if part is None:
                return None
            parts.append(part)
        for part in parts:
            total = self._operated(fold.op, [total, part], depth)
        return total

    def _summed(self, op: Op, product: Product, grids: list[Grid], depth: int) -> Grid | None:
        """A product over all steps: its sum, or its largest or smallest element."""
        grids = aligned(_with_lanes(grids, depth + 1))
        digits = grids[0].digits
        first = sum(digits[:depth])
        axes = list(range(first, first + digits[depth]))
        if product.lanes:
            axes += range(sum(digits[: depth + 1]), sum(digits))
        arrays = [grid.array for grid in grids]
        integers = arrays[0].dtype.kind in "iu"
        full = np.broadcast_shapes(*(array.shape for array in arrays))
        kept = [1 if a in axes else n for a, n in enumerate(full)]
        steps = math.prod(full[a] for a in axes)
        if len(arrays) > 1:
            # The smaller ones are multiplied first.
            arrays = [independent(array) for array in arrays]
            arrays.sort(key=lambda array: array.size)
            while len(arrays) > 2:
                self._spend(math.prod(np.broadcast_shapes(arrays[0].shape, arrays[1].shape)))
                pair = operate(Op.MUL, arrays[:2])
                if pair.size > max(_SMALL, arrays[-1].size):
                    return None
                arrays = sorted([pair, *arrays[2:]], key=lambda array: array.size)
        result: Array
        if len(arrays) == 1:
            array = independent(arrays[0])
            if 1 < steps <= _STEPS and array.size > _SMALL:
                return None
            self._spend(array.size)
            own = tuple(axes)
            match op:
                case Op.MAX:
                    result = array.max(axis=own, keepdims=True)
                case Op.MIN:
                    result = array.min(axis=own, keepdims=True)
                case _:
                    wide = np.int64 if integers else np.float64
                    result = array.sum(axis=own, keepdims=True, dtype=wide)
                    result = result * (steps // math.prod(array.shape[a] for a in axes))
        else:
            shape = np.broadcast_shapes(*(array.shape for array in arrays))
            seen = math.prod(shape[a] for a in axes)
            copied, together = sum(array.size for array in arrays), math.prod(shape)
            if seen <= _STEPS and copied > _SMALL and together <= 4 * copied:
                return None
            if integers and not exact(arrays, seen):
                return None
            self._spend(copied + together // seen, together)
            result = contract(arrays[0], arrays[1], frozenset(axes))
            result = (result.astype(np.int64) if integers else result) * (steps // seen)
        if integers:
            result = result.astype(grids[0].array.dtype)  # the lower bits
        if product.sign < 0:
            result = -result
        grid = Grid(np.broadcast_to(result, kept), digits)
        if product.lanes and len(digits) > depth + 1:
            grid = grid.element(depth + 1, 0)
        return grid.element(depth, 0)

    def _stepped(
        self, node: Reduce, source: Value, initial: Value, env: Environment, depth: int
    ) -> Value:
        """Step by step, in order, for a part of the longest batch dimension at a time."""
        names = names_in(node.body)
        used = {name: value for name, value in env.items() if name in names}
        leaves = [*_leaves(source), *_leaves(initial)]
        leaves += [g for value, bound in used.values() if bound for g in _leaves(value)]
        bounds = [depth] * (len(_leaves(source)) + len(_leaves(initial)))
        bounds += [b for value, b in used.values() if b for _ in _leaves(value)]
        lengths = [
            max((g.length(d) for g, b in zip(leaves, bounds, strict=True) if d < b), default=1)
            for d in range(depth)
        ]
        outputs = math.prod(lengths)
        steps = _first(source).length(depth)
        self._refuse_over(outputs * steps)
        if outputs <= 2 * _CHUNK:
            return self._steps(node, source, initial, used, depth)
        dimension = lengths.index(max(lengths))
        chunk = max(1, lengths[dimension] * _CHUNK // outputs)
        # Parts of a dimension in several axes are whole outer elements.
        for grid, bound in zip(leaves, bounds, strict=True):
            own = grid.lengths(dimension) if dimension < bound else (1,)
            inner = math.prod(own[1:])
            chunk = -(-chunk // inner) * inner if math.prod(own) > 1 else chunk
        results: list[Value] = []
        for start in range(0, lengths[dimension], chunk):

            def part(grid: Grid, start: int = start) -> Grid:
                return grid.part(dimension, start, min(start + chunk, lengths[dimension]))

            inner_env = {
                name: (_each(value, part) if dimension < bound else value, bound)
                for name, (value, bound) in used.items()
            }
            total = self._steps(node, _each(source, part), _each(initial, part), inner_env, depth)
            length = min(chunk, lengths[dimension] - start)
            results.append(_each(total, lambda g, length=length: g.lengthened(dimension, length)))
        return _concatenated(results, dimension)

    def _steps(
        self, node: Reduce, source: Value, total: Value, env: Environment, depth: int
    ) -> Value:
        for step in range(_first(source).length(depth)):
            element = _each(source, lambda g, step=step: g.element(depth, step))
            inner = {**env, node.accumulator: (total, depth), node.parameter: (element, depth)}
            total = self.evaluate(node.body, inner, depth)
        return total


def operate(op: Op, operands: Sequence[Array | float]) -> Array:
    """An operator on arrays that broadcast, 32-bit floats in 64 bits; DOT and SUM leave lanes
    apart."""
    values = [a.astype(_held(a.dtype), copy=False) if isinstance(a, np.ndarray) else a
              for a in operands]  # fmt: skip
    if op is Op.SUM:
        return np.asarray(values[0])
    return operated(Op.MUL if op is Op.DOT else op, values, _FLOATS)


def _held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that elements are computed in: their own, but 64 bits for 32-bit floats."""
    return _FLOATS if dtype == np.float32 else dtype


def _as_grid(value: Grid | float, depth: int, dtype: np.dtype[Any]) -> Grid:
    if isinstance(value, Grid):
        return value
    return Grid.of(constant(value, dtype).reshape((1,) * depth))


def _with_lanes(grids: list[Grid], depth: int) -> list[Grid]:
    """Scalars go to every lane, if there are vectors among them."""
    if all(len(grid.digits) == depth for grid in grids):
        return grids
    return [g if len(g.digits) > depth else g.under(depth, depth + 1) for g in grids]


def _inserted(grid: Grid, depth: int) -> Grid:
    return grid.under(depth, depth + 1)


def _grid(value: Value) -> Grid:
    assert isinstance(value, Grid)  # the type checker has no tuples here
    return value


def _each(value: Value, function: Callable[[Grid], Grid]) -> Value:
    if isinstance(value, tuple):
        return tuple(_each(item, function) for item in value)
    return function(value)


def _first(value: Value) -> Grid:
    while isinstance(value, tuple):
        value = value[0]
    return value


def _leaves(value: Value) -> list[Grid]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _concatenated(values: list[Value], dimension: int) -> Value:
    if len(values) == 1:
        return values[0]
    if isinstance(values[0], tuple):
        parts = [value for value in values if isinstance(value, tuple)]
        return tuple(
            _concatenated([part[index] for part in parts], dimension)
            for index in range(len(values[0]))
        )
    wholes = [_grid(value).whole() for value in values]
    shape = list(wholes[0].shape)
    shape[dimension] = sum(whole.shape[dimension] for whole in wholes)
    bounded(shape)
    return Grid.of(np.concatenate(wholes, axis=dimension))
