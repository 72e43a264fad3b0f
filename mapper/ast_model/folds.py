"""What a reduction does to its accumulator, where that may be done in any order.

``acc + a * b``, ``fma(a, b, acc)`` and ``dot_add(acc, a, b)`` add products: such a reduction is a
contraction of arrays. ``max(acc, a)`` and ``min(acc, a)`` are kept too.
"""

from __future__ import annotations

from dataclasses import dataclass

from mapper.ast_model.nodes import (
    Apply,
    Call,
    FunctionExpr,
    Literal,
    Node,
    Op,
    Program,
    Reduce,
    Ref,
    To,
    children,
)

#: Operators that a tree may have: functions that use a parameter twice copy its tree.
_MAX_BRANCHES = 64


@dataclass(frozen=True, slots=True)
class Branch:
    """An operator on trees; a tree's leaves are nodes that are no calls, and numbers."""

    op: Op
    operands: tuple[Tree, ...]


Tree = Node | float | Branch


@dataclass(frozen=True, slots=True)
class Product:
    """``sign`` times the factors; with ``lanes`` summed over the lanes of vectors among them."""

    sign: int
    factors: tuple[Tree, ...]
    lanes: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Each step takes the accumulator and the products with ``op``: ADD, MAX or MIN."""

    op: Op
    products: tuple[Product, ...]


class _Unordered(Exception):
    """The body does more to the accumulator than a fold does."""


def fold_of(program: Program, reduce: Reduce) -> Fold | None:
    """The fold that a reduction of scalars or vectors is; None if it is another kind."""
    accumulator = Ref(reduce.accumulator)
    try:
        tree = _inlined(reduce.body, program, [_MAX_BRANCHES])
        if isinstance(tree, Branch) and tree.op in (Op.MAX, Op.MIN):
            rest = [o for o in tree.operands if o != accumulator]
            if len(rest) == 1 and not _mentions(rest[0], reduce.accumulator):
                return Fold(tree.op, (Product(1, (rest[0],)),))
            return None
        products = _added(tree, 1, reduce.accumulator)
    except _Unordered:
        return None
    return Fold(Op.ADD, products) if products else None


def names_in(node: Node) -> set[str]:
    """Every name that a node refers to, also those that it binds itself."""
    found: set[str] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Ref):
            found.add(node.name)
        stack += [child for _, child in children(node)]
    return found


def _inlined(node: Node, program: Program, left: list[int]) -> Tree:
    match node:
        case To(_, argument, _):
            return _inlined(argument, program, left)
        case Literal(value):
            return value
        case Call(name, arguments):
            function = program.function(name)
            assert function is not None  # the type checker knows it
            trees = [_inlined(argument, program, left) for argument in arguments]
            return _built(function.body, dict(zip(function.parameters, trees, strict=True)), left)
        case _:
            return node


def _built(body: FunctionExpr, bound: dict[str, Tree], left: list[int]) -> Tree:
    match body:
        case str():
            return bound[body]
        case float() | int():
            return float(body)
        case Apply(op, operands):
            left[0] -= 1
            if left[0] < 0:
                raise _Unordered
            return Branch(op, tuple(_built(operand, bound, left) for operand in operands))


def _mentions(tree: Tree, name: str) -> bool:
    match tree:
        case float() | int():
            return False
        case Branch(_, operands):
            return any(_mentions(operand, name) for operand in operands)
        case _:
            return name in names_in(tree)


def _added(tree: Tree, sign: int, accumulator: str) -> tuple[Product, ...]:
    """What is added to the accumulator, which the tree holds once, as a plain addend."""
    match tree:
        case Ref(name) if name == accumulator:
            return ()
        case Branch(Op.ADD, (left, right)):
            if _mentions(right, accumulator):
                left, right = right, left
            return (*_added(left, sign, accumulator), _product(right, sign, accumulator))
        case Branch(Op.SUB, (left, right)):
            return (*_added(left, sign, accumulator), _product(right, -sign, accumulator))
        case Branch(Op.FMA, (left, right, rest)):
            product = _product(Branch(Op.MUL, (left, right)), sign, accumulator)
            return (*_added(rest, sign, accumulator), product)
        case _:
            raise _Unordered


def _product(tree: Tree, sign: int, accumulator: str) -> Product:
    if _mentions(tree, accumulator):
        raise _Unordered
    if isinstance(tree, Branch) and tree.op in (Op.DOT, Op.SUM):
        factors = [factor for operand in tree.operands for factor in _factors(operand)]
        return Product(sign, tuple(factors), lanes=True)
    return Product(sign, tuple(_factors(tree)))


def _factors(tree: Tree) -> list[Tree]:
    if isinstance(tree, Branch) and tree.op is Op.MUL:
        return [factor for operand in tree.operands for factor in _factors(operand)]
    return [tree]
