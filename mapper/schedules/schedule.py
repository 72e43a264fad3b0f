"""Schedules as data: primitives on named maps, reduces and buffers, in order.

A schedule names what it changes; the names that primitives make up are in their docstrings. Nothing
is evaluated: sizes are integer expressions that :mod:`mapper.ast_model.text_form` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from mapper.ast_model.nodes import Program
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import Memory
from mapper.errors import InputError, LimitError, Problem
from mapper.schedules.primitives import (
    border,
    compute_at,
    contract,
    copy_result,
    copy_views,
    dot,
    fission,
    flatten,
    inline,
    interchange,
    interleave,
    layout,
    materialise,
    move_inside,
    narrow,
    nest,
    overlap,
    pack,
    prefetch,
    reorder,
    reshare,
    restart,
    rfactor,
    separate,
    split,
    split_reduce,
    spread,
    stage,
    stage_accumulator,
    unroll,
    vectorise,
)
from mapper.schedules.primitives.split import Overhang
from mapper.schedules.step import Step
from mapper.schedules.unique import with_named_steps

MAX_STEPS = 500
MAX_NAME = 63
#: It is the variant of what it gives, of which the store keeps so many characters.
MAX_SCHEDULE_NAME = 64
MAX_LIST = 32
MAX_VALUES = 64
MAX_VALUE = 2**20

Value = str | int | bool | tuple[str, ...] | tuple[int, ...]


class Kind(StrEnum):
    """What an argument of a primitive is."""

    NAME = "a name"
    SIZE = "a number or an expression of sizes and parameters"
    COUNT = "a whole number"
    NAMES = "a list of names"
    ORDER = "a list of places, each below 32"
    VALUES = "a list of at most 64 whole numbers, each at most 1048576"
    MEMORY = "global, local or private"
    OVERHANG = "divisible, padded, optimised or guarded"
    FLAG = "true or false"


_WORDS: dict[Kind, type[StrEnum]] = {Kind.MEMORY: Memory, Kind.OVERHANG: Overhang}


@dataclass(frozen=True, slots=True)
class Field:
    """An argument: its name in Python, JSON and text, and what it is."""

    name: str
    kind: Kind
    required: bool = True


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive by its name in schedules; required arguments come first."""

    name: str
    function: Callable[..., Step]
    fields: tuple[Field, ...]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


def _primitive(function: Callable[..., Step], **kinds: Kind) -> Primitive:
    """Of a function whose arguments are the program and these; ``_`` in front: it may be absent."""
    found = tuple(
        Field(name.removeprefix("_"), kind, not name.startswith("_"))
        for name, kind in kinds.items()
    )
    return Primitive(function.__name__, function, found)


_N, _S, _M = Kind.NAME, Kind.SIZE, Kind.MEMORY
PRIMITIVES: dict[str, Primitive] = {
    p.name: p
    for p in (
        _primitive(
            split.split,
            map_id=_N,
            size=_S,
            _overhang=Kind.OVERHANG,
            _padding=_N,
            _coarse=Kind.FLAG,
        ),
        _primitive(interchange.interchange, map_id=_N),
        _primitive(interchange.interchange_reduces, name=_N),
        _primitive(reorder.reorder, maps=Kind.NAMES),
        _primitive(reorder.reorder_reduces, reduces=Kind.NAMES),
        _primitive(nest.nest, maps=Kind.NAMES),
        _primitive(separate.separate, map_id=_N),
        _primitive(flatten.flatten, map_id=_N),
        _primitive(flatten.flatten_reduces, name=_N),
        _primitive(split_reduce.split_reduce, name=_N, size=_S, _among=Kind.VALUES),
        _primitive(interleave.interleave, name=_N, size=_S, _switch=_S),
        _primitive(dot.dot, name=_N, width=_S),
        _primitive(rfactor.rfactor, name=_N, size=_S, _memory=_M),
        _primitive(restart.restart, name=_N, _memory=_M),
        _primitive(move_inside.move_inside, map_id=_N),
        _primitive(fission.fission, map_id=_N, _memory=_M),
        _primitive(stage_accumulator.stage_accumulator, name=_N, _memory=_M),
        _primitive(spread.spread, name=_N, dimensions_=Kind.COUNT),
        _primitive(overlap.overlap, loop=_N, base=_N, _use=Kind.COUNT),
        _primitive(overlap.widen, loop=_N, base=_N, _front=_S, _wide=_S, _vector=_S),
        _primitive(
            stage.stage,
            loop=_N,
            base=_N,
            memory=_M,
            _order=Kind.ORDER,
            _padding=_S,
            _vector=_S,
            _apart=Kind.FLAG,
            _as_read=Kind.FLAG,
            _once=Kind.FLAG,
            _use=Kind.COUNT,
        ),
        _primitive(border.border, loop=_N, base=_N, kernel=_N, _use=Kind.COUNT),
        _primitive(pack.pack, loop=_N, base=_N, kernel=_N, _order=Kind.ORDER, _use=Kind.COUNT),
        _primitive(compute_at.compute_at, kernel=_N, loop=_N, _memory=_M),
        _primitive(inline.inline, name=_N),
        _primitive(materialise.materialise, name=_N, kernel=_N),
        _primitive(copy_result.copy_result, kernel=_N, computed=_N),
        _primitive(copy_views.copy_views, kernel=_N),
        _primitive(layout.layout, buffer=_N, order=Kind.ORDER),
        _primitive(vectorise.vectorise, map_id=_N, width=_S),
        _primitive(
            reshare.reshare, map_id=_N, levels=Kind.COUNT, share=_S, _overhang=Kind.OVERHANG
        ),
        _primitive(unroll.unroll, name=_N, _switch=_S),
        _primitive(prefetch.prefetch, name=_N, _buffers=_S),
        _primitive(prefetch.double_buffer, name=_N),
        _primitive(contract.contract, name=_N),
        _primitive(contract.fuse_products, name=_N),
        _primitive(contract.commute, name=_N),
        _primitive(narrow.narrow, parameter=_N, values=Kind.VALUES),
    )
}
"""By name in schedules."""


@dataclass(frozen=True, slots=True)
class Use:
    """A primitive with its arguments, in the primitive's own order."""

    primitive: str
    arguments: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Uses of primitives, one after the other; ``name`` is for people."""

    name: str
    uses: tuple[Use, ...]


def checked_name(value: object, path: str = "name") -> str:
    """The name of a schedule; InputError for what is none."""
    if not isinstance(value, str) or len(value) > MAX_SCHEDULE_NAME or not value.isprintable():
        allowed = f"a text of at most {MAX_SCHEDULE_NAME} printable characters"
        raise InputError(Problem(path, "not a schedule's name", ascii(value)[:80], allowed))
    return value


def use(primitive: str, *positional: Value, **keyword: Value) -> Use:
    """A checked use; InputError names what is unknown, missing or of another kind."""
    known = PRIMITIVES.get(primitive)
    if known is None:
        raise InputError(
            Problem(primitive, "no such primitive", primitive[:60], ", ".join(sorted(PRIMITIVES)))
        )
    names = [f.name for f in known.fields]
    if len(positional) > len(names):
        raise InputError(Problem(primitive, "too many arguments", str(len(positional)),
                                 f"{', '.join(names)}"))  # fmt: skip
    given = dict(zip(names, positional, strict=False))
    for name, value in keyword.items():
        if name not in names or name in given:
            raise InputError(Problem(primitive, "an argument is unknown or given twice", name[:60],
                                     ", ".join(names)))  # fmt: skip
        given[name] = value
    missing = [f.name for f in known.fields if f.required and f.name not in given]
    if missing:
        raise InputError(Problem(primitive, "arguments are missing", "", ", ".join(missing)))
    checked = tuple(
        (f.name, _checked(primitive, f, given[f.name])) for f in known.fields if f.name in given
    )
    return Use(primitive, checked)


def _checked(primitive: str, field: Field, value: Value) -> Value:
    right = False
    match field.kind:
        case Kind.NAME:
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            right = isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()
        case Kind.SIZE:
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            right = isinstance(value, str) and 0 < len(value) <= 200
        case Kind.COUNT:
            right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 64
        case Kind.NAMES:
            right = isinstance(value, tuple) and 0 < len(value) <= MAX_LIST
            if right:
                items = cast(tuple[object, ...], value)
                value = tuple(str(item) for item in items)
                right = all(0 < len(v) <= MAX_NAME and v.isprintable() for v in value)
        case Kind.ORDER:
            right = _are_counts(value, MAX_LIST, MAX_LIST - 1)
        case Kind.VALUES:
            right = _are_counts(value, MAX_VALUES, MAX_VALUE)
        case Kind.MEMORY | Kind.OVERHANG:
            right = value in {word.value for word in _WORDS[field.kind]}
        case Kind.FLAG:
            right = isinstance(value, bool)
    if not right:
        raise InputError(Problem(f"{primitive}.{field.name}", "an argument of another kind",
                                 repr(value)[:80], field.kind.value))  # fmt: skip
    return str(value) if isinstance(value, StrEnum) else value


def _are_counts(value: Value, length: int, most: int) -> bool:
    items = cast(tuple[object, ...], value) if isinstance(value, tuple) else None
    return (
        items is not None
        and len(items) <= length
        and all(isinstance(v, int) and 0 <= v <= most for v in items)
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a derivation: what was used, and what it gave."""

    use: Use
    step: Step


def derive(program: Program, schedule: Schedule) -> Iterator[Stage]:
    """The steps of a schedule on a program, one after the other; its names are made unique first,
    so that each says one reduce.

    NotApplicable says which primitive does not apply and why, LimitError what becomes too large,
    with the step's number in front.
    """
    if len(schedule.uses) > MAX_STEPS:
        raise InputError(Problem("steps", "too many", str(len(schedule.uses)), str(MAX_STEPS)))
    program = with_named_steps(program)
    for number, item in enumerate(schedule.uses, 1):
        try:
            step = applied(program, item)
            if number == len(schedule.uses):
                # Steps look at what they change; the program that is used is checked whole.
                check_program(step.program)
        except (InputError, LimitError) as error:
            problem = error.problems[0]
            where = f"step {number}, {problem.path}" if problem.path else f"step {number}"
            raise type(error)(
                Problem(where, problem.message, problem.found, problem.allowed, problem.remedy)
            ) from None
        yield Stage(item, step)
        program = step.program


def derived(program: Program, schedule: Schedule) -> Program:
    """The program after a schedule."""
    for stage_ in derive(program, schedule):
        program = stage_.step.program
    return program


def applied(program: Program, item: Use) -> Step:
    """A program after one use."""
    primitive = PRIMITIVES[item.primitive]
    kinds = {f.name: f.kind for f in primitive.fields}
    arguments = {
        name: _WORDS[kinds[name]](value) if kinds[name] in _WORDS else value
        for name, value in item.arguments
    }
    return primitive.function(program, **arguments)
