"""OpenCL C text of values: loads, arithmetic and vectors of them.

16-bit floats are converted where they are loaded and stored (``vload_half`` and ``vstore_half``,
which every OpenCL device has): in a kernel's text they are 32-bit floats, rounded to 16 bits after
each operator on them. Integers are what they are; functions of our own wrap them around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from mapper.ast_model.digits import combine_digits
from mapper.ast_model.element_types import rounds
from mapper.ast_model.index_expr import Expr, Quotient, Remainder, Symbol, const, symbol
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
    dtype_of,
    substitute_value,
)
from mapper.ast_model.nodes import COMPARISONS, CONVERSIONS, Op
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE, mentions_lane
from mapper.elements import Element
from mapper.kernel_gen.buffer_names import BufferNames
from mapper.kernel_gen.c_expr import (
    c_all,
    c_condition,
    c_index,
    c_number,
    c_operand,
    never_holds,
)
from mapper.kernel_gen.identifiers import lane_name
from mapper.kernel_gen.own_functions import PRIVATE, Kind, OwnFunction
from mapper.kernel_gen.scheduled import flat_index

# Only widths whose memory layout is dense: a float3 takes the space of a float4.
VECTOR_WIDTHS = (2, 4, 8, 16)
_WRAPPED = {Op.ADD: Kind.ADD, Op.SUB: Kind.SUB, Op.MUL: Kind.MUL, Op.DIV: Kind.DIV}
#: What comparisons of vectors give, by the bytes of what they compare.
_SIGNED = {1: Element.INT8, 2: Element.INT16, 4: Element.INT32}
_SPACES = {Memory.GLOBAL: "__global", Memory.LOCAL: "__local", Memory.PRIVATE: "__private"}


def stored_as_half(buffer: Buffer) -> bool:
    """True for elements that are converted as they are loaded and stored."""
    return buffer.dtype is Element.FLOAT16 and buffer.memory is not Memory.PRIVATE


def c_type(element: Element, width: int = 1) -> str:
    """The type of a value, or of a vector of such, in a kernel's text."""
    return f"{element.held.text}{'' if width == 1 else width}"


@dataclass
class ValuePrinter:
    """Prints values; ``registers`` are private buffers that have become variables.

    Those among them whose variables are whole vectors are in ``vectors``, with the width; other
    private buffers that are arrays of vectors are in ``arrays``.
    Temporaries that a value needs are handed to ``emit`` as statements before it. ``functions``
    collects what the source has to define for them.
    """

    names: BufferNames
    registers: frozenset[str]
    vectors: Mapping[str, int]
    arrays: Mapping[str, int]
    emit: Callable[[str], None]
    counter: int = field(default=0)
    # Loop variables of fused runs, as digits of the run's own counter.
    digits: dict[str, Expr] = field(default_factory=dict[str, Expr])
    # Buffers that are read or written as aligned vectors, with the widest of these.
    aligned: dict[str, int] = field(default_factory=dict[str, int])
    functions: set[OwnFunction] = field(default_factory=set[OwnFunction])
    # Unrolled statements read the same elements again and again.
    _elements: dict[tuple[str, tuple[Expr, ...]], str] = field(
        default_factory=dict[tuple[str, tuple[Expr, ...]], str]
    )

    def scalar(self, value: Value) -> str:
        """An expression of one number; the value mentions no lane."""
        match value:
            case Constant():
                return c_number(value.value, value.dtype)
            case Load():
                return self.loaded(value)
            case Guarded():
                if never_holds(value.guard):
                    return _otherwise(value)
                border = self.border(value)
                if border is not None:
                    return border
                condition = c_condition(value.guard)
                inner = self.scalar(value.value)
                if condition is None:
                    return inner
                return _choice(condition, inner, _otherwise(value), dtype_of(value))
            case Operate():
                return self.operation(value, [self.scalar(o) for o in value.operands], 1)
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
                return _otherwise(value)
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
        type_ = c_type(inner.buffer.dtype)
        self.emit(f"const {type_} {loaded} = {self.at(inner.buffer, place)};")
        return _choice(inside, loaded, _otherwise(value), inner.buffer.dtype)

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

    def at(self, buffer: Buffer, place: str) -> str:
        """What stands at a position of shared memory."""
        name = self.names.of(buffer)
        if stored_as_half(buffer):
            return f"vload_half({place}, {name})"
        return f"{name}[{place}]"

    def loaded(self, load: Load) -> str:
        """One element; of 16-bit floats as a 32-bit one."""
        if stored_as_half(load.buffer):
            return self.at(load.buffer, c_index(self.position(load.buffer, load.indices)))
        return self.element(load.buffer, load.indices)

    def stored(self, buffer: Buffer, indices: tuple[Expr, ...], value: str) -> str:
        """The statement that writes one element."""
        if stored_as_half(buffer):
            place = c_index(self.position(buffer, indices))
            return f"vstore_half_rte({value}, {place}, {self.names.of(buffer)});"
        return f"{self.element(buffer, indices)} = {value};"

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """One element that is no half in shared memory, as an lvalue or rvalue."""
        known = self._elements.get((buffer.name, indices))
        if known is None:
            known = self._elements[buffer.name, indices] = self._element(buffer, indices)
        return known

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        name = self.names.of(buffer)
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
        return flat if _divisions(whole) - _divisions(flat) else whole

    def vector_place(self, buffer: Buffer, indices: tuple[Expr, ...], width: int) -> str | None:
        """The number of a whole vector in memory; None if it may be unaligned or torn."""
        base = self.lane_base(buffer, indices, width)
        vectors = None if base is None else vectors_before(base, width)
        if buffer.memory is Memory.PRIVATE:
            # PoCL 3.0-rc2 (LLVM 14) loses what was stored in a private array through a pointer to
            # a vector, so that arrays of numbers are read and written by functions of our own.
            if buffer.name not in self.arrays:
                return None
            if vectors is None:
                # As the array was found to be one of vectors.
                start = lane_start(flat_index(buffer, indices), width)
                vectors = None if start is None else vectors_before(start, width)
        elif vectors is not None:
            self.aligned[buffer.name] = max(width, self.aligned.get(buffer.name, 1))
        return None if vectors is None else c_index(vectors)

    def vector_at(self, buffer: Buffer, place: str, width: int) -> str:
        """The vector of this number, of no halves, as an lvalue or rvalue."""
        if buffer.name in self.arrays:
            return f"{self.names.of(buffer)}[{place}]"
        qualifiers = _SPACES[buffer.memory]
        if buffer.role is Role.INPUT:
            qualifiers += " const"
        type_ = c_type(buffer.dtype, width)
        return f"(({qualifiers} {type_} *){self.names.of(buffer)})[{place}]"

    def stored_vector(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: str, width: int
    ) -> str | None:
        """The statement that writes neighbours in shared memory; None if they are not."""
        half, name = stored_as_half(buffer), self.names.of(buffer)
        place = self.vector_place(buffer, indices, width)
        if place is not None:
            if half:
                return f"vstorea_half{width}_rte({value}, {place}, {name});"
            return f"{self.vector_at(buffer, place, width)} = {value};"
        base = self.lane_base(buffer, indices, width)
        if base is None:
            return None
        if buffer.memory is not Memory.LOCAL and not half:
            store = self.own(Kind.STORE, width, buffer.dtype, buffer.memory)
            return f"{store}({value}, {name} + ({c_index(base)}));"
        store = f"vstore_half{width}_rte" if half else f"vstore{width}"
        return f"{store}({value}, 0, {name} + ({c_index(base)}));"

    def lane_base(self, buffer: Buffer, indices: tuple[Expr, ...], width: int) -> Expr | None:
        """The position of lane 0 if the lanes are neighbours in memory, else None."""
        return lane_start(self.position(buffer, indices), width)

    def register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """The variable that holds one element (or vector) of an array in registers."""
        lane = indices[-1].constant if buffer.name in self.vectors else None
        if lane is not None:
            # One lane of a vector: a guard or a gather takes it apart.
            return f"{self.register(buffer, (*indices[:-1], symbol(LANE)))}.{lane_name(lane)}"
        parts = [self.names.of(buffer), *(str(i) for i in indices if str(i) != LANE)]
        return "_".join(parts)

    def vector(self, value: Value, width: int) -> str:
        """An expression of vectors; what mentions no lane is repeated in all lanes."""
        type_ = c_type(dtype_of(value), width)
        if not mentions_lane(value):
            return f"({type_})({self.scalar(value)})"
        match value:
            case Load():
                return self.vector_load(value, width)
            case Guarded():
                guard = _guard_of_whole(value.guard, width)
                if guard is None:
                    return self.gather(value, width)
                if never_holds(guard):
                    return f"({type_})({_otherwise(value)})"
                condition = c_condition(guard)
                inner = self.vector(value.value, width)
                if condition is None:
                    return inner
                return f"({condition} ? {inner} : ({type_})({_otherwise(value)}))"
            case Operate(Op.SELECT, (condition, chosen, other)):
                first, second = self.vector(chosen, width), self.vector(other, width)
                if not mentions_lane(condition):
                    return f"({self.scalar(condition)} ? {first} : {second})"
                mask = self.vector(condition, width)
                # A comparison gives integers as wide as what it compares.
                bits = dtype_of(value).held.bytes
                if dtype_of(condition).held.bytes != bits:
                    mask = f"convert_{_SIGNED[bits].text}{width}({mask})"
                return f"select({second}, {first}, {mask})"
            case Operate():
                return self.operation(value, [self.vector(o, width) for o in value.operands], width)
            case Constant() | LaneSum():
                return f"({type_})({self.scalar(value)})"

    def gather(self, value: Value, width: int) -> str:
        """A vector put together lane by lane."""
        lanes = [self.scalar(substitute_value(value, {LANE: const(lane)})) for lane in range(width)]
        return f"({c_type(dtype_of(value), width)})({', '.join(lanes)})"

    def vector_load(self, load: Load, width: int) -> str:
        """vload where the lanes are neighbours, else a gather."""
        if load.buffer.name in self.vectors and str(load.indices[-1]) == LANE:
            return self.register(load.buffer, load.indices)
        if load.buffer.name in self.registers:
            return self.gather(load, width)
        half, name = stored_as_half(load.buffer), self.names.of(load.buffer)
        place = self.vector_place(load.buffer, load.indices, width)
        if place is not None:
            if half:
                return f"vloada_half{width}({place}, {name})"
            return self.vector_at(load.buffer, place, width)
        base = self.lane_base(load.buffer, load.indices, width)
        if base is None:
            return self.gather(load, width)
        if load.buffer.memory is not Memory.LOCAL and not half:
            own = self.own(Kind.LOAD, width, load.buffer.dtype, load.buffer.memory)
            return f"{own}({name} + {c_operand(base)})"
        return f"vload{'_half' if half else ''}{width}(0, {name} + {c_operand(base)})"

    def lane_sum(self, value: LaneSum) -> str:
        """Sum over the lanes of a vector, with dot() where OpenCL has it."""
        dtype = dtype_of(value)
        assert value.lane.extent is not None
        width = value.lane.extent.constant
        assert width is not None
        product = value.value
        if width == 1:
            return self.scalar(substitute_value(product, {LANE: const(0)}))
        if width not in VECTOR_WIDTHS or not mentions_lane(product):
            lanes = [self.scalar(substitute_value(product, {LANE: const(k)})) for k in range(width)]
            return self.added(lanes, dtype)
        if (
            dtype is Element.FLOAT32
            and isinstance(product, Operate)
            and product.op is Op.MUL
            and len(product.operands) == 2
            and width in (2, 4)
        ):
            left, right = (self.vector(o, width) for o in product.operands)
            return f"dot({left}, {right})"
        self.counter += 1
        name = f"lanes_{self.counter}"
        self.emit(f"const {c_type(dtype, width)} {name} = {self.vector(product, width)};")
        while width > 4 and dtype is Element.FLOAT32:
            width //= 2
            self.counter += 1
            half = f"lanes_{self.counter}"
            self.emit(f"const float{width} {half} = {name}.lo + {name}.hi;")
            name = half
        return self.added([f"{name}.{lane_name(k)}" for k in range(width)], dtype)

    def added(self, parts: list[str], dtype: Element) -> str:
        """The sum of numbers; of 16-bit floats and integers one after the other."""
        if dtype is Element.FLOAT32:
            return "(" + " + ".join(parts) + ")"
        return reduce(lambda total, part: self.applied(Op.ADD, dtype, [total, part], 1), parts)

    def own(
        self,
        kind: Kind,
        width: int,
        element: Element = Element.FLOAT32,
        memory: Memory = Memory.GLOBAL,
    ) -> str:
        """The name of a function that the source defines for itself."""
        space = PRIVATE if memory is Memory.PRIVATE else "global"
        function = OwnFunction(kind, width, space, element.held)
        self.functions.add(function)
        return function.name

    def operation(self, value: Operate, operands: list[str], width: int) -> str:
        """An operator applied to numbers or vectors of them."""
        if value.op in CONVERSIONS:
            return self.converted(dtype_of(value.operands[0]), value.dtype, operands[0], width)
        return self.applied(value.op, value.dtype, operands, width)

    def applied(self, op: Op, dtype: Element, operands: list[str], width: int) -> str:
        """An operator on elements of this type, rounded as they are."""
        if op in COMPARISONS:
            return f"({operands[0]} {op.value} {operands[1]})"
        if op is Op.SELECT:
            condition, chosen, other = operands
            return _choice(condition, chosen, other, dtype)
        if dtype.is_integer:
            return self.of_integers(op, dtype, operands, width)
        result = _of_floats(op, operands)
        return f"{self.own(Kind.TO_HALF, width)}({result})" if rounds(op, dtype) else result

    def of_integers(self, op: Op, dtype: Element, operands: list[str], width: int) -> str:
        """An operator on integers, which wrap around."""
        match op:
            case Op.ADD | Op.SUB | Op.MUL | Op.DIV:
                return f"{self.own(_WRAPPED[op], width, dtype)}({', '.join(operands)})"
            case Op.FMA:
                product = self.of_integers(Op.MUL, dtype, operands[:2], width)
                return self.of_integers(Op.ADD, dtype, [product, operands[2]], width)
            case Op.MAX | Op.MIN:
                return f"{op.value}({', '.join(operands)})"
            case Op.ABS:
                # It gives unsigned numbers.
                return f"as_{c_type(dtype, width)}(abs({operands[0]}))"
            case _:
                raise AssertionError(op)

    def converted(self, given: Element, wanted: Element, value: str, width: int) -> str:
        """A number of one type as one of another, see :data:`mapper.ast_model.nodes.Op`."""
        if wanted.is_integer and not given.is_integer:
            return f"{self.own(Kind.TO_INTEGER, width, wanted)}({value})"
        if given.is_integer:
            # A cast is the same for single numbers, and no call.
            type_ = c_type(wanted, width)
            value = f"(({type_}){value})" if width == 1 else f"convert_{type_}({value})"
        # Integers that a half has room for are exact as floats.
        return f"{self.own(Kind.TO_HALF, width)}({value})" if wanted is Element.FLOAT16 else value


def _of_floats(op: Op, operands: list[str]) -> str:
    match op:
        case Op.ADD | Op.SUB | Op.MUL | Op.DIV:
            return "(" + f" {op.value} ".join(operands) + ")"
        case Op.MAX | Op.MIN | Op.ABS:
            return f"f{op.value}({', '.join(operands)})"
        case Op.FMA | Op.EXP | Op.SQRT:
            return f"{op.value}({', '.join(operands)})"
        case _:
            raise AssertionError("sums over lanes are LaneSum values")


def _choice(condition: str, chosen: str, other: str, dtype: Element) -> str:
    """``(c ? a : b)``, of which C makes an int where a and b are smaller."""
    small = dtype.is_integer and dtype.bytes < Element.INT32.bytes
    text = f"({condition} ? {chosen} : {other})"
    return f"(({dtype.text}){text})" if small else text


def _otherwise(value: Guarded) -> str:
    return c_number(value.otherwise, dtype_of(value))


def _guard_of_whole(guard: Guard, width: int) -> Guard | None:
    """The guard of all lanes together; None if it may hold for some of them only."""
    if LANE not in guard.index.names():
        return guard
    start = lane_start(guard.index, width)
    if start is None or None in (vectors_before(start, width), vectors_before(guard.limit, width)):
        return None
    # As of its last lane: what is read is proven to lie inside from it.
    return Guard(start, guard.limit - (width - 1))


def lane_start(place: Expr, width: int) -> Expr | None:
    """The position of lane 0 if the lanes are neighbours in memory, else None."""
    ((atom,), _) = symbol(LANE, width).terms[0]
    assert isinstance(atom, Symbol)
    parts = place.coefficient(atom)
    return None if parts is None or parts[0] != 1 else parts[1]


def vectors_before(place: Expr, width: int) -> Expr | None:
    """How many whole vectors lie before this position; None if it may be within one."""
    if any(coefficient % width for _, coefficient in place.terms):
        return None
    return Expr.from_terms({m: coefficient // width for m, coefficient in place.terms})


def _divisions(index: Expr) -> set[Quotient | Remainder]:
    """The quotients and remainders among the terms of a sum."""
    atoms = (atom for monomial, _ in index.terms for atom in monomial)
    return {atom for atom in atoms if isinstance(atom, Quotient | Remainder)}
