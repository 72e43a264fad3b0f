"""All sketches of a program: each kernel's structures, by what the nest and the device are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mapper.ast_model.nodes import Program
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.schedules.schedule import MAX_SCHEDULE_NAME, Schedule, Use
from mapper.schedules.sketches.analysis import Nest, nest_of
from mapper.schedules.sketches.contraction import Choice, Contractions
from mapper.schedules.sketches.draft import Draft, Sketch
from mapper.schedules.sketches.plain import over_groups, parts, transposed, vectors
from mapper.schedules.unique import with_named_steps

FEW = 4096
"""Outputs that leave groups idle: parts of the reduce go over groups then."""
LONG = 64
"""Steps from which it pays to combine parts."""
MAX_LANES = 2
AS_IS = "as-is"
"""The sketch that changes nothing."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A way to rewrite one kernel, and why."""

    name: str
    reason: str
    run: Callable[[Draft, Nest, Contractions], Draft]


def each_sketch(program: Program, device: DeviceProfile) -> Iterator[Sketch]:
    """Every structure of each kernel, the others of the program as their first structure has them.

    A structure that does not apply is left out. The program as it is comes first. One takes up to
    a second, and a program may have many kernels: whoever needs some stops there.
    """
    yield _sketch(AS_IS, "as it is written: every map parallel, nothing kept", Draft(program))
    number = 0
    # As a schedule begins, too.
    base = Draft(with_named_steps(program))
    names = [k.name for k in program.kernels]
    for kernel in names:
        start = _prepared(base, kernel)
        if start is None:
            continue
        draft, nest = start
        first: Draft | None = None
        known: set[tuple[Use, ...]] = set()
        shared = Contractions(draft, nest)
        for structure in structures(nest, device):
            try:
                done = structure.run(draft, nest, shared)
            except InputError:
                continue
            if done.uses in known:
                continue
            known.add(done.uses)
            first = first or done
            label = structure.name if len(names) == 1 else f"{kernel}-{structure.name}"
            number += 1
            if len(label) > MAX_SCHEDULE_NAME:
                ending = f"~{number}"
                label = label[: MAX_SCHEDULE_NAME - len(ending)] + ending
            yield _sketch(label, structure.reason, done)
        base = first or base


def sketches_of(program: Program, device: DeviceProfile) -> tuple[Sketch, ...]:
    """All of :func:`each_sketch`."""
    return tuple(each_sketch(program, device))


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
    for place in (*lanes, *packed):
        along = nest.loops[place].name
        for choice, name, reason in _choices(place, device, windows):
            if not choice.packed and place in packed:
                continue
            if choice.packed and not nest.is_contraction:
                continue
            yield Structure(
                f"{name}-{along}",
                f"{reason}; lanes along {along}",
                lambda _d, _n, c, choice=choice: c.of(choice),
            )


def _choices(place: int, device: DeviceProfile, windows: bool) -> Iterator[tuple[Choice, str, str]]:
    own = "each work-item keeps a tile of sums in registers, and reads an operand once for a row"
    items = "tiles of work-items in a group, whose sums outlive the chunks of the reduce"
    packed = "operands laid out in the order in which tiles read them, by kernels before"
    local = "what a chunk reads is copied to local memory once for the group, and prefetched"
    if device.is_processor:
        yield Choice(place, packed=True), "tile-packed", f"{own}; {packed}"
        whole = "every operand laid out in the order in which tiles read it, by kernels before"
        yield Choice(place, packed=True, whole=True), "tile-packed-whole", f"{own}; {whole}"
        yield Choice(place), "tile", own
        yield Choice(place, items=True, packed=True), "blocks-packed", f"{items}; {packed}"
        yield Choice(place, items=True), "blocks", f"{items}; nothing is copied"
        if windows:
            reason = f"{own}; windows are read from a dense copy of the tile with its border"
            yield Choice(place, halo="private"), "tile-halo", reason
        return
    yield Choice(place, items=True, local=True), "blocks-local", f"{items}; {local}"
    yield (
        Choice(place, items=True, local=True, packed=True),
        "blocks-local-packed",
        f"{items}; {local}; {packed}",
    )
    yield Choice(place, items=True), "blocks", f"{items}; the cache serves what they share"
    yield Choice(place, items=True, packed=True), "blocks-packed", f"{items}; {packed}"
    yield Choice(place), "tile", own
    if windows:
        reason = f"{items}; a tile with its border is copied to local memory once"
        yield Choice(place, items=True, halo="local"), "blocks-halo", reason


def _parts(nest: Nest, device: DeviceProfile) -> Iterator[Structure]:
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
    outputs = 1
    for loop in nest.loops:
        outputs *= loop.trip
    if outputs <= FEW:
        yield Structure(
            "sums-over-groups",
            f"{outputs} outputs leave groups idle: parts of the reduce by other groups, a second "
            "kernel combines them",
            lambda d, n, _c: over_groups(d, n),
        )
        if nest.is_contraction:
            yield Structure(
                "sums-over-groups-tiled",
                f"{outputs} outputs leave groups idle: parts of the reduce by other groups, each "
                "part in tiles",
                lambda d, n, _c: _parts_tiled(d, n, device),
            )


def _parts_tiled(draft: Draft, nest: Nest, device: DeviceProfile) -> Draft:
    draft, parts_nest = nest_of(over_groups(draft, nest), f"{nest.kernel}_parts")
    group = not device.is_processor
    choice = Choice(lanes_of_nest(parts_nest)[0], items=group, local=group)
    return Contractions(draft, parts_nest).of(choice)


def _plain(nest: Nest, device: DeviceProfile) -> Iterator[Structure]:
    lanes = lanes_of_nest(nest)
    if len(nest.loops) > 1 and len(lanes) > 1:
        pair = (min(lanes[:2]), max(lanes[:2]))
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
