"""Contractions and other folds under parallel maps: tiles, chunks, staged and packed operands.

The tiled structure of "Ansor" (OSDI'20), section 4.1, rules "multi-level tiling", "cache write"
and "rfactor", and of "Heron: Automatically Constrained High-Performance Library Generation for
Deep Learning Accelerators" (ASPLOS'23), section 4, whose open sizes are a constraint problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mapper.ast_model.types import dimensions
from mapper.errors import InputError
from mapper.schedules.carried import carried, one_part
from mapper.schedules.schedule import Value
from mapper.schedules.sketches.analysis import Nest, Operand, nest_of
from mapper.schedules.sketches.draft import Draft
from mapper.schedules.sketches.names import (
    chained,
    lanes_of,
    split_by_dimensions,
    split_in_two,
    start_of,
)
from mapper.schedules.sketches.plain import split_over_groups
from mapper.schedules.step import refusal
from mapper.schedules.unique import Names

MOST_SLICES = 16
#: Of a map, iterations of a work-item that keeps a window in registers, and steps of its chunks.
_MOST_OWN = 8
_MOST_OF_A_CHUNK = 32
#: Work-items side by side of the map that lanes go along: two, inside of all others; so many that a
#: line of memory is written whole.
_NEAR = (2, 16)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which structure: ``vector`` is the place in the nest of the map whose iterations are lanes.

    ``items``: tiles of work-items in a group, whose sums outlive chunks; ``apart``: each has
    iterations as far apart as there are work-items, so that neighbours read neighbours. ``local``:
    what a chunk reads in local memory, where work-items have runs of neighbours too.
    ``packed``: operands laid out tile after tile by kernels before; ``whole``: those that lanes
    do not go along, too.
    ``halo``: the memory in which what a whole tile reads is staged, windows' borders with it.
    ``slices``: the steps of a chunk shared out over work-items, whose sums are added up at the end.
    ``registers``: what a step reads for all places of a window in registers, once.
    ``bordered``: what windows read in a border written by a kernel before, with its border.
    ``windows_last``: the places of a window are the innermost steps.
    ``split``: parts of the reduce by other groups, which a kernel behind combines.
    """

    vector: int
    items: bool = False
    apart: bool = False
    local: bool = False
    packed: bool = False
    whole: bool = False
    halo: str = ""
    slices: bool = False
    registers: bool = False
    bordered: bool = False
    windows_last: bool = False
    split: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """The names of a tiled nest's maps, by what they are for."""

    outer: tuple[str, ...]
    items: tuple[str, ...]
    own: tuple[str, ...]
    """A work-item's own, the map of lanes last."""
    along: tuple[int, ...]
    """Of each of these the map of the nest that it is a part of."""


@dataclass(frozen=True, slots=True)
class Border:
    """What is added to a tile's rows before and behind, so that they are whole vectors."""

    front: Value
    wide: str
    vector: str


@dataclass(frozen=True, slots=True)
class _Sums:
    """A nest with its sums: names of its reduces, chunks first, and of the array that each operand
    is read from, packed or not; operands by their places whose tiles have a border."""

    draft: Draft
    tiles: Tiles
    reduces: tuple[str, ...]
    bases: tuple[str, ...]
    borders: Mapping[int, Border]

    @property
    def chunks(self) -> str:
        return self.reduces[0]


class Contractions:
    """Structures of one kernel; what they begin with alike is derived once. ``widths`` are the
    vectors that the device has."""

    def __init__(self, draft: Draft, nest: Nest, widths: Sequence[int]) -> None:
        self._draft = draft
        self._nest = nest
        self._widths = widths
        self._tiled: dict[tuple[int, bool, bool, bool], tuple[Draft, Tiles]] = {}
        self._ready: dict[Choice, tuple[Draft, tuple[str, ...], Mapping[int, Border]]] = {}
        self._summed: dict[Choice, _Sums] = {}
        self._inside: Contractions | None = None
        self._parts: Contractions | None = None

    def of(self, choice: Choice) -> Draft:
        """The structure on the kernel; NotApplicable where a step of it does not apply."""
        if choice.bordered:
            self._inside = self._inside or self._within_borders()
            return self._inside.of(replace(choice, bordered=False))
        if choice.split:
            self._parts = self._parts or self._in_parts()
            return self._parts.of(replace(choice, split=False))
        sums = self._sums(choice)
        draft = sums.draft
        if choice.local:
            draft = _staged(draft, self._nest, sums)
        if len(sums.tiles.items) > 1:
            draft = draft.maybe("nest", sums.tiles.items)
        rest = sums.reduces[-1]
        if choice.items and not choice.apart and not choice.registers:
            # The sums of all of a work-item's tiles are in no registers: those of a chunk are.
            draft = draft.maybe("restart", sums.reduces[1])
        if choice.registers:
            draft, rest = _in_registers(draft, self._nest, sums, choice)
        elif choice.windows_last:
            draft, rest = _windows_as_one(draft, self._nest, sums)
        if choice.local:
            buffers = f"prefetch_{self._nest.kernel}"
            draft = draft.maybe("prefetch", sums.chunks, buffers=buffers)
        draft = draft.maybe("contract", sums.chunks)
        draft = draft.maybe("unroll", rest, switch=f"unroll_{self._nest.kernel}")
        return _narrowed(draft, self._widths, choice)

    def _within_borders(self) -> Contractions:
        """Of the kernel whose windows read arrays that have their border."""
        draft, loop = self._draft, self._nest.loops[-1].name
        bases = [operand.base for operand in self._nest.operands]
        for k, operand in enumerate(self._nest.operands):
            if operand.windows:
                kernel = _free_name(draft, f"{operand.base}_bordered")
                inside = draft.maybe("border", loop, operand.base, kernel, **_use(bases, k))
                if inside is not draft:
                    draft, bases[k] = inside, kernel
        if draft is self._draft:
            raise refusal("border", loop, "no window reads in a border")
        return Contractions(*nest_of(draft, self._nest.kernel), self._widths)

    def _in_parts(self) -> Contractions:
        """Of the kernel that sums up the parts, whose maps are the nest's and one more inside."""
        draft = split_over_groups(self._draft, self._nest)
        return Contractions(*nest_of(draft, f"{self._nest.kernel}_parts"), self._widths)

    def _tiles(self, choice: Choice) -> tuple[Draft, Tiles]:
        key = choice.vector, choice.items, choice.apart, choice.local
        if key not in self._tiled:
            self._tiled[key] = tiled(self._draft, self._nest, choice)
        return self._tiled[key]

    def _read(self, choice: Choice) -> tuple[Draft, tuple[str, ...], Mapping[int, Border]]:
        """The tiles with what they read made ready, the array of each operand, and borders."""
        key = replace(choice, slices=False, windows_last=False)
        if key not in self._ready:
            draft, tiles = self._tiles(choice)
            bases = tuple(operand.base for operand in self._nest.operands)
            if choice.packed:
                draft, bases = _packed(draft, self._nest, choice, tiles)
            if choice.halo:
                draft = halo(draft, self._nest, tiles, choice.halo)
            borders: dict[int, Border] = {}
            if choice.local:
                draft, borders = _dense(draft, self._nest, choice, tiles, bases)
            self._ready[key] = draft, bases, borders
        return self._ready[key]

    def _sums(self, choice: Choice) -> _Sums:
        if choice not in self._summed:
            draft, bases, borders = self._read(choice)
            _, tiles = self._tiles(choice)
            sum_up = summed_in_slices if choice.slices else summed
            last = choice.registers or choice.windows_last
            draft, tiles, reduces = sum_up(draft, self._nest, tiles, last)
            self._summed[choice] = _Sums(draft, tiles, reduces, bases, borders)
        return self._summed[choice]


def summed(
    draft: Draft, nest: Nest, tiles: Tiles, windows_last: bool
) -> tuple[Draft, Tiles, tuple[str, ...]]:
    """Sums of a work-item's tile, chunk after chunk; and the names of the reduces."""
    if nest.epilogue:
        for name in (*reversed(tiles.own), *reversed(tiles.items)):
            draft = draft.then("fission", name)
    for name in reversed(tiles.own):
        draft = draft.then("move_inside", name)
    draft, reduces = _chunked(draft, nest, windows_last)
    chunks = reduces[0]
    for name in reversed(tiles.items):
        draft = draft.then("move_inside", name)
    if not nest.epilogue:
        draft = draft.then("stage_accumulator", chunks)
        draft = _written_in_rows(draft, nest, tiles, [f"{name}_out" for name in tiles.own])
    if tiles.items:
        draft = draft.then("spread", chunks, len(tiles.items))
    if nest.epilogue:
        behind = tuple(f"{name}_out" for name in (*tiles.items, *tiles.own))
        draft = draft.maybe("nest", behind)
    return draft, tiles, reduces


def summed_in_slices(
    draft: Draft, nest: Nest, tiles: Tiles, windows_last: bool
) -> tuple[Draft, Tiles, tuple[str, ...]]:
    """As :func:`summed`, with work-items that have the same tile and take other steps of a chunk
    each; their sums meet in local memory. They are the outermost of the group's work-items.
    """
    if not tiles.items or not nest.associative:
        raise refusal("rfactor", nest.reduce, "sums in parts need work-items and a fold")
    if nest.epilogue:
        for name in reversed(tiles.own):
            draft = draft.then("fission", name)
    for name in reversed(tiles.own):
        draft = draft.then("move_inside", name)
    draft, reduces = _chunked(draft, nest, windows_last, sliced=True)
    chunks = reduces[0]
    draft = draft.then("rfactor", chunks, "1", memory="local").then("flatten_reduces", chunks)
    for name in reversed(tiles.items):
        draft = draft.then("fission", name)
    items = (f"{chunks}_part", *tiles.items)
    draft = draft.then("reorder", items)
    for name in reversed(items):
        draft = draft.then("move_inside", name)
    draft = draft.then("stage_accumulator", chunks).then("spread", chunks, len(items))
    # Neighbours among the work-items, parts outermost, have neighbours of each of their sums.
    part, lanes = len(tiles.items), len(items) + len(tiles.own) - 1
    order = (*range(len(items), lanes), part, *range(part), lanes)
    draft = draft.maybe("layout", f"{chunks}_parts", order)
    if not nest.epilogue:
        draft = draft.then("stage_accumulator", f"{chunks}_sum")
        sums = [f"{chunks}_sum", *(f"{chunks}_sum_{k}" for k in range(1, len(tiles.own)))]
        draft = _written_in_rows(draft, nest, tiles, [f"{name}_out" for name in sums])
    return draft, replace(tiles, items=items), reduces


def _written_in_rows(draft: Draft, nest: Nest, tiles: Tiles, maps: Sequence[str]) -> Draft:
    """The map innermost that goes along the result, of those that write a work-item's sums: then
    neighbours are written together, also where lanes go along something else."""
    mine = [k for k, place in enumerate(tiles.along) if place == nest.written]
    if not mine or mine[-1] == len(maps) - 1:
        return draft
    order = [name for k, name in enumerate(maps) if k not in mine]
    return draft.maybe("reorder", (*order, *(maps[k] for k in mine)))


def tiled(draft: Draft, nest: Nest, choice: Choice) -> tuple[Draft, Tiles]:
    """Maps that reuse something as tiles (of work-items) of a work-item's own iterations."""
    outer: list[str] = []
    tile: list[str] = []
    items: list[str] = []
    own: list[str] = []
    along: list[int] = []
    lanes: list[str] = []
    in_tiles = [k for k in range(len(nest.loops)) if _is_tiled(nest, k, choice)]
    others = [k for k in in_tiles if k != choice.vector]
    near = choice.local and len(in_tiles) > 1
    beside: list[str] = []
    # Innermost first: around a padded map none inside of it can be padded any more.
    for place, loop in reversed([*enumerate(nest.loops)]):
        vector = place == choice.vector
        if place not in in_tiles:
            outer.insert(0, loop.name)
            continue
        size = f"tile_{loop.name}" if choice.items else f"own_{loop.name}"
        draft, around, name = split_in_two(draft, loop.name, size, loop.trip)
        tile.insert(0, around)
        item = ""
        if choice.items and not choice.apart:
            draft, item, name = split_in_two(draft, name, f"own_{loop.name}", 0)
        if vector:
            draft, name, lane = split_in_two(draft, name, f"lanes_{loop.name}", 0)
            lanes.insert(0, lane)
        elif choice.apart and choice.local and place == others[-1]:
            draft, name, run = split_in_two(draft, name, f"run_{loop.name}", 0)
            own.insert(0, run)
            along.insert(0, place)
        if choice.apart:
            draft, name, item = split_in_two(draft, name, f"items_{loop.name}", 0)
        if vector and near:
            # Some of the work-items of one map innermost, the rest outside of all others: those
            # side by side have few numbers of each operand then, and local memory hands each of
            # them to several at once.
            size = f"near_{loop.name}" if nest.written == place else str(_NEAR[0])
            draft, *beside = split_in_two(draft, item, size, 0)
        elif item:
            items.insert(0, item)
        own.insert(0, name)
        along.insert(0, place)
    items = [*beside[:1], *items, *beside[1:]]
    order = (*outer, *tile, *items, *own, *lanes)
    if len(order) > 1:
        draft = draft.then("reorder", order)
    of_lanes = (choice.vector,) * len(lanes)
    return draft, Tiles((*outer, *tile), tuple(items), (*own, *lanes), (*along, *of_lanes))


def _is_tiled(nest: Nest, place: int, choice: Choice) -> bool:
    """Whether a map has tiles: it reuses something, goes over windows, or lanes go along it."""
    shared = all(o.depends(place) for o in nest.operands)
    windows = any(o.steps[place] and o.steps[place][0][0] in o.windows for o in nest.operands)
    return nest.loops[place].trip > 1 and (not shared or windows or place == choice.vector)


def _chunked(
    draft: Draft, nest: Nest, windows_last: bool, sliced: bool = False
) -> tuple[Draft, tuple[str, ...]]:
    """The reduce's dimensions as reduces, and the longest that slides over nothing in chunks.

    The chunks come first; ``sliced``: the slices of a chunk before them; ``windows_last``: the
    other dimensions behind a chunk's steps. Returns the names of the reduces.
    """
    draft, names = split_by_dimensions(draft, nest)
    chosen = nest.longest_plain
    chunk = f"chunk_{nest.kernel}"
    draft = draft.then("split_reduce", names[chosen], chunk)
    around, inside = chained(names[chosen])
    before, rest = names[:chosen], [*names[:chosen], *names[chosen + 1 :]]
    now = [*before, around, inside, *names[chosen + 1 :]]
    first = [around]
    if sliced:
        steps = nest.factors[chosen][1]
        among = tuple(n for n in range(2, MOST_SLICES + 1) if steps % n == 0)
        if not among:
            raise refusal("split_reduce", inside, "no number of slices divides it", str(steps))
        draft = draft.then("split_reduce", inside, f"{chunk}/slices_{nest.kernel}", among=among)
        apart, inside = chained(inside)
        now = [*before, around, apart, inside, *names[chosen + 1 :]]
        first = [apart, around]
    if not nest.associative:
        return draft, tuple(now)
    # Chunks of the outermost dimension stay around all others: these are in order already.
    stay = windows_last or (not sliced and not chosen)
    order = [*first, inside, *rest] if stay else [*first, *rest, inside]
    if order != now:
        draft = draft.then("reorder_reduces", tuple(order))
    return draft, tuple(order)


def _packed(
    draft: Draft, nest: Nest, choice: Choice, tiles: Tiles
) -> tuple[Draft, tuple[str, ...]]:
    """Operands laid out as tiles need them, lanes innermost, and the array that each operand is
    read from then: the constant ones, which are packed before any run; else those that lanes go
    along. An array that is read in two places has a copy for each.

    NotApplicable where there is none that can be.
    """
    before = draft
    loop = tiles.outer[-1]
    bases = [operand.base for operand in nest.operands]
    constants = {o.base for o in nest.operands if not o.windows} & {*draft.program.constants}
    for k, operand in enumerate(nest.operands):
        lanes = operand.depends(choice.vector)
        wanted = operand.base in constants if constants else lanes
        if operand.windows or not (wanted or choice.whole):
            continue
        kernel = _free_name(draft, f"{operand.base}_packed")
        use = _use(bases, k)
        plain = draft.maybe("pack", loop, operand.base, kernel, **use)
        if plain is not draft:
            places = range(len(tiles.own) - 1, -1, -1)[: 1 if lanes else None]
            order = _order_in_lanes(draft, operand.base, tiles, places, **use)
            draft = (
                plain
                if order is None
                else draft.then("pack", loop, operand.base, kernel, order=order, **use)
            )
            bases[k] = kernel
    if draft is before:
        raise refusal("pack", loop, "lanes go along no operand that can be packed")
    return draft, tuple(bases)


def _use(bases: Sequence[str], place: int) -> dict[str, int]:
    """Which of several reads of its array an operand is; nothing where it is the only one."""
    if bases.count(bases[place]) < 2:
        return {}
    return {"use": 1 + bases[:place].count(bases[place])}


def _free_name(draft: Draft, wanted: str) -> str:
    taken = {k.name for k in draft.program.kernels} | {i.name for i in draft.program.inputs}
    names = (wanted, *(f"{wanted}_{k}" for k in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _order_in_lanes(
    draft: Draft, base: str, tiles: Tiles, places: Sequence[int], use: int = 0
) -> tuple[int, ...] | None:
    """The order in which the innermost dimension of a packing is the one that the first of some of
    a work-item's own maps goes along which goes along any; None where it is so anyhow."""
    for place in places:
        rank, along = lanes_of(draft.program, tiles.outer[-1], base, len(tiles.items) + place, use)
        if along is not None:
            plain = along == rank - 1
            return None if plain else (*(k for k in range(rank) if k != along), along)
    return None


def _dense(
    draft: Draft, nest: Nest, choice: Choice, tiles: Tiles, bases: Sequence[str]
) -> tuple[Draft, dict[int, Border]]:
    """What a tile reads of each array as a dense tile: else what is staged of it later repeats
    itself along the maps that it is reused along. And the borders of those that have one."""
    loop, borders = tiles.outer[-1], dict[int, Border]()
    for k, operand in enumerate(nest.operands):
        border = _border(draft, operand, loop) if choice.registers else None
        if border is not None:
            front, wide, vector = border.front, border.wide, border.vector
            wider = draft.maybe("widen", loop, bases[k], front=front, wide=wide, vector=vector)
            if wider is not draft:
                draft, borders[k] = wider, border
                continue
        draft = draft.maybe("overlap", loop, bases[k], **_use(bases, k))
    return draft, borders


def _border(draft: Draft, operand: Operand, loop: str) -> Border | None:
    """Of an operand whose rows windows go along a border with which its tiles are whole vectors:
    one of them before the rows begins where a vector does."""
    if operand.rank - 1 not in operand.windows:
        return None
    try:
        start = start_of(draft.program, loop, operand.base)
    except InputError:
        return None
    if start is None or start > 0:
        return None
    vector = f"copy_{operand.base}"
    times = "" if start == -1 else f"{-start}*"
    front = f"{times}({vector} - 1)" if start else 0
    return Border(front, f"wide_{operand.base}", vector)


def _tile_of(draft: Draft, loop: str, base: str, border: Border | None, **use: int) -> Draft:
    """What a loop reads of a tile as a dense tile, with its border where there is one: what is cut
    of it begins anywhere, not where a vector does."""
    if border is not None:
        wider = draft.maybe("widen", loop, base, front=border.front, wide=border.wide)
        if wider is not draft:
            return wider
    return draft.maybe("overlap", loop, base, **use)


def _staged(draft: Draft, nest: Nest, sums: _Sums) -> Draft:
    """What a chunk reads of each operand in local memory, shared by the group's work-items."""
    chunks = sums.chunks
    for k, operand in enumerate(nest.operands):
        base, use = sums.bases[k], _use(sums.bases, k)
        copy, border = f"copy_{operand.base}", sums.borders.get(k)
        if border is None and copy in {p.name for p in draft.program.parameters}:
            copy = f"{copy}_{k + 1}"
        dense = _tile_of(draft, chunks, base, border, **use)
        try:
            order = _chunk_first(dense, chunks, base, f"chunk_{nest.kernel}", **use)
        except InputError:
            # Read behind the sums alone, as a bias is.
            continue
        turned = {"order": order, "as_read": True} if order else {}
        staged = dense.maybe("stage", chunks, base, "local", vector=copy, **turned, **use)
        if staged is not dense:
            draft = staged
    return draft


def _in_registers(draft: Draft, nest: Nest, sums: _Sums, choice: Choice) -> tuple[Draft, str]:
    """What a chunk's step reads of each operand in registers, for all places of a window, as the
    lanes need it; and the name of that step's reduce."""
    step = sums.reduces[-len(nest.factors)]
    item = sums.tiles.items[-1]
    for k, operand in enumerate(nest.operands):
        base = f"{sums.bases[k]}_local"
        for loop in (item, step):
            draft = _tile_of(draft, loop, base, sums.borders.get(k))
        apart = operand.depends(choice.vector)
        lanes = nest.loops[choice.vector].name if apart else f"{operand.base}_{k + 1}"
        draft = draft.then("stage", step, base, "private", vector=f"lanes_{lanes}", apart=apart)
    return _windows_as_one(draft, nest, sums)[0], step


def _windows_as_one(draft: Draft, nest: Nest, sums: _Sums) -> tuple[Draft, str]:
    """The places of a window, which are the innermost steps, as one reduce; and its name."""
    windows = sums.reduces[len(sums.reduces) + 1 - len(nest.factors) :]
    for _ in windows[1:]:
        draft = draft.then("flatten_reduces", windows[0])
    return draft, windows[0] if windows else sums.reduces[-1]


def _narrowed(draft: Draft, widths: Sequence[int], choice: Choice) -> Draft:
    """Vectors no longer than the device's, borders shorter than they are; and where a whole window
    is in registers, tiles and chunks that leave room for it."""
    most = {"copy_": max(widths), "lanes_": max(widths), "wide_": max(widths) - 1}
    most["near_"] = max(_NEAR)
    if choice.registers:
        most |= {"own_": _MOST_OWN, "chunk_": _MOST_OF_A_CHUNK}
    for parameter in draft.program.parameters:
        bound = next((n for start, n in most.items() if parameter.name.startswith(start)), None)
        if bound is not None:
            kept = tuple(v for v in parameter.values if v <= bound)
            if parameter.name.startswith(("copy_", "lanes_")):
                kept = tuple(v for v in kept if v in widths)
            elif parameter.name.startswith("near_"):
                kept = tuple(v for v in kept if v in _NEAR)
            draft = draft.maybe("narrow", parameter.name, kept)
    return draft


def _chunk_first(draft: Draft, chunks: str, base: str, size: str, use: int = 0) -> tuple[int, ...]:
    """The dimensions of what a chunk reads of an array, with those that the chunk's steps go along
    first: then what neighbours read in a step lies side by side. Empty where they are first."""
    found = carried("sketch", Names(draft.program), draft.program, chunks)
    part = found.parts[one_part("sketch", found, chunks, base, use)]
    lengths, _ = dimensions(part.type)
    along = [k for k, length in enumerate(lengths) if size in length.names()]
    order = (*along, *(k for k in range(len(lengths)) if k not in along))
    return () if order == tuple(range(len(lengths))) else order


def halo(draft: Draft, nest: Nest, tiles: Tiles, memory: str) -> Draft:
    """What a tile reads of the arrays with windows in a memory, once, with its border.

    Overlapped tiling as in "Forma: A DSL for Image Processing Applications to Target GPUs and
    Multi-core CPUs" (GPGPU'15), section 4.
    """
    for operand in nest.operands:
        if operand.windows:
            draft = draft.then("overlap", tiles.outer[-1], operand.base)
            draft = draft.then("stage", tiles.outer[-1], operand.base, memory,
                               vector=f"copy_{operand.base}")  # fmt: skip
    return draft
