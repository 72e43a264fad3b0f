"""What a reduce does to its accumulator: which operator combines, and what is neutral to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mapper.ast_model.nodes import (
    Call,
    Get,
    Join,
    Layout,
    Literal,
    Map,
    Node,
    Program,
    Reduce,
    Ref,
    To,
    Zip,
)
from mapper.ast_model.types import ScalarType, Type, VectorType, dimensions
from mapper.schedules.find import ReduceSite
from mapper.schedules.nests import constant_nest, constants
from mapper.schedules.tree import Site, free_names
from mapper.schedules.unique import Names

#: Of every element: True if it is an accumulator, False if not, a tuple for a tuple.
Mark = bool | tuple["Mark", ...]

_LARGEST = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Fold:
    """An operator that is associative, commutes and has a neutral element.

    For floats associativity holds but for rounding, as for every parallel sum. ``neutral`` of
    maximum and minimum is the largest finite float of the right sign.
    """

    operator: str
    neutral: float


_FOLDS = {
    "add": Fold("add", 0.0),
    "mul": Fold("mul", 1.0),
    "max": Fold("max", -_LARGEST),
    "min": Fold("min", _LARGEST),
}


def fold_of(program: Program, found: ReduceSite) -> Fold | None:
    """The operator by which every step changes every element of the accumulator, if one is known.

    ``f(acc, term)`` or ``f(term, acc)`` of a built-in sum, product, maximum or minimum, or
    ``fma(u, v, acc)``; maps and reduces may stand around it. A program's own function of that
    name is its own business.
    """
    return step_fold(program, found.node)


def step_fold(program: Program, node: Reduce) -> Fold | None:
    """As :func:`fold_of`, of a reduce."""
    own = {f.name for f in program.functions}
    operators: set[str] = set()
    marks: dict[str, Mark] = {node.accumulator: True}
    if not _Updates(own, operators).is_update(node.body, marks) or len(operators) != 1:
        return None
    return _FOLDS[operators.pop()]


@dataclass(frozen=True, slots=True)
class _Updates:
    own: set[str]
    operators: set[str]

    def is_update(self, node: Node, marks: Mapping[str, Mark]) -> bool:
        """True if the node is the accumulator, each element combined with something else."""
        match node:
            case Call(function, arguments):
                return self.call(function, arguments, marks)
            case Map(_, parameter, body, argument):
                return self.is_update(body, {**marks, parameter: self.mark(argument, marks)})
            case Reduce(accumulator, parameter, body, initial, argument):
                return (
                    self.mark(initial, marks) is True
                    and self.untouched(argument, marks)
                    and self.is_update(body, {**marks, accumulator: True, parameter: False})
                )
            case Join(Reduce() as inner):
                return self.is_update(inner, marks)
            case _:
                return False

    def call(self, function: str, arguments: tuple[Node, ...], marks: Mapping[str, Mark]) -> bool:
        if function in self.own:
            return False
        if function == "fma" and self.mark(arguments[2], marks) is True:
            self.operators.add("add")
            return all(self.untouched(a, marks) for a in arguments[:2])
        if function == "dot_add" and self.mark(arguments[0], marks) is True:
            self.operators.add("add")
            return all(self.untouched(a, marks) for a in arguments[1:])
        if function not in _FOLDS:
            return False
        self.operators.add(function)
        first, second = arguments
        return (self.mark(first, marks) is True and self.untouched(second, marks)) or (
            self.mark(second, marks) is True and self.untouched(first, marks)
        )

    def untouched(self, node: Node, marks: Mapping[str, Mark]) -> bool:
        """True if no accumulator is looked at."""
        return touches_none(node, marks)

    def mark(self, node: Node, marks: Mapping[str, Mark]) -> Mark:
        """What the node is: the accumulator, something else, or tuples of both."""
        match node:
            case Ref(name):
                return marks.get(name, False)
            case Get(index, argument):
                inner = self.mark(argument, marks)
                return inner[index] if isinstance(inner, tuple) else inner
            case Zip(arguments):
                found = tuple(self.mark(a, marks) for a in arguments)
                return False if not any(_any(m) for m in found) else found
            case Map(_, parameter, body, argument):
                return self.mark(body, {**marks, parameter: self.mark(argument, marks)})
            case _:
                # Another order of the accumulator, or computed of it: neither it nor free of it.
                return False


def touches_none(node: Node, marks: Mapping[str, Mark]) -> bool:
    """True if the node looks at no marked element."""
    match node:
        case Ref(name):
            return not _any(marks.get(name, False))
        case Get(index, argument):
            mark = component_mark(argument, marks)
            if isinstance(mark, tuple):
                return not _any(mark[index])
            return touches_none(argument, marks)
        case Map(_, parameter, body, argument):
            mark = component_mark(argument, marks)
            inner = {**marks, parameter: True if mark is None else mark}
            return touches_none(body, inner)
        case Call(_, arguments):
            # Such as 16-bit floats that are converted before they are multiplied.
            return all(touches_none(argument, marks) for argument in arguments)
        case _:
            hidden = {name for name, mark in marks.items() if _any(mark)}
            return not free_names(node) & hidden


def component_mark(node: Node, marks: Mapping[str, Mark]) -> Mark | None:
    """The mark of what is only looked up (names, components, tuples, layout); else None."""
    match node:
        case Ref(name):
            return marks.get(name, False)
        case Get(index, argument):
            inner = component_mark(argument, marks)
            return inner[index] if isinstance(inner, tuple) else inner
        case Zip(arguments):
            found = [component_mark(a, marks) for a in arguments]
            known = tuple(m for m in found if m is not None)
            return known if len(known) == len(found) else None
        case Map(_, parameter, body, argument):
            inner = component_mark(argument, marks)
            return None if inner is None else component_mark(body, {**marks, parameter: inner})
        case _ if isinstance(node, Layout):
            return component_mark(node.argument, marks)
        case _:
            return (
                False if not free_names(node) & {n for n, m in marks.items() if _any(m)} else None
            )


def _any(mark: Mark) -> bool:
    return any(_any(m) for m in mark) if isinstance(mark, tuple) else mark


def continued(outer: Reduce) -> Reduce | None:
    """The reduce that each step of another is, going on with its accumulator; else None.

    Beyond what it goes over, the inner one looks at nothing of the outer one.
    """
    inner = outer.body.argument if isinstance(outer.body, Join) else None
    if not isinstance(inner, Reduce) or inner.initial != Ref(outer.accumulator):
        return None
    looked = free_names(inner.body)
    if outer.accumulator in looked | free_names(inner.argument) or outer.parameter in looked:
        return None
    return inner


def start_of(initial: Node) -> float | None:
    """The constant that every element of an accumulator starts from, if it is one."""
    if isinstance(initial, To):
        initial = initial.argument
    if isinstance(initial, Literal):
        return initial.value
    nest = constant_nest(initial)
    return None if nest is None else nest[0].value


def neutral_start(names: Names, stem: str, fold: Fold, type_: Type) -> Node:
    """What an accumulator of this type starts from so that nothing is added."""
    shape, element = dimensions(type_)
    assert isinstance(element, ScalarType | VectorType)  # tuples are no accumulators
    low, high = element.dtype.range
    neutral = min(max(fold.neutral, low), high) if element.dtype.is_integer else fold.neutral
    ids = (names.map_id(stem), *(names.map_id(f"{stem}_{k}") for k in range(1, len(shape))))
    return constants(names, ids, Literal(neutral, element.dtype), shape)


def accumulators_at(site: Site) -> dict[str, Mark]:
    """Which names in scope are accumulators of reduces around, or hold elements of them."""
    marks: dict[str, Mark] = {}
    for node, field in site.path:
        if field != "body":
            continue
        match node:
            case Map(_, parameter, _, argument):
                marks[parameter] = component_mark(argument, marks) or False
            case Reduce(accumulator, parameter):
                marks |= {accumulator: True, parameter: False}
            case _:
                pass
    return marks


def accumulator_maps(body: Node, accumulator: str) -> int:
    """How many maps around a body, each directly in the one before, go over the accumulator."""
    marks: dict[str, Mark] = {accumulator: True}
    count = 0
    while isinstance(body, Map):
        mark = component_mark(body.argument, marks)
        holds = mark is True or (isinstance(mark, tuple) and any(m is True for m in mark))
        if not holds:
            return count
        marks[body.parameter] = mark or False
        body, count = body.body, count + 1
    return count
