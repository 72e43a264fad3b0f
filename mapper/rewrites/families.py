"""Schedule codes that suit a kind of device, for the maps of blocked convolutions.

A family is a starting point, not a rule: it fixes the codes so that a search has only the
tuning parameters to find; what it yields is checked like any other mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from mapper.ast_model.nest import NestMap
from mapper.ast_model.nodes import MapId
from mapper.schedule import ScheduleCode, parse_code


class Family(StrEnum):
    """Who does what: ``groups`` of cooperating work-items, or ``single`` work-items."""

    GROUPS = "groups"
    SINGLE = "single"


def family_of(facts: Mapping[str, str]) -> Family:
    """The family that suits a device of these facts (``device.kind`` is among them)."""
    return Family.SINGLE if facts.get("device.kind") == "cpu" else Family.GROUPS


#: Beside tuning parameters: work-items of a group, where each makes a tile of its own; or
#: :data:`ROW`, where one alone makes a row of tiles.
LINE = "line"
ROW = 0
_THREADS = ("k", "w", "mo", "y", "x", "mi")
_TILE = ("r", "p", "m", "cell", "v")


def codes_of(
    family: Family,
    maps: Iterable[NestMap],
    values: Mapping[str, int],
    *,
    flat_copy: bool = False,
    vector_pads: bool = True,
) -> dict[MapId, ScheduleCode]:
    """A code for each map of a program that :func:`mapper.rewrites.lowering.program_of` made.

    ``values`` of the tuning parameters: vector codes are as wide as the vectors. With :data:`LINE`
    among them, work-items that work alone stand in groups of so many, or make a row each. With
    ``flat_copy`` all elements of an image tile are shared out among work-items, else those of one
    channel after the other. With ``vector_pads`` a block's channels, which are padded together, are
    a vector where they are as many as one holds: then they have to be neighbours in the image.
    """
    nested = {str(item.id): item for item in maps}
    present = nested.keys()
    parallel = "L0" if family is Family.GROUPS else "S"
    found: dict[str, str] = {}

    def run(owner: str, *ids: str) -> None:
        """The first of these maps that there is gets a code, the others are fused into it.

        What is not perfectly nested in the one before is a loop of its own.
        """
        here = [name for name in ids if name in present]
        for position, name in enumerate(here):
            fused = "F" if nested[name].perfectly_nested else "S"
            found[name] = owner if position == 0 else fused

    def in_order(ids: Iterable[str]) -> tuple[str, ...]:
        """Those of these maps that there are, outermost first."""
        wanted = set(ids)
        return tuple(name for name in nested if name in wanted)

    def vector(map_id: str, width: int, otherwise: str) -> None:
        if map_id in present:
            found[map_id] = f"V{width}" if width > 1 else otherwise

    width = values["v"]
    run("G0", "pack_group", "pack_block", "pack_channel", "pack_tap", "pack_filter")
    run("G0", "column_group", "column_image", "column_channel", "column_row", "column_pixel")
    pads = in_order(("pad_group", "pad_image", "pad_block", "pad_channel", "pad_row", "pad_column"))
    rows = pads.index("pad_row") + 1 if family is Family.SINGLE and pads else len(pads)
    # Who works alone copies a row: what lies together in memory.
    run("G0", *pads[:rows])
    run("S", *pads[rows:])
    innermost = family is Family.SINGLE and pads[-1:] == ("pad_channel",)
    if vector_pads and innermost and nested["pad_channel"].trip.constant == width:
        vector("pad_channel", width, "F")
    run("G0", "sum_n", "sum_gm", "sum_h", "sum_w")
    line = values.get(LINE, 1)
    alone = "G" if line > 1 else "W"
    run(f"{alone}2", "split")
    run(f"{alone}1", "group", "block")
    if line == ROW:
        run(f"{alone}0", "image", "tile_y")
        run("S", "tile_x")
    else:
        run(f"{alone}0", "image", "tile_y", "tile_x")
    for stem in ("zero", "item", "slice", "out"):
        threads = tuple(f"{stem}_{label}" for label in _THREADS)
        tile = in_order(f"{stem}_{label}" for label in _TILE)
        if family is Family.SINGLE:
            run("S", *threads, *tile)
        else:
            run(parallel, *threads)
            run("S", *tile)
    for stem in ("start", "add"):
        run("S", *(f"{stem}_{label}" for label in _TILE))
    if flat_copy:
        run(parallel, "image_c", "image_y", "image_x", "image_v")
    else:
        run("S", "image_c")
        run(parallel, "image_y", "image_x", "image_v")
    run(parallel, "weight_c", "weight_tap", "weight_m", "weight_v")
    run("S", "patch_y", "patch_x", "patch_v")
    run("S", "tap", "tap_m", "tap_v")
    for stem in ("hold", "wait"):
        run("S", *(f"{stem}_{label}" for label in _TILE))
    run("S", "r", "p")
    run("S", "m")
    run("S", "v")
    for stem in ("zero", "weight", "tap", "slice", "start", "add", "hold", "wait"):
        vector(f"{stem}_v", width, "F")
    vector("image_v", values.get("iv", 1), "F")
    vector("v", width, "S")
    vector("patch_v", values.get("pv", 1), "F")
    run("S", "sum_w_total")
    return {item.id: parse_code(found[str(item.id)]) for item in nested.values()}
