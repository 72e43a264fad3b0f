"""What a kernel's nest reads, loop by loop: what is parallel, reused, contiguous, a window.

The facts that the rules of "Ansor: Generating High-Performance Tensor Programs for Deep Learning"
(OSDI'20), section 4.1, ask for (data reuse, strictly inlinable, more reduced than parallel), read
off the places that a perfect nest's element reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from mapper.ast_model.builders import said_name
from mapper.ast_model.elaborator import Elaborator
from mapper.ast_model.index_expr import Expr, Symbol, atom_expr, symbol, the_symbol
from mapper.ast_model.loop_nest import Load
from mapper.ast_model.nodes import Join, Kernel, Let, Map, Node, Program, Reduce, Ref, Zip
from mapper.ast_model.type_check import infer_part
from mapper.ast_model.types import Type, dimensions
from mapper.ast_model.views import ArrayView, ScalarView
from mapper.errors import InputError
from mapper.schedules.access import Access, opaque
from mapper.schedules.carried import carried, part_tiling
from mapper.schedules.find import find_map, find_reduce
from mapper.schedules.folds import fold_of
from mapper.schedules.sizes import lengths
from mapper.schedules.sketches.draft import Draft
from mapper.schedules.tree import Site, is_view, through_layout
from mapper.schedules.unique import Names


@dataclass(frozen=True, slots=True)
class Loop:
    """A map of the nest, and its longest trip."""

    name: str
    trip: int


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that the nest reads: of each map, outermost first, the step along each dimension.

    ``steps[k]`` holds the dimensions of ``base`` along which map ``k`` goes, with its step there
    (0: it is no number, as of a map over the parts of a reduce). ``windows`` are the dimensions
    along which a map goes in steps that are numbers, and what is inside.
    """

    base: str
    rank: int
    steps: tuple[tuple[tuple[int, int], ...], ...]
    windows: tuple[int, ...]

    def depends(self, loop: int) -> bool:
        """False where the array is reused along the map."""
        return bool(self.steps[loop])

    def contiguous(self, loop: int) -> bool:
        """True if neighbours of the map read neighbours of the array."""
        return self.steps[loop] == ((self.rank - 1, 1),)


@dataclass(frozen=True, slots=True)
class Nest:
    """A kernel as a perfect nest of maps around a body; ``reduce`` is the reduce in it, if any.

    ``factors`` are the dimensions, outermost first, that were joined into what it goes over;
    ``sliding`` says of which of these a window is made. ``associative``: its order is free.
    ``epilogue``: something is computed of its result.
    """

    kernel: str
    loops: tuple[Loop, ...]
    operands: tuple[Operand, ...]
    reduce: str
    factors: tuple[tuple[str, int], ...]
    sliding: tuple[bool, ...]
    associative: bool
    epilogue: bool
    written: int | None = None
    """The map whose neighbours are neighbours in the result."""

    @property
    def reduced(self) -> int:
        """How many elements are reduced."""
        return prod(trip for _, trip in self.factors)

    @property
    def outputs(self) -> int:
        """How many elements the nest computes."""
        return prod(loop.trip for loop in self.loops)

    @property
    def longest_plain(self) -> int:
        """The place of the longest dimension that is reduced and that no window slides along; of
        the longest of all where there is none."""
        several = range(len(self.factors))
        plain = [k for k in several if k >= len(self.sliding) or not self.sliding[k]]
        return max(plain or several, key=lambda k: self.factors[k][1])

    @property
    def is_contraction(self) -> bool:
        """True if two arrays or more are reduced, each reused along a map."""
        return len(self.operands) > 1 and all(
            any(not o.depends(k) for k in range(len(self.loops))) for o in self.operands
        )


def nest_of(draft: Draft, kernel: str) -> tuple[Draft, Nest]:
    """The kernel with its maps as a perfect nest, which may take steps, and what it reads.

    Maps that go through all arrays as one map would are one (``flatten``).
    """
    while True:
        draft, loops, body = _nested(draft, kernel)
        accesses = _accesses(draft.program, loops)
        result = _result(draft.program, _kernel(draft.program, kernel))
        outer = _as_one(draft.program, loops, [access for _, access in accesses], result)
        flat = draft if outer is None else draft.maybe("flatten", outer)
        if flat is draft:
            break
        draft = flat
    reduced, epilogue = _reduce_in(body)
    operands = tuple(_operand(base, access, len(loops)) for base, access in accesses)
    written = _written(result, len(loops))
    if reduced is None:
        return draft, Nest(kernel, loops, operands, "", (), (), False, False, written)
    name = _name_of(draft.program, reduced)
    found = find_reduce("sketch", draft.program, name)
    factors = _factors(draft.program, found.node, found.site.types())
    sliding = _sliding(factors, [access for _, access in accesses])
    return draft, Nest(
        kernel, loops, operands, name, factors, sliding,
        fold_of(draft.program, found) is not None, epilogue, written,
    )  # fmt: skip


def _nested(draft: Draft, kernel: str) -> tuple[Draft, tuple[Loop, ...], Node]:
    loops, body = _maps(draft.program, _kernel(draft.program, kernel))
    if len(loops) > 1:
        draft = draft.maybe("nest", tuple(loop.name for loop in loops))
        loops, body = _maps(draft.program, _kernel(draft.program, kernel))
    return draft, loops, body


def _as_one(
    program: Program,
    loops: tuple[Loop, ...],
    accesses: list[Access],
    result: list[list[int]] | None,
) -> str | None:
    """The first map that goes, with the one in it, through all arrays row after row."""
    if result is None or not accesses:
        return None
    for k in range(len(loops) - 1):
        both = [*result[k], *result[k + 1]]
        others = {place for places in (*result[:k], *result[k + 2 :]) for place in places}
        if (
            min(loops[k].trip, loops[k + 1].trip) > 1
            and both
            and both == list(range(both[0], both[0] + len(both)))
            and not others & set(both)
            and all(_goes_on(program, access, k) for access in accesses)
        ):
            return loops[k].name
    return None


def _goes_on(program: Program, access: Access, k: int) -> bool:
    """Whether a map and the next go along no dimension, or along neighbours, whole and alone."""
    both = access.outer[k : k + 2]
    places = [
        [d for d, index in enumerate(access.indices) if variable in index.symbols()]
        for variable in both
    ]
    if places == [[], []]:
        return True
    if len(places[0]) != 1 or places[1] != [places[0][0] + 1]:
        return False
    (first,), (second,) = places
    plain = [access.indices[first], access.indices[second]] == [atom_expr(v) for v in both]
    extent = both[1].extent
    assert extent is not None
    return plain and lengths(program, extent) == lengths(program, access.shape[second])


def without_views(draft: Draft, kernel: str) -> Draft:
    """The kernel without ``let``s of views around it, which may take steps: its maps read through
    the views where places are sums of loops' variables then, else copies of them."""
    inlined = draft
    while isinstance(let := _kernel(inlined.program, kernel).body, Let) and is_view(let.value):
        after = inlined.maybe("inline", let.name)
        if after is inlined:
            break
        inlined = after
    if inlined is draft or _is_read_in_steps(inlined, kernel):
        return inlined
    copied = draft.maybe("copy_views", kernel)
    return inlined if copied is draft else copied


def _is_read_in_steps(draft: Draft, kernel: str) -> bool:
    """Whether tiles can be made of all that the kernel's nest reads."""
    try:
        draft, nest = nest_of(draft, kernel)
        innermost = nest.loops[-1].name if nest.loops else ""
        found = carried("sketch", Names(draft.program), draft.program, innermost)
        for place in range(len(found.parts)):
            part_tiling("sketch", found, innermost, place)
    except InputError:
        return False
    return True


def _kernel(program: Program, name: str) -> Kernel:
    return next(k for k in program.kernels if k.name == name)


def _maps(program: Program, kernel: Kernel) -> tuple[tuple[Loop, ...], Node]:
    """The maps one directly in the other, with layout between, and what the innermost computes."""
    found: list[Loop] = []
    node = through_layout(kernel.body)[1]
    while isinstance(node, Map) and not is_view(node.body) and is_view(node.argument):
        length = find_map("sketch", program, node.id).length
        found.append(Loop(str(node.id), max(lengths(program, length), default=1)))
        node = through_layout(node.body)[1]
    return tuple(found), node


def _reduce_in(node: Node) -> tuple[Reduce | None, bool]:
    """The reduce that a body is, or works on afterwards."""
    epilogue = False
    while isinstance(node, Map):
        epilogue = epilogue or not is_view(node.body)
        node = through_layout(node.argument)[1]
    return (node, epilogue) if isinstance(node, Reduce) else (None, False)


def _name_of(program: Program, node: Reduce) -> str:
    """What a schedule calls a reduce: its step's name without its number, if that says it."""
    for name in filter(None, (said_name(node.parameter), node.parameter)):
        try:
            if find_reduce("sketch", program, name).node is node:
                return name
        except InputError:
            continue
    return node.parameter


def _accesses(program: Program, loops: tuple[Loop, ...]) -> list[tuple[str, Access]]:
    if not loops:
        return []
    try:
        found = carried("sketch", Names(program), program, loops[-1].name)
    except InputError:
        return []
    if found.chain.depth != len(loops):
        return []
    return [(p.root or p.access.base, p.access) for p in found.parts if p.access is not None]


def _result(program: Program, kernel: Kernel) -> list[list[int]] | None:
    """Of each map the dimensions of the result that it goes along, and of what is computed inside;
    None where the result is no view of that."""
    around, inner = through_layout(kernel.body)
    types = Site(program, kernel, (), kernel.body).types()
    env = {name: opaque(name, type_) for name, type_ in types.items()}
    try:
        env[_INNER] = opaque(_INNER, infer_part(inner, types, program))
        view = Elaborator(program, kernel.name).read(around(Ref(_INNER)), env)
    except InputError:
        return None
    variables: list[Symbol] = []
    while isinstance(view, ArrayView):
        variable = symbol(f"w{len(variables)}'", view.type.length)
        variables.append(the_symbol(variable))
        view = view.at(variable)
    if not isinstance(view, ScalarView) or not isinstance(view.value, Load):
        return None
    return [
        [place for place, variable in enumerate(variables) if variable in index.symbols()]
        for index in view.value.indices
    ]


def _written(result: list[list[int]] | None, depth: int) -> int | None:
    """The map that goes along the innermost dimension of the result, step for step."""
    last = max((place for places in result or () for place in places), default=None)
    mine = [k for k, places in enumerate(result or ()) if last in places]
    return mine[0] if len(mine) == 1 and mine[0] < depth else None


_INNER = "'inner"


def _operand(base: str, access: Access, depth: int) -> Operand:
    steps: list[tuple[tuple[int, int], ...]] = []
    for variable in access.outer[:depth]:
        mine = ((d, _step(index, variable)) for d, index in enumerate(access.indices)
                if variable in index.symbols())  # fmt: skip
        steps.append(tuple(mine))
    windows = tuple(
        d
        for d, index in enumerate(access.indices)
        if _slides(index, access.outer) and any(v in index.symbols() for v in access.inner)
    )
    return Operand(base, len(access.indices), tuple(steps), windows)


def _slides(index: Expr, variables: Iterable[Symbol]) -> bool:
    """Whether one of the variables makes steps that are numbers along a dimension: parts of a
    reduce, as long as a parameter says, do not overlap."""
    return any(v in index.symbols() and _step(index, v) for v in variables)


def _step(index: Expr, variable: Symbol) -> int:
    """The step that a variable makes along a dimension; 0 where it is no number."""
    parts = index.coefficient(variable)
    return 0 if parts is None else parts[0].constant or 0


def _factors(program: Program, node: Reduce, types: dict[str, Type]) -> tuple[tuple[str, int], ...]:
    """The dimensions that were joined into what a reduce goes over, as text, with their lengths."""
    argument = node.argument
    parts = argument.arguments if isinstance(argument, Zip) else (argument,)
    best: tuple[tuple[str, int], ...] = ()
    for part in parts:
        joined = 0
        while isinstance(part, Join):
            part, joined = part.argument, joined + 1
        shape = dimensions(infer_part(part, types, program))[0][: joined + 1]
        own = tuple((str(n), max(lengths(program, n), default=1)) for n in shape)
        if len(own) > len(best):
            best = own
    return best


def _sliding(factors: tuple[tuple[str, int], ...], accesses: list[Access]) -> tuple[bool, ...]:
    found = [False] * len(factors)
    for access in accesses:
        if len(access.inner) != len(factors):
            continue
        for index in access.indices:
            if _slides(index, access.outer):
                for k, variable in enumerate(access.inner):
                    found[k] = found[k] or variable in index.symbols()
    return tuple(found)
