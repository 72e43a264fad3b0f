"""Nodes of the IR: frozen values; a program is a list of kernels over inputs.

Layout changes (``split``, ``join``, ``slide``, ``pad``, ``transpose``, ``reorder``, ``zip``,
``get``, ``as_vector``, ``as_scalar``) are views and copy nothing. User functions, reduce
initialisers and reduce accumulators write. Sources: "Auto-Generation of Specialized Direct
Convolutions for Mobile GPUs" (GPGPU'20), section 3.1, and "Mapping Parallelism in a
Functional IR through Constraint Satisfaction" (CC'22), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache

from mapper.ast_model.index_expr import Expr, const
from mapper.ast_model.types import Memory, Type
from mapper.elements import Element

MapId = int | str
NO = const(0)


@dataclass(frozen=True, slots=True)
class Ref:
    """A lambda parameter, a let-bound name, an input or the result of an earlier kernel."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: a whole number where its type is an integer."""

    value: float
    dtype: Element = Element.FLOAT32


@dataclass(frozen=True, slots=True)
class Fill:
    """An array of one constant; ``shape`` is outermost first. A view: it takes no memory."""

    value: float
    shape: tuple[Expr, ...]
    dtype: Element = Element.FLOAT32


@dataclass(frozen=True, slots=True)
class Call:
    """A user function applied to scalars or vectors of one width: a write where it stands."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """``body`` for every element of ``argument``; ``id`` is unique in the program."""

    id: MapId
    parameter: str
    body: Node
    argument: Node


@dataclass(frozen=True, slots=True)
class Reduce:
    """Sequential fold; the result has length 1.

    ``body`` sees ``accumulator`` and ``parameter`` and must update the accumulator
    element by element. ``unroll`` (0 or 1, may name a tuning parameter) asks the code
    generator to unroll the loop. ``prefetch`` (0, 1 or 2, likewise) asks it to load what an
    iteration copies to local memory during the one before, with 2 into two buffers in turns, so
    that one barrier an iteration is enough.
    """

    accumulator: str
    parameter: str
    body: Node
    initial: Node
    argument: Node
    unroll: Expr
    prefetch: Expr = NO


@dataclass(frozen=True, slots=True)
class Zip:
    """Arrays of one length, as an array of tuples."""

    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Get:
    """Component ``index`` of a tuple."""

    index: int
    argument: Node


@dataclass(frozen=True, slots=True)
class Split:
    """[T]n as [[T]size](n/size); n must divide."""

    size: Expr
    argument: Node


@dataclass(frozen=True, slots=True)
class Join:
    """[[T]m]n as [T](n*m)."""

    argument: Node


@dataclass(frozen=True, slots=True)
class Slide:
    """Windows of ``size`` every ``step``; ``strict`` (for tiling) demands that they fit."""

    size: Expr
    step: Expr
    argument: Node
    strict: bool


@dataclass(frozen=True, slots=True)
class Pad:
    """``left`` and ``right`` elements of a constant on either side; negative amounts crop."""

    left: Expr
    right: Expr
    value: float
    argument: Node


@dataclass(frozen=True, slots=True)
class Transpose:
    """Swap the two outermost dimensions."""

    argument: Node


class OrderKind(StrEnum):
    """A named permutation for ``reorder``."""

    STRIDE = "stride"
    REVERSE = "reverse"


@dataclass(frozen=True, slots=True)
class Reorder:
    """Element i of the result is element f(i) of the argument.

    STRIDE with amount s on length n (s divides n): f(i) = i / (n/s) + s * (i % (n/s)), so
    that n/s neighbours in the result stand s apart in the argument (GPGPU'20, section
    3.1.1, striddenIndex). REVERSE: f(i) = n - 1 - i.
    """

    kind: OrderKind
    amount: Expr
    argument: Node


@dataclass(frozen=True, slots=True)
class AsVector:
    """[float]n as [float<width>](n/width)."""

    width: Expr
    argument: Node


@dataclass(frozen=True, slots=True)
class AsScalar:
    """[float<w>]n as [float](n*w)."""

    argument: Node


@dataclass(frozen=True, slots=True)
class To:
    """The result of ``argument`` is written to ``memory``.

    With ``spread`` n the outermost n dimensions of a private result may be spread over the
    work-items of a work-group: each keeps the elements of its own iterations only, as an
    accumulator tile does that outlives the loops around which the work-group cooperates.
    """

    memory: Memory
    argument: Node
    spread: int = 0


@dataclass(frozen=True, slots=True)
class Let:
    """``body`` with ``name`` bound to ``value``, which is computed once."""

    name: str
    value: Node
    body: Node


Node = (
    Ref
    | Literal
    | Fill
    | Call
    | Map
    | Reduce
    | Zip
    | Get
    | Split
    | Join
    | Slide
    | Pad
    | Transpose
    | Reorder
    | AsVector
    | AsScalar
    | To
    | Let
)


Layout = Split | Join | Slide | Pad | Transpose | Reorder | AsVector | AsScalar
"""A change of data layout: computes nothing."""


class Op(StrEnum):
    """Operators of user functions. FMA(a, b, c) is a*b + c; DOT sums a*b over lanes.

    EXP(a) is e to the a. A comparison gives a condition, which SELECT(c, a, b) alone takes: a
    where c holds, else b. The others work on numbers of one type and give a number of it: integers
    lose what their bits do not hold, division goes towards zero (x / 0 is 0), 16-bit floats are
    rounded after each operator (ties to even); EXP and SQRT are of floats.
    :data:`CONVERSIONS` are to the type in their name: to floats the nearest (ties to even), from
    floats to integers towards zero, what is out of range to the nearest end and NaN to 0, from
    integers to integers the lower bits.
    """

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MAX = "max"
    MIN = "min"
    FMA = "fma"
    DOT = "dot"
    SUM = "sum"
    EXP = "exp"
    SQRT = "sqrt"
    ABS = "abs"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="
    SELECT = "select"
    TO_FLOAT = "float_of"
    TO_HALF = "half_of"
    TO_CHAR = "char_of"
    TO_UCHAR = "uchar_of"
    TO_SHORT = "short_of"
    TO_USHORT = "ushort_of"
    TO_INT = "int_of"
    TO_UINT = "uint_of"


CONVERSIONS = {Op(f"{element.text}_of"): element for element in Element}
"""Operators that change the type of an element, with the type that they give."""

COMPARISONS = (Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE)


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator inside a user function; operands are parameters (names) or constants."""

    op: Op
    operands: tuple[FunctionExpr, ...]


FunctionExpr = str | float | Apply


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A named scalar function; applied to vectors it works lane by lane (DOT and SUM reduce)."""

    name: str
    parameters: tuple[str, ...]
    body: FunctionExpr


BUILTIN_FUNCTIONS: dict[str, UserFunction] = {
    f.name: f
    for f in (
        UserFunction("id", ("x",), "x"),
        UserFunction("add", ("x", "y"), Apply(Op.ADD, ("x", "y"))),
        UserFunction("sub", ("x", "y"), Apply(Op.SUB, ("x", "y"))),
        UserFunction("mul", ("x", "y"), Apply(Op.MUL, ("x", "y"))),
        UserFunction("div", ("x", "y"), Apply(Op.DIV, ("x", "y"))),
        UserFunction("exp", ("x",), Apply(Op.EXP, ("x",))),
        UserFunction("sqrt", ("x",), Apply(Op.SQRT, ("x",))),
        UserFunction("abs", ("x",), Apply(Op.ABS, ("x",))),
        UserFunction("max", ("x", "y"), Apply(Op.MAX, ("x", "y"))),
        UserFunction("min", ("x", "y"), Apply(Op.MIN, ("x", "y"))),
        UserFunction("fma", ("x", "y", "z"), Apply(Op.FMA, ("x", "y", "z"))),
        UserFunction("dot", ("x", "y"), Apply(Op.DOT, ("x", "y"))),
        *(UserFunction(op.value, ("x",), Apply(op, ("x",))) for op in CONVERSIONS),
        UserFunction(
            "dot_add", ("acc", "x", "y"), Apply(Op.ADD, ("acc", Apply(Op.DOT, ("x", "y"))))
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tuning parameter with its allowed values, ascending, each at least 0."""

    name: str
    values: tuple[int, ...]


class Relation(StrEnum):
    """Comparison in a program's own requirements."""

    EQ = "=="
    NE = "!="
    LE = "<="
    LT = "<"
    GE = ">="
    GT = ">"
    DIVIDES = "|"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on sizes and tuning parameters that the program states itself."""

    left: Expr
    relation: Relation
    right: Expr

    def __str__(self) -> str:
        return f"{self.left} {self.relation.value} {self.right}"


@dataclass(frozen=True, slots=True)
class Input:
    """A global buffer that the caller provides."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Kernel:
    """One OpenCL kernel; its body's value is written to a global buffer of its name."""

    name: str
    body: Node


@dataclass(frozen=True, slots=True)
class Program:
    """Kernels run in order; the last one's value is the result.

    ``sizes`` are named constants of the layer, which stay symbolic in types and trip
    counts until a program is specialised. ``constants`` are inputs that stay the same from
    run to run, such as weights: kernels that read nothing else run once.
    """

    name: str
    sizes: tuple[tuple[str, int], ...]
    parameters: tuple[Parameter, ...]
    requirements: tuple[Requirement, ...]
    functions: tuple[UserFunction, ...]
    inputs: tuple[Input, ...]
    kernels: tuple[Kernel, ...]
    constants: tuple[str, ...] = ()

    def function(self, name: str) -> UserFunction | None:
        """The user function of this name, the program's own before the built-in ones."""
        for function in self.functions:
            if function.name == name:
                return function
        return BUILTIN_FUNCTIONS.get(name)


def children(node: Node) -> Iterator[tuple[str, Node]]:
    """Direct sub-nodes with their field names, in field order (``arguments/0`` for tuples)."""
    for name, is_tuple in _node_fields(type(node)):
        value = getattr(node, name)
        if is_tuple:
            for index, item in enumerate(value):
                yield f"{name}/{index}", item
        else:
            yield name, value


@cache
def _node_fields(kind: type[Node]) -> tuple[tuple[str, bool], ...]:
    """The fields that hold nodes, and whether it is several."""
    several = "tuple[Node, ...]"
    return tuple((f.name, f.type == several) for f in fields(kind) if f.type in ("Node", several))


NODE_TYPES = (
    Ref,
    Literal,
    Fill,
    Call,
    Map,
    Reduce,
    Zip,
    Get,
    Split,
    Join,
    Slide,
    Pad,
    Transpose,
    Reorder,
    AsVector,
    AsScalar,
    To,
    Let,
)
