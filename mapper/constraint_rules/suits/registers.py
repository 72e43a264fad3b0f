"""What stands in vector registers: what is added up, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.loop_nest import Load, Loop, LoopKernel, Statement, Store, loads, walk
from mapper.ast_model.nodes import Relation
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import has_code
from mapper.constraint_rules.predicate import (
    IntTerm,
    Predicate,
    add,
    any_of,
    compare,
    multiply,
    select,
    term_of,
)
from mapper.constraint_rules.rule import Provenance
from mapper.constraint_rules.runs import map_id
from mapper.constraint_rules.suits.facts import map_ids
from mapper.constraint_rules.suits.suit import BOTH, ON_CPU, Finding, Suit
from mapper.device_profile import DeviceProfile
from mapper.schedule import VECTOR_CODES

_WIDTHS = sorted(int(code) for code in VECTOR_CODES)
_GEMM = "Anatomy of High-Performance Matrix Multiplication"


@dataclass(frozen=True, slots=True)
class _Adding:
    """A private store under an innermost reduce, and the maps between, outermost first."""

    store: Store
    inner: tuple[Loop, ...]


def _in_registers(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    if device.vector_registers is None:
        return
    for adding in _additions(kernel):
        sums = _registers(adding, adding.inner, device)
        fits = compare(Relation.LE, sums, device.vector_registers)
        yield _finding(kernel, adding, fits)


def _with_operands(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    if device.vector_registers is None:
        return
    for adding in _additions(kernel):
        sums = _registers(adding, adding.inner, device)
        operands = list(dict.fromkeys(_operands(adding)))
        if len(operands) < 2:
            continue
        # One operand is held while the elements of the others come and go.
        held = [_registers(adding, _varying(load, adding.inner), device) for load in operands]
        fits = (compare(Relation.LE, add(sums, one), device.vector_registers) for one in held)
        yield _finding(kernel, adding, any_of(*fits))


def _finding(kernel: LoopKernel, adding: _Adding, fits: Predicate) -> Finding:
    last = map_id(adding.inner[-1])
    return Finding(f"{kernel.name}/{last}", fits, map_ids(adding.inner), adding.store.buffer.name)


def _additions(kernel: LoopKernel) -> Iterator[_Adding]:
    """The private stores under innermost reduces, one of each innermost map."""
    seen: set[int] = set()
    for statement, loops in walk(kernel.statements):
        inner = _below_reduce(loops)
        if (
            isinstance(statement, Store)
            and statement.buffer.memory is Memory.PRIVATE
            and inner
            and id(inner[-1]) not in seen
        ):
            seen.add(id(inner[-1]))
            yield _Adding(statement, inner)


def _operands(adding: _Adding) -> Iterator[Load]:
    """What is loaded beside the sum itself."""
    for load in loads(adding.store.value):
        if load.buffer != adding.store.buffer:
            yield load


def _varying(load: Load, inner: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The maps that an operand's element depends on."""
    symbols = {symbol for index in load.indices for symbol in index.symbols()}
    return tuple(loop for loop in inner if loop.variable in symbols)


def _registers(adding: _Adding, loops: tuple[Loop, ...], device: DeviceProfile) -> IntTerm:
    """Registers of as many values as these of the inner maps have iterations together."""
    last = adding.inner[-1]
    factors: list[IntTerm] = [term_of(loop.trip, {}) for loop in loops if loop is not last]
    if any(loop is last for loop in loops):
        own, bytes_ = map_id(last), adding.store.buffer.element_bytes
        count: IntTerm = term_of(last.trip, {})
        taken: dict[int, list[int]] = {}
        for width in _WIDTHS:
            registers = -(-width * bytes_ // (device.vector_bytes or bytes_))
            taken.setdefault(registers, []).append(width)
        for registers, widths in taken.items():
            count = select(has_code(own, frozenset(widths)), registers, count)
        factors.append(count)
    return multiply(*factors)


def _below_reduce(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The maps under an innermost reduce; none where there is no reduce, or another one in it."""
    for position in range(len(loops) - 1, -1, -1):
        if loops[position].map_id is None:
            return () if _reduces(loops[position].body) else loops[position + 1 :]
    return ()


def _reduces(statements: tuple[Statement, ...]) -> bool:
    return any(isinstance(s, Loop) and (s.map_id is None or _reduces(s.body)) for s in statements)


SUMS_IN_REGISTERS = Suit(
    id="suits-sums-in-registers",
    title="Sums fit into registers",
    sentence="what a work-item adds up under its innermost reduce fits into the vector registers, "
    "one each",
    remedy="let a work-item keep fewer filters, rows or columns",
    source=Provenance(_GEMM, "6.1"),
    kinds=ON_CPU,
    produce=_in_registers,
)
OPERANDS_IN_REGISTERS = Suit(
    id="suits-operands-in-registers",
    title="Operands fit beside the sums",
    sentence="beside what a work-item adds up, one of the operands that this is made of fits into "
    "the registers, while the elements of the others come and go",
    remedy="let a work-item keep fewer filters, rows or columns",
    source=Provenance(_GEMM, "6.1"),
    kinds=BOTH,
    produce=_with_operands,
)
