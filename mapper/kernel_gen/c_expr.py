"""OpenCL C text of index expressions, guards and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from zlib import crc32

from mapper.ast_model.digits import combine_digits
from mapper.ast_model.index_expr import (
    Atom,
    Expr,
    Quotient,
    Remainder,
    Symbol,
    const,
    in_range,
    is_nonnegative,
    symbol,
    upper_bound,
)
from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Guard,
    Guarded,
    LaneSum,
    Load,
    Operate,
    Role,
    Value,
    substitute_value,
)
from mapper.ast_model.nodes import Op
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE, mentions_lane
from mapper.kernel_gen.scheduled import flat_index

# Only widths whose memory layout is dense: a float3 takes the space of a float4.
VECTOR_WIDTHS = (2, 4, 8, 16)
_LANE_NAMES = "0123456789abcdef"


@lru_cache(maxsize=4096)
def c_name(name: str) -> str:
    """The letters, digits and underscores of a name; different names stay different.

    The result is put behind a prefix that says what is named (``i_`` a loop variable, ``g_`` a
    global buffer, …), so that it meets no keyword or built-in function of OpenCL C.
    """
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if text != name or not text:
        return f"n_{text}_{crc32(name.encode()):08x}_"
    # What ends in an underscore gets one more, so that no name meets a changed one.
    return text + "_" if text.startswith("n_") or text.endswith("_") else text


def kernel_name(name: str) -> str:
    """The identifier of a kernel."""
    return f"k_{c_name(name)}"


def global_name(name: str) -> str:
    """The identifier of a global buffer."""
    return f"g_{c_name(name)}"


_SPACES = {Memory.GLOBAL: "__global", Memory.LOCAL: "__local"}
_PREFIXES = {Memory.GLOBAL: "g_", Memory.LOCAL: "l_", Memory.PRIVATE: "p_"}


def buffer_name(buffer: Buffer) -> str:
    """The identifier of a buffer."""
    return _PREFIXES[buffer.memory] + c_name(buffer.name)


def comment_text(text: str) -> str:
    """Text that stays inside a C comment, whatever names it is made of."""
    printable = "".join(c if c.isprintable() and c != "\\" else "?" for c in text)
    return printable.replace("*/", "* /").replace("/*", "/ *")


def lane_name(lane: int) -> str:
    """The component selector of a lane: s0 to sf."""
    return f"s{_LANE_NAMES[lane]}"


def c_index(expression: Expr) -> str:
    """An int expression; every division in it has a non-negative dividend."""
    if not expression.terms:
        return "0"
    text = ""
    for monomial, coefficient in expression.terms:
        sign = "-" if coefficient < 0 else "+"
        factors = [_c_atom(atom) for atom in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.append(str(abs(coefficient)))
        body = "*".join(factors)
        if not text:
            text = body if sign == "+" else f"-{body}"
        else:
            text += f" {sign} {body}"
    return text


def _c_atom(atom: Atom) -> str:
    match atom:
        case Symbol():
            return c_name(atom.name) if atom.name != LANE else LANE
        case Quotient():
            return f"({_c_operand(atom.numerator)}/{_c_operand(atom.denominator)})"
        case Remainder():
            return f"({_c_operand(atom.numerator)}%{_c_operand(atom.denominator)})"


def _c_operand(expression: Expr) -> str:
    text = c_index(expression)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def c_condition(guard: Guard) -> str | None:
    """The condition of a guard, without what always holds; None if nothing is left."""
    index, limit = guard.index, guard.limit
    if in_range(index, limit):
        return None
    parts: list[str] = []
    if not is_nonnegative(index):
        parts.append(f"{c_index(index)} >= 0")
    high = upper_bound(index)
    if high is None or not is_nonnegative(limit - 1 - high):
        parts.append(f"{c_index(index)} < {c_index(limit)}")
    return " && ".join(parts) or None


def c_all(conditions: list[str]) -> str:
    """All of these conditions, without the branches that ``&&`` asks for."""
    parts = [part for condition in conditions for part in condition.split(" && ")]
    return parts[0] if len(parts) == 1 else " & ".join(f"({part})" for part in parts)


def never_holds(guard: Guard) -> bool:
    """True for numbers that contradict it, as unrolling leaves them.

    What it guards must not be printed then: an element outside an array that has become
    registers has no name.
    """
    index, limit = guard.index.constant, guard.limit.constant
    return index is not None and limit is not None and not 0 <= index < limit


def c_float(value: float) -> str:
    """A float literal that reads back as the same float."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(float(value))
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if value >= 0 and not text.startswith("-") else f"({text}f)"


@dataclass
class ValuePrinter:
    """Prints values; ``registers`` are private buffers that have become variables.

    Those among them whose variables are whole vectors are in ``vectors``, with the width.
    Temporaries that a value needs are handed to ``emit`` as statements before it.
    """

    registers: frozenset[str]
    vectors: Mapping[str, int]
    emit: Callable[[str], None]
    counter: int = field(default=0)
    # Loop variables of fused runs, as digits of the run's own counter.
    digits: dict[str, Expr] = field(default_factory=dict[str, Expr])
    # Buffers that are read or written as aligned vectors, with the widest of these.
    aligned: dict[str, int] = field(default_factory=dict[str, int])
    # Unrolled statements read the same elements again and again.
    _elements: dict[tuple[str, tuple[Expr, ...]], str] = field(
        default_factory=dict[tuple[str, tuple[Expr, ...]], str]
    )

    def scalar(self, value: Value) -> str:
        """A float expression; the value mentions no lane."""
        match value:
            case Constant():
                return c_float(value.value)
            case Load():
                return self.element(value.buffer, value.indices)
            case Guarded():
                if never_holds(value.guard):
                    return c_float(value.otherwise)
                border = self.border(value)
                if border is not None:
                    return border
                condition = c_condition(value.guard)
                inner = self.scalar(value.value)
                if condition is None:
                    return inner
                return f"({condition} ? {inner} : {c_float(value.otherwise)})"
            case Operate():
                return _operation(value.op, [self.scalar(o) for o in value.operands])
            case LaneSum():
                return self.lane_sum(value)

    def border(self, value: Guarded) -> str | None:
        """A guarded element of shared memory, loaded without a branch.

        Outside the guards element 0 is loaded and dropped, so that loads can be issued one
        after the other. None if something else is guarded, or if the guards always hold.
        """
        conditions: list[str] = []
        guarded: set[str] = set()
        inner: Value = value
        while isinstance(inner, Guarded) and inner.otherwise == value.otherwise:
            if never_holds(inner.guard):
                return c_float(value.otherwise)
            condition = c_condition(inner.guard)
            if condition is not None:
                conditions.append(condition)
                guarded |= inner.guard.index.names()
            inner = inner.value
        if not isinstance(inner, Load) or inner.buffer.memory is Memory.PRIVATE or not conditions:
            return None
        self.counter += 1
        inside, loaded = f"inside_{self.counter}", f"loaded_{self.counter}"
        bound, free = self._split_position(inner, guarded)
        self.emit(f"const int {inside} = {c_all(conditions)};")
        place = f"({inside} ? {c_index(bound)} : 0)"
        if free.terms:
            place += f" + {c_index(free)}"
        self.emit(f"const float {loaded} = {buffer_name(inner.buffer)}[{place}];")
        return f"({inside} ? {loaded} : {c_float(value.otherwise)})"

    def _split_position(self, load: Load, guarded: set[str]) -> tuple[Expr, Expr]:
        """A position as what the guards speak of, and what lies in the buffer in any case.

        The second part comes from dimensions that no guard mentions: loops over them move a
        pointer and nothing else.
        """
        zeros: list[Expr] = [const(0)] * len(load.indices)
        tied, free = list(zeros), list(zeros)
        for dimension, index in enumerate(load.indices):
            (tied if index.names() & guarded else free)[dimension] = index
        buffer = load.buffer
        return self.position(buffer, tuple(tied)), self.position(buffer, tuple(free))

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """One element as an lvalue or rvalue."""
        known = self._elements.get((buffer.name, indices))
        if known is None:
            known = self._elements[buffer.name, indices] = self._element(buffer, indices)
        return known

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        name = buffer_name(buffer)
        if buffer.name in self.registers:
            return self.register(buffer, indices)
        if not buffer.dimensions and buffer.memory is Memory.PRIVATE:
            return name
        return f"{name}[{c_index(self.position(buffer, indices))}]"

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Where an element stands in its buffer.

        In the counter of a fused run where its digits come together again, as they do where
        neighbouring iterations touch neighbouring elements.
        """
        flat = combine_digits(flat_index(buffer, indices))
        if not flat.names() & self.digits.keys():
            return flat
        whole = combine_digits(flat.substitute(self.digits))
        divided = any(
            isinstance(atom, Quotient | Remainder)
            for monomial, _ in whole.terms
            for atom in monomial
        )
        return flat if divided else whole

    def vector_place(self, buffer: Buffer, indices: tuple[Expr, ...], width: int) -> str | None:
        """A whole vector in shared memory as an lvalue; None if it may be unaligned or torn."""
        if buffer.memory is Memory.PRIVATE:
            return None
        base = self.lane_base(buffer, indices, width)
        if base is None or any(coefficient % width for _, coefficient in base.terms):
            return None
        self.aligned[buffer.name] = max(width, self.aligned.get(buffer.name, 1))
        vectors = Expr.from_terms({m: coefficient // width for m, coefficient in base.terms})
        qualifiers = _SPACES[buffer.memory]
        if buffer.role is Role.INPUT:
            qualifiers += " const"
        return f"(({qualifiers} float{width} *){buffer_name(buffer)})[{c_index(vectors)}]"

    def lane_base(self, buffer: Buffer, indices: tuple[Expr, ...], width: int) -> Expr | None:
        """The position of lane 0 if the lanes are neighbours in memory, else None."""
        flat = self.position(buffer, indices)
        ((atom,), _) = symbol(LANE, width).terms[0]
        assert isinstance(atom, Symbol)
        parts = flat.coefficient(atom)
        if parts is None or parts[0] != 1:
            return None
        return parts[1]

    def register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """The variable that holds one element (or vector) of an array in registers."""
        lane = indices[-1].constant if buffer.name in self.vectors else None
        if lane is not None:
            # One lane of a vector: a guard or a gather takes it apart.
            return f"{self.register(buffer, (*indices[:-1], symbol(LANE)))}.{lane_name(lane)}"
        parts = [buffer_name(buffer), *(str(i) for i in indices if str(i) != LANE)]
        return "_".join(parts)

    def vector(self, value: Value, width: int) -> str:
        """A float<width> expression; what mentions no lane is repeated in all lanes."""
        if not mentions_lane(value):
            return f"(float{width})({self.scalar(value)})"
        match value:
            case Load():
                return self.vector_load(value, width)
            case Guarded():
                if LANE in value.guard.index.names():
                    return self.gather(value, width)
                if never_holds(value.guard):
                    return f"(float{width})({c_float(value.otherwise)})"
                condition = c_condition(value.guard)
                inner = self.vector(value.value, width)
                if condition is None:
                    return inner
                return f"({condition} ? {inner} : (float{width})({c_float(value.otherwise)}))"
            case Operate():
                return _operation(value.op, [self.vector(o, width) for o in value.operands])
            case Constant() | LaneSum():
                return f"(float{width})({self.scalar(value)})"

    def gather(self, value: Value, width: int) -> str:
        """A vector put together lane by lane."""
        lanes = [self.scalar(substitute_value(value, {LANE: const(lane)})) for lane in range(width)]
        return f"(float{width})({', '.join(lanes)})"

    def vector_load(self, load: Load, width: int) -> str:
        """vload where the lanes are neighbours, else a gather."""
        if load.buffer.name in self.vectors and str(load.indices[-1]) == LANE:
            return self.register(load.buffer, load.indices)
        if load.buffer.name in self.registers:
            return self.gather(load, width)
        place = self.vector_place(load.buffer, load.indices, width)
        if place is not None:
            return place
        base = self.lane_base(load.buffer, load.indices, width)
        if base is None:
            return self.gather(load, width)
        name = buffer_name(load.buffer)
        return f"vload{width}(0, {name} + {_c_operand(base)})"

    def lane_sum(self, value: LaneSum) -> str:
        """Sum over the lanes of a vector, with dot() where OpenCL has it."""
        assert value.lane.extent is not None
        width = value.lane.extent.constant
        assert width is not None
        product = value.value
        if width == 1:
            return self.scalar(substitute_value(product, {LANE: const(0)}))
        if width not in VECTOR_WIDTHS or not mentions_lane(product):
            lanes = [self.scalar(substitute_value(product, {LANE: const(k)})) for k in range(width)]
            return "(" + " + ".join(lanes) + ")"
        if (
            isinstance(product, Operate)
            and product.op is Op.MUL
            and len(product.operands) == 2
            and width in (2, 4)
        ):
            left, right = (self.vector(o, width) for o in product.operands)
            return f"dot({left}, {right})"
        self.counter += 1
        name = f"lanes_{self.counter}"
        self.emit(f"const float{width} {name} = {self.vector(product, width)};")
        while width > 4:
            width //= 2
            self.counter += 1
            half = f"lanes_{self.counter}"
            self.emit(f"const float{width} {half} = {name}.lo + {name}.hi;")
            name = half
        return "(" + " + ".join(f"{name}.{lane_name(k)}" for k in range(width)) + ")"


def _operation(op: Op, operands: list[str]) -> str:
    match op:
        case Op.ADD | Op.SUB | Op.MUL | Op.DIV:
            return "(" + f" {op.value} ".join(operands) + ")"
        case Op.MAX:
            return f"fmax({', '.join(operands)})"
        case Op.MIN:
            return f"fmin({', '.join(operands)})"
        case Op.FMA:
            return f"fma({', '.join(operands)})"
        case Op.EXP:
            return f"exp({operands[0]})"
        case Op.DOT | Op.SUM:
            raise AssertionError("sums over lanes are LaneSum values")
