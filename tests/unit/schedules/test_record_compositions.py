"""Kernels of earlier records composed from primitives: the same source but for names.

The schedules in ``examples/schedules`` know maps of the high-level convolution; the records' own
programs came from the convolution template, which is gone: their kernels are archived. Names of
maps, reduces and buffers are made the template's before the kernels are printed, since terms of an
index are in the order of their names; names of private registers count the dimensions of a buffer,
and are numbered in both sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.kernels.earlier import EarlierKernel, read_archive
from mapper.ast_model.nodes import Let, Map, MapId, Node, Program, Reduce, Ref
from mapper.ast_model.text_form import parse_expr
from mapper.kernel_gen.generate import Choices, generate
from mapper.programs.high_level import high_level_convolution
from mapper.schedule import ScheduleCode, parse_code
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from mapper.schedules.tree import concrete_maps, rebuilt

SCHEDULES = Path(__file__).resolve().parents[3] / "examples" / "schedules"


def renamed(program: Program, maps: Mapping[str, str], values: Mapping[str, str]) -> Program:
    """The program with other ids of maps, and other names of values and kernels' steps."""

    def change(node: Node) -> Node:
        node = rebuilt(node, change)
        match node:
            case Map() if str(node.id) in maps:
                return replace(node, id=maps[str(node.id)])
            case Reduce():
                return replace(
                    node,
                    parameter=values.get(node.parameter, node.parameter),
                    accumulator=values.get(node.accumulator, node.accumulator),
                )
            case Let() if node.name in values:
                return replace(node, name=values[node.name])
            case Ref(name) if name in values:
                return Ref(values[name])
            case _:
                return node

    kernels = tuple(replace(k, body=change(k.body)) for k in program.kernels)
    return replace(program, kernels=kernels)


def normal(source: str) -> list[str]:
    """Lines of the source without comments, tuning constants and variables that are always 0; how
    often loops go round as numbers."""
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    constants = {name: int(value) for name, value in re.findall(r"(c_\w+) = (\d+)", source)}
    source = re.sub(r"enum \{.*?\};", "", source, flags=re.DOTALL)
    source = re.sub(
        r"(for \(index_t (\w+) = 0; \2 < )(.+?)(; \+\+\2\) \{)",
        lambda m: f"{m[1]}{parse_expr(m[3]).evaluate(constants)}{m[4]}",
        source,
    )
    for zero in set(re.findall(r"const index_t (i_\w+) = 0;", source)):
        source = re.sub(rf"const index_t {zero} = 0;", "", source)
        source = re.sub(rf"\b{zero}\*\d+ \+ | \+ {zero}\b(\*\d+)?", "", source)
    return [line.strip() for line in source.splitlines() if line.strip()]


def kernels_of(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each kernel, by name: the order in which kernels stand may differ."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith("__attribute__"):
            current = []
        if line.startswith("__kernel"):
            found[line] = current
        current.append(line)
    return {name: numbered(lines) for name, lines in found.items()}


def numbered(lines: list[str]) -> list[str]:
    """Private registers and fused indices by number, in order of their first use."""
    numbers: dict[str, str] = {}
    return [
        re.sub(r"\b[pf]_\w+", lambda m: numbers.setdefault(m.group(), f"p{len(numbers)}"), line)
        for line in lines
    ]


def earlier_kernel(device: str, layer: str, variant: str) -> EarlierKernel:
    kernels = (kernel for kernel in read_archive() if kernel.folder == device)
    return next(k for k in kernels if k.record.layer.name == layer and k.record.variant == variant)


BLOCKED_MAPS = {
    "filter_tile_tile": "group", "filter_tile_in_tile": "block", "image": "image",
    "row_tile": "tile_y", "column_tile": "tile_x",
    "padded": "pad_image", "padded_1": "pad_channel", "padded_2": "pad_row",
    "padded_3": "pad_column",
    "packed": "pack_group", "packed_1": "pack_block", "packed_2": "pack_channel",
    "packed_3_packed_4": "pack_tap", "packed_5": "pack_filter",
}  # fmt: skip
THREADS = {
    "filter_in_tile_tile_tile": "mo", "row_in_tile_tile": "y", "column_in_tile_tile": "x",
    "filter_in_tile_tile_in_tile": "mi",
}  # fmt: skip
TILE = {
    "row_in_tile_in_tile": "r", "column_in_tile_in_tile": "p", "filter_in_tile_in_tile_tile": "m",
    "filter_in_tile_in_tile_in_tile": "v",
}  # fmt: skip


def blocked_maps() -> dict[str, str]:
    maps = dict(BLOCKED_MAPS)
    for old, new in (THREADS | TILE).items():
        maps[old] = f"item_{new}" if old in THREADS else new
        maps[f"{old}_zero"], maps[f"{old}_out"] = f"zero_{new}", f"out_{new}"
    return maps


def test_a_blocked_record_of_pocl_is_composed_of_primitives() -> None:
    earlier = earlier_kernel("pocl", "vgg16/7", "blocked")
    record = earlier.record
    schedule = parse_schedule((SCHEDULES / "blocked.schedule").read_text())
    program = derived(high_level_convolution(record.layer), schedule)
    maps = blocked_maps()
    steps = {
        "product_in_tile_tile": "chunk", "product_in_tile_in_tile": "channel",
        "product_tile_tile": "tap",
    }  # fmt: skip
    program = replace(renamed(program, maps, steps), constants=("weights",))
    codes = {k: parse_code(v) for k, v in record.choices["mapping"].items()}
    # The template has a map over one group around images; here images are outermost.
    codes["pad_image"] = codes["pad_group"]
    values = record.choices["parameters"]
    own = {p.name: values[_parameter(p.name)] for p in program.parameters}
    _same(earlier, program, own, {m.id: codes[str(m.id)] for m in concrete_maps(program)})


TILED_MAPS = {
    "filter_tile_tile": "group", "filter_tile_in_tile": "block", "image": "image",
    "row_tile": "tile_y", "column_tile": "tile_x",
    "packed": "pack_group", "packed_1": "pack_block", "packed_2": "pack_channel",
    "packed_3_packed_4": "pack_tap", "packed_5": "pack_filter",
    "image_local": "image_c", "image_local_1": "image_y", "image_local_2": "image_x",
    "image_local_3": "image_v",
    "packed_local": "weight_c", "packed_local_1_packed_local_2": "weight_tap",
    "packed_local_3": "weight_m", "packed_local_4": "weight_v",
    "image_local_private": "patch_y", "image_local_private_1": "patch_x",
    "image_local_private_2": "patch_v",
    "packed_local_private_packed_local_private_1": "tap", "packed_local_private_2": "tap_m",
    "packed_local_private_3": "tap_v",
    "filter_in_tile_tile_tile_out_tile": "out_w", "filter_in_tile_tile_tile_out_in_tile": "out_mo",
    "row_in_tile_tile_out": "out_y", "column_in_tile_tile_out": "out_x",
    "filter_in_tile_tile_in_tile_out": "out_mi",
}  # fmt: skip
SLICE = "product_in_tile_in_tile_tile"


def tiled_maps() -> dict[str, str]:
    maps = dict(TILED_MAPS)
    for old, new in ({f"{SLICE}_part": "k"} | THREADS).items():
        maps[old], maps[f"{old}_zero"] = f"item_{new}", f"zero_{new}"
        maps[f"{old}_out" if new == "k" else f"{old}_out_2"] = f"slice_{new}"
    for old, new in TILE.items():
        maps[old], maps[f"{old}_out"] = new, f"slice_{new}"
        # The sums of a work-item start in a tile of their own, one for all slices in the other.
        maps[f"{SLICE}_neutral" + {"r": "", "p": "_1", "m": "_2", "v": "_3"}[new]] = f"zero_{new}"
    return maps


def test_vgg16_7_of_the_h200_is_composed_of_primitives() -> None:
    earlier = earlier_kernel("h200", "vgg16/7", "tiled-vectors-slices")
    record = earlier.record
    schedule = parse_schedule((SCHEDULES / "tiled-slices.schedule").read_text())
    program = derived(high_level_convolution(record.layer), schedule)
    steps = {
        SLICE: "chunk", f"{SLICE.removesuffix('_tile')}_in_tile": "channel",
        "product_tile_tile": "tap", f"{SLICE}_sum": "slice", "image_local": "next_image",
        "packed_local": "next_packed", f"{SLICE}_parts": "sum",
    }  # fmt: skip
    codes = {k: parse_code(v) for k, v in record.choices["mapping"].items()}
    program = replace(renamed(program, tiled_maps(), steps), constants=("weights",))
    sums = {
        f"{SLICE}_sum": "S", f"{SLICE}_sum_1": "F", f"{SLICE}_sum_2": "F", f"{SLICE}_sum_3": "V2",
        "row_in_tile_in_tile_zero": "S", "column_in_tile_in_tile_zero": "F",
        "filter_in_tile_in_tile_tile_zero": "F", "filter_in_tile_in_tile_in_tile_zero": "V2",
        f"{SLICE}_sum_3_out": "S", f"{SLICE}_sum_2_out": "F", f"{SLICE}_sum_out": "F",
        f"{SLICE}_sum_1_out": "F",
    }  # fmt: skip
    codes |= {name: parse_code(code) for name, code in sums.items()}
    values = record.choices["parameters"]
    own = {p.name: values[_parameter(p.name)] for p in program.parameters}
    _same(earlier, program, own, {m.id: codes[str(m.id)] for m in concrete_maps(program)})


def _parameter(name: str) -> str:
    return {"rho_row": "rho_y", "rho_column": "rho_x"}.get(name, name)


def _same(
    earlier: EarlierKernel,
    program: Program,
    values: Mapping[str, int],
    codes: Mapping[MapId, ScheduleCode],
) -> None:
    sizes = {k: tuple(v) for k, v in earlier.record.choices["local_sizes"].items()}
    new = generate(program, Choices(values, codes, sizes))
    wanted, found = kernels_of(normal(earlier.plan.source)), kernels_of(normal(new.source))
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == wanted[name]
