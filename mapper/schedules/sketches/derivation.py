"""All sketches of a program: each kernel's structures, by what the nest and the device are."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import lt

from mapper.ast_model.nodes import Program
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.schedules.schedule import MAX_SCHEDULE_NAME, Schedule, Use
from mapper.schedules.sketches.analysis import Nest, nest_of, without_views
from mapper.schedules.sketches.contraction import Choice, Contractions
from mapper.schedules.sketches.draft import Draft, Sketch
from mapper.schedules.sketches.plain import over_groups, parts, transposed, vectors
from mapper.schedules.unique import with_named_steps

FEW = 4096
"""Outputs that leave groups idle: parts of the reduce go over groups then."""
TILE = 4096
"""Outputs of a group's tile, about."""
LONG = 64
"""Steps from which it pays to combine parts."""
MAX_LANES = 2
AS_IS = "as-is"
"""The sketch that changes nothing."""
ALL_FIRST = "all-first"
"""Of several kernels, the first structure of each."""
_BY_NUMBER = "structures-"
_DIGITS = string.digits + string.ascii_lowercase
_MOST_KERNELS = 16


@dataclass(frozen=True, slots=True)
class Structure:
    """A way to rewrite one kernel, and why."""

    name: str
    reason: str
    run: Callable[[Draft, Nest, Contractions], Draft]


def each_sketch(program: Program, device: DeviceProfile) -> Iterator[Sketch]:
    """Every structure of each kernel, the others of the program under their first structure.

    A structure that does not apply is left out. The program as it is comes first. One takes up to
    a second, and a program may have many kernels: whoever needs some stops there.
    """
    yield _sketch(AS_IS, "as it is written: every map parallel, nothing kept", Draft(program))
    combinations = Combinations(program, device)
    for choice in combinations.neighbours(combinations.first):
        sketch = combinations.sketch(choice)
        if sketch is not None:
            yield sketch


def sketches_of(program: Program, device: DeviceProfile) -> tuple[Sketch, ...]:
    """All of :func:`each_sketch`."""
    return tuple(each_sketch(program, device))


def possible_names(program: Program, device: DeviceProfile) -> tuple[str, ...] | None:
    """Names of the sketches that a program of one kernel may have, best first, found without
    deriving any: some will not apply, or be another one over again.

    None of several kernels, those that copy views among them: these are combined.
    """
    base = _base(program)
    first, *others = base.program.kernels
    if others:
        return None
    start = _prepared(base, first.name)
    if start is None:
        return ()
    several = enumerate(structures(start[1], device))
    return tuple(_shortened(structure.name, place) for place, structure in several)


def _base(program: Program) -> Draft:
    """What all schedules of a program begin with: named steps and copies of views."""
    base = Draft(with_named_steps(program))
    for kernel in program.kernels:
        base = without_views(base, kernel.name)
    return base


#: Of each kernel that has structures, in order, which of them.
Combination = tuple[int, ...]
#: A structure's name and reason, and what comes of it.
_Done = tuple[str, str, Draft]


class Combinations:
    """A program with one structure for each of its kernels that has any, those that copy its views
    among them.

    ``options`` are those kernels in order with the names of their structures, best first. Drafts
    that begin alike are derived once. Of many kernels the last stay as they are written: to derive
    all takes minutes, and a combination has a name of 64 characters. Of one kernel the structure of
    the name ``only`` alone, where one is wanted.
    """

    def __init__(self, program: Program, device: DeviceProfile, only: str | None = None) -> None:
        self._device = device
        base = _base(program)
        self._several = len(base.program.kernels) > 1
        self._begun: dict[Combination, _Done | None] = {}
        self._base = base
        options: list[tuple[str, tuple[str, ...]]] = []
        self._kernels: list[str] = []
        for kernel in [k.name for k in base.program.kernels][:_MOST_KERNELS]:
            done = list(self._done(base, kernel, None if self._several else only))
            if done:
                before = (0,) * len(self._kernels)
                self._begun |= {(*before, k): one for k, one in enumerate(done)}
                self._kernels.append(kernel)
                options.append((kernel, tuple(name for name, _, _ in done)))
                base = done[0][2]
        self.options = tuple(options)

    @property
    def first(self) -> Combination:
        """The first structure of each kernel."""
        return (0,) * len(self.options)

    def neighbours(self, around: Combination) -> Iterator[Combination]:
        """A combination, then those that differ from it in one kernel."""
        if not around:
            return
        yield around
        for place, (_, names) in enumerate(self.options):
            for other in range(len(names)):
                if other != around[place]:
                    yield (*around[:place], other, *around[place + 1 :])

    def name(self, choice: Combination) -> str:
        """The structures that are not their kernel's first one, by kernel; their numbers where that
        is long."""
        if not self._several:
            return self.options[0][1][choice[0]]
        own = zip(self.options, choice, strict=True)
        name = "+".join(f"{kernel}-{names[k]}" for (kernel, names), k in own if k) or ALL_FIRST
        return name if len(name) <= MAX_SCHEDULE_NAME else _BY_NUMBER + _digits(choice)

    def named(self, name: str) -> Combination | None:
        """The combination of this name, or of these parts in any order; None if there is none."""
        if not self._several:
            own = self.options[0][1] if self.options else ()
            return (own.index(name),) if name in own else None
        if name.startswith(_BY_NUMBER):
            choice = tuple(map(_DIGITS.find, name.removeprefix(_BY_NUMBER)))
            lengths = [len(names) for _, names in self.options]
            fits = len(choice) == len(lengths) and all(map(lt, choice, lengths))
            return choice if fits and min(choice) >= 0 else None
        known = {f"{kernel}-{structure}": (place, k)
                 for place, (kernel, names) in enumerate(self.options)
                 for k, structure in enumerate(names)}  # fmt: skip
        found: dict[int, int] = {}
        for part in () if name == ALL_FIRST else name.split("+"):
            if part not in known or known[part][0] in found:
                return None
            place, k = known[part]
            found[place] = k
        return tuple(found.get(k, 0) for k in range(len(self.options)))

    def sketch(self, choice: Combination) -> Sketch | None:
        """The program under these structures; None where one does not apply after the others."""
        draft, reasons = self._base, list[str]()
        for place, k in enumerate(choice):
            done = self._under(choice[:place], k, draft)
            if done is None:
                return None
            _, reason, draft = done
            if k or not self._several:
                reasons.append(reason)
        name = self.name(choice)
        if name == ALL_FIRST:
            own = (f"{kernel} {names[0]}" for kernel, names in self.options)
            reasons = [f"the first structure of each kernel: {', '.join(own)}"]
        return _sketch(name, "; ".join(reasons), draft)

    def _under(self, before: Combination, k: int, draft: Draft) -> _Done | None:
        """A structure of the kernel behind these; None where it does not apply after them."""
        key = (*before, k)
        if key not in self._begun:
            kernel, names = self._kernels[len(before)], self.options[len(before)][1]
            self._begun[key] = next(self._done(draft, kernel, names[k]), None)
        return self._begun[key]

    def _done(self, draft: Draft, kernel: str, wanted: str | None = None) -> Iterator[_Done]:
        """The structures of a kernel that apply and differ, or the one of this name."""
        start = _prepared(draft, kernel)
        if start is None:
            return
        draft, nest = start
        shared = Contractions(draft, nest, self._device.vector_widths)
        known: set[tuple[Use, ...]] = set()
        for place, structure in enumerate(structures(nest, self._device)):
            name = _shortened(structure.name, place)
            if wanted is not None and name != wanted:
                continue
            try:
                done = structure.run(draft, nest, shared)
            except InputError:
                continue
            if done.uses not in known:
                known.add(done.uses)
                yield name, structure.reason, done


def _shortened(name: str, place: int) -> str:
    """A name that holds a loop's, which may be as long as a schedule's itself."""
    ending = f"~{place}"
    if len(name) <= MAX_SCHEDULE_NAME:
        return name
    return name[: MAX_SCHEDULE_NAME - len(ending)] + ending


def _digits(choice: Combination) -> str:
    return "".join(_DIGITS[k] for k in choice)


def _prepared(draft: Draft, kernel: str) -> tuple[Draft, Nest] | None:
    try:
        return nest_of(draft, kernel)
    except InputError:
        return None


def _sketch(name: str, reason: str, draft: Draft) -> Sketch:
    return Sketch(name, reason, Schedule(name, draft.uses), draft.program)


def structures(nest: Nest, device: DeviceProfile) -> Iterator[Structure]:
    """What is worth trying on a nest, best first."""
    if not nest.loops:
        return
    if not nest.reduce:
        yield from _plain(nest, device)
        return
    if nest.is_contraction or any(o.windows for o in nest.operands):
        yield from _tiled(nest, device)
    if nest.reduced >= LONG:
        yield from _parts(nest, device)
    if not nest.is_contraction:
        for place in lanes_of_nest(nest):
            yield Structure(
                f"lanes-{nest.loops[place].name}",
                f"an accumulator for each lane along {nest.loops[place].name}",
                lambda _d, _n, c, p=place: c.of(Choice(p)),
            )


def lanes_of_nest(nest: Nest) -> list[int]:
    """The maps worth having as lanes: what the result and operands are contiguous along."""
    several = range(len(nest.loops))
    found = [k for k in several if nest.loops[k].trip > 1
             and any(o.rank and o.contiguous(k) for o in nest.operands)]  # fmt: skip
    if nest.written is not None and nest.loops[nest.written].trip > 1:
        return list(dict.fromkeys((nest.written, *reversed(found))))[:MAX_LANES]
    last = next((k for k in reversed(several) if nest.loops[k].trip > 1), len(nest.loops) - 1)
    return list(dict.fromkeys((last, *reversed(found))))[:MAX_LANES]


def packed_lanes(nest: Nest, lanes: list[int]) -> list[int]:
    """The longest other map along which an operand without windows goes: contiguous once packed.

    None where the lanes that are contiguous already go along such an operand.
    """
    plain = [o for o in nest.operands if not o.windows]
    if any(o.depends(k) for o in plain for k in lanes):
        return []
    found = [k for k, loop in enumerate(nest.loops) if loop.trip > 1
             and any(o.depends(k) for o in plain)]  # fmt: skip
    return sorted(found, key=lambda k: -nest.loops[k].trip)[:1]


def _tiled(nest: Nest, device: DeviceProfile) -> Iterator[Structure]:
    windows = any(o.windows for o in nest.operands)
    lanes = lanes_of_nest(nest)
    packed = packed_lanes(nest, lanes) if nest.is_contraction else []
    found: list[tuple[tuple[bool, int], Structure]] = []
    split, near = _splits(nest, device), _stays_near(nest, device)
    for place in (*lanes, *packed):
        along = nest.loops[place].name
        slides = any(o.windows and o.depends(place) for o in nest.operands)
        for kind, (choice, name, reason) in enumerate(_choices(place, device, windows)):
            if not choice.packed and place in packed:
                continue
            if choice.bordered and not choice.packed and nest.is_contraction:
                continue
            if choice.registers and slides:
                # Lanes of a window in registers are shifted from step to step.
                continue
            if choice.packed and not nest.is_contraction:
                continue
            if choice.split and not split:
                continue
            if near and choice.items and not choice.local:
                continue
            structure = Structure(
                f"{name}-{along}",
                f"{reason}; lanes along {along}",
                lambda _d, _n, c, choice=choice: c.of(choice),
            )
            # On a processor the first kind of all lanes, then the second.
            turn = kind if device.is_processor else 0
            found.append(((not choice.registers, turn), structure))
    # What keeps windows in registers is fastest where it applies, and takes longest to be solved.
    first, *others = found
    others.sort(key=lambda one: one[0])
    yield from (structure for _, structure in (first, *others))


def _stays_near(nest: Nest, device: DeviceProfile) -> bool:
    """Whether what a chunk reads is always worth a copy in local memory: of 41 programs on an H200
    those where 64 steps or more are summed took 1.39 times the fastest at least in blocks without
    one (docs/decisions/0026). Fewer steps, as of a depthwise convolution, leave little to share."""
    return nest.is_contraction and nest.reduced >= LONG and device.local_memory == "own"


def _splits(nest: Nest, device: DeviceProfile) -> bool:
    """Whether parts of a reduce over groups may pay: it is long, and results are so few that tiles
    of them leave units of the device idle."""
    few = FEW if device.is_processor else TILE * device.compute_units
    return nest.is_contraction and nest.associative and nest.reduced >= LONG and nest.outputs <= few


def _choices(place: int, device: DeviceProfile, windows: bool) -> Iterator[tuple[Choice, str, str]]:
    own = "each work-item keeps a tile of sums in registers, and reads an operand once for a row"
    items = "tiles of work-items in a group, whose sums outlive the chunks of the reduce"
    packed = "operands laid out in the order in which tiles read them, by kernels before"
    local = "what a chunk reads is copied to local memory once for the group, and prefetched"
    split = "parts of the reduce by other groups, a second kernel combines them"
    if device.is_processor:
        if windows:
            bordered = "what windows read is written with its border by a kernel before"
            last = "a window's places are the innermost steps"
            inside = Choice(place, bordered=True)
            for choice, name, reason in (
                (replace(inside, packed=True), "tile-bordered-packed", f"{own}; {packed}"),
                (
                    replace(inside, packed=True, items=True),
                    "blocks-bordered-packed",
                    f"{items}; {packed}",
                ),
                (inside, "tile-bordered", own),
            ):
                yield choice, name, f"{reason}; {bordered}"
                yield (
                    replace(choice, windows_last=True),
                    f"{name}-windows",
                    f"{reason}; {bordered}; {last}",
                )
        yield Choice(place, packed=True), "tile-packed", f"{own}; {packed}"
        whole = "every operand laid out in the order in which tiles read it, by kernels before"
        yield Choice(place, packed=True, whole=True), "tile-packed-whole", f"{own}; {whole}"
        yield Choice(place), "tile", own
        yield Choice(place, items=True, packed=True), "blocks-packed", f"{items}; {packed}"
        yield Choice(place, items=True), "blocks", f"{items}; nothing is copied"
        yield Choice(place, split=True), "tile-split", f"{split}; {own}"
        if windows:
            reason = f"{own}; windows are read from a dense copy of the tile with its border"
            yield Choice(place, halo="private"), "tile-halo", reason
        return
    apart = Choice(place, items=True, apart=True)
    yield replace(apart, local=True), "blocks-local", f"{items}; {local}"
    yield (
        replace(apart, local=True, packed=True),
        "blocks-local-packed",
        f"{items}; {local}; {packed}",
    )
    sliced = replace(apart, local=True, slices=True)
    slices = "work-items share out the steps of a chunk, too"
    yield sliced, "blocks-sliced", f"{items}; {slices}; {local}"
    yield (
        replace(sliced, packed=True),
        "blocks-sliced-packed",
        f"{items}; {slices}; {local}; {packed}",
    )
    if windows:
        near = Choice(place, items=True, local=True, packed=True, whole=True, registers=True)
        registers = "what a step reads for a whole window is in registers"
        yield near, "blocks-registers", f"{items}; {registers}; {local}; {packed}"
        yield (
            replace(near, slices=True),
            "blocks-registers-sliced",
            f"{items}; {slices}; {registers}; {local}; {packed}",
        )
        yield (
            replace(near, split=True),
            "blocks-registers-split",
            f"{split}; {items}; {registers}; {local}; {packed}",
        )
    parted = replace(apart, local=True, split=True)
    yield parted, "blocks-split", f"{split}; {items}; {local}"
    yield (
        replace(parted, packed=True),
        "blocks-split-packed",
        f"{split}; {items}; {local}; {packed}",
    )
    yield apart, "blocks", f"{items}; the cache serves what they share"
    yield replace(apart, packed=True), "blocks-packed", f"{items}; {packed}"
    yield Choice(place), "tile", own
    if windows:
        reason = f"{items}; a tile with its border is copied to local memory once"
        yield replace(apart, halo="local"), "blocks-halo", reason


def _parts(nest: Nest, device: DeviceProfile) -> Iterator[Structure]:
    if nest.outputs > FEW and _stays_near(nest, device):
        return
    yield Structure(
        "sums-in-lanes",
        "neighbours are summed in neighbouring accumulators, which are added up at the end",
        lambda d, n, _c: parts(d, n, "private", lanes=True),
    )
    if not device.is_processor:
        yield Structure(
            "sums-in-group",
            "work-items of a group reduce parts side by side, combined in local memory",
            lambda d, n, _c: parts(d, n, "local", lanes=False),
        )
    if nest.outputs <= FEW:
        yield Structure(
            "sums-over-groups",
            f"{nest.outputs} outputs leave groups idle: parts of the reduce by other groups, a "
            "second kernel combines them",
            lambda d, n, _c: over_groups(d, n),
        )


def _plain(nest: Nest, device: DeviceProfile) -> Iterator[Structure]:
    first, *others = lanes_of_nest(nest)
    # What does not go along the first (a number for each row) is read once for all lanes.
    turned = [k for k in others if any(o.contiguous(k) and o.depends(first) for o in nest.operands)]
    lanes = [first, *turned]
    if len(lanes) > 1:
        pair = (min(lanes), max(lanes))
        if not device.is_processor:
            yield Structure(
                "transposed-local",
                "arrays are contiguous along different maps: a tile in local memory, padded "
                "against bank conflicts, is read along one and written along the other",
                lambda d, n, _c: transposed(d, n, pair, local=True),
            )
        yield Structure(
            "tiles",
            "arrays are contiguous along different maps: lines of the cache are used whole in a "
            "tile",
            lambda d, n, _c: transposed(d, n, pair, local=False),
        )
    for place in lanes:
        yield Structure(
            f"vectors-{nest.loops[place].name}",
            f"vectors along {nest.loops[place].name}, every group a part of the rest",
            lambda d, n, _c, p=place: vectors(d, n, p),
        )
