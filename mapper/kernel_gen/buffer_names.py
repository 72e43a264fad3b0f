"""What buffers are called in a kernel's text: after what they hold.

A program may say so (``let name = …``, the accumulator of a reduce). What is merely copied
keeps the name of what it is a copy of, and an accumulator is called after what it gathers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Declare,
    Guarded,
    LaneSum,
    Load,
    Operate,
    Role,
    Store,
    Value,
    loads,
)
from mapper.ast_model.nodes import CONVERSIONS, Op
from mapper.ast_model.types import Memory
from mapper.kernel_gen.identifiers import c_name
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled

_PREFIXES = {Memory.GLOBAL: "g_", Memory.LOCAL: "l_", Memory.PRIVATE: "p_"}
_GATHERED = {Op.ADD: "sum", Op.SUB: "sum", Op.FMA: "sum", Op.MUL: "product", Op.DIV: "product",
             Op.MAX: "maximum", Op.MIN: "minimum"}  # fmt: skip
_COMPUTED = {Op.ADD: "sum", Op.SUB: "difference", Op.MUL: "product", Op.FMA: "sum",
             Op.DIV: "quotient", Op.MAX: "maximum", Op.MIN: "minimum"}  # fmt: skip


class BufferNames:
    """The identifiers of a kernel's buffers; different buffers have different ones."""

    def __init__(self, body: tuple[Scheduled, ...], shared: Iterable[Buffer]) -> None:
        """``shared`` are the buffers that the body does not declare, inputs and result too."""
        self._stores: dict[str, list[Value]] = {}
        self._stems: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._taken: set[str] = set()
        declared = [*shared, *self._scan(body)]
        # The caller's own names come first, so that they stay as they are.
        declared.sort(key=lambda buffer: buffer.role is Role.INTERMEDIATE)
        for buffer in declared:
            if buffer.name not in self._found:
                self._found[buffer.name] = self._identifier(buffer)

    def of(self, buffer: Buffer) -> str:
        """The identifier of a buffer."""
        return self._found[buffer.name]

    def _scan(self, body: tuple[Scheduled, ...]) -> Iterator[Buffer]:
        for statement in body:
            match statement:
                case Declare():
                    yield statement.buffer
                case Store():
                    self._stores.setdefault(statement.buffer.name, []).append(statement.value)
                    yield from (
                        buffer
                        for buffer in (load.buffer for load in loads(statement.value))
                        if buffer.role is Role.INPUT
                    )
                case Run() | Ahead():
                    yield from self._scan(statement.body)
                case _:
                    pass

    def _identifier(self, buffer: Buffer) -> str:
        prefix = _PREFIXES[buffer.memory]
        if buffer.role is not Role.INTERMEDIATE:
            base = c_name(buffer.name)
        else:
            base = c_name(self._stem(buffer))
            if re.search(r"_\d+$", base):
                # So ends a variable that is one element of an array in registers.
                base += "_v"
        name, count = prefix + base, 1
        while name in self._taken:
            count += 1
            name = f"{prefix}{base}{count}"
        self._taken.add(name)
        return name

    def _stem(self, buffer: Buffer) -> str:
        if buffer.role is not Role.INTERMEDIATE:
            return buffer.name
        if buffer.stem:
            return buffer.stem
        known = self._stems.get(buffer.name)
        if known is None:
            # In case that it is a copy of its own copies.
            self._stems[buffer.name] = "value"
            known = self._stems[buffer.name] = self._inferred(buffer)
        return known

    def _inferred(self, buffer: Buffer) -> str:
        values = self._stores.get(buffer.name, [])
        for value in values:
            if any(load.buffer.name == buffer.name for load in loads(value)):
                return _word(value, _GATHERED)
        origins = {load.buffer.name: load.buffer for value in values for load in loads(value)}
        if not origins:
            return "constant"
        if len(origins) == 1 and all(_is_move(value) for value in values):
            (origin,) = origins.values()
            return self._stem(origin)
        return _word(values[0], _COMPUTED)


def _word(value: Value, words: dict[Op, str]) -> str:
    match value:
        case Operate(op, operands):
            return _word(operands[0], words) if op in CONVERSIONS else words.get(op, "value")
        case Guarded():
            return _word(value.value, words)
        case LaneSum():
            return "sum"
        case _:
            return "value"


def _is_move(value: Value) -> bool:
    match value:
        case Load() | Constant():
            return True
        case Guarded():
            return _is_move(value.value)
        case Operate(op, operands):
            return op in CONVERSIONS and _is_move(operands[0])
        case LaneSum():
            return False
