"""Sketches of many programs keep their meaning, for sampled parameters, and are there in time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from bench.proofs.schedules.computations import arrays
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import Store, guards_of, walk
from mapper.ast_model.nodes import Map, Node, Program
from mapper.ast_model.text_form import parse
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import Memory
from mapper.errors import InputError
from mapper.kernel_gen.c_expr import c_condition
from mapper.layer_spec import LayerSpec, Layout
from mapper.profiles import load_profile
from mapper.programs.high_level import high_level_convolution
from mapper.schedules.schedule import derived
from mapper.schedules.sketches.derivation import sketches_of
from mapper.schedules.tree import nodes_of

WINDOWS = "map#swap(s => transpose(s), slide(kh, 1, map#cut(r => slide(kh, 1, r), {})))"
EDGE = "pad(1, 1, 0.0, map#edge(r => pad(1, 1, 0.0, r), {}))"
CONVOLVE = "reduce((acc, q) => fma(q.0, q.1, acc), 0.0, zip(join(join(win)), join(join(one))))"
SUM = "reduce((acc, q) => add(acc, q), 0.0, {})"
PROGRAMS = {
    "product": (
        "M = 8, N = 12, K = 6", "a : [[float]K]M; b : [[float]N]K",
        "product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0, "
        "zip(x, y)), transpose(b))), a)",
    ),
    "odd product": (
        "M = 7, N = 5, K = 9", "a : [[float]K]M; b : [[float]N]K",
        "product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0, "
        "zip(x, y)), transpose(b))), a)",
    ),
    "gram matrix": (
        "M = 16, K = 6", "a : [[float]K]M",
        "gram = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0, "
        "zip(x, y)), a)), a)",
    ),
    "product of a named view": (
        "M = 8, N = 12, K = 6", "a : [[float]K]M; b : [[float]N]K",
        "product = let columns = transpose(b) in map#row(x => join(map#column(y => "
        "reduce((acc, k) => fma(k.0, k.1, acc), 0.0, zip(x, y)), columns)), a)",
    ),
    "transposed convolution": (
        "H = 3, W = 4, C = 2, M = 4, k = 3", "a : [[[float]C]W]H; f : [[[[float]C]k]k]M",
        "convolved = let wide = map#wide(r => pad(k - 1, k - 2, 0.0, join(map#between_columns(one "
        "=> pad(0, 1, 0.0, one), split(1, r)))), a) in let spaced = pad(k - 1, k - 2, 0.0, join("
        "map#between_rows(one => pad(0, 1, 0.0, one), split(1, wide)))) in let turned = "
        "map#turned(g => reorder(reverse, map#turned_row(r => reorder(reverse, r), g)), f) in "
        "map#row(line => map#column(window => join(map#filter(weights => "
        "reduce((acc, v) => fma(v.0, v.1, acc), 0.0, zip(join(join(window)), "
        "join(join(weights)))), turned)), line), map#swap(rows => transpose(rows), "
        "slide(k, 1, map#cut(r => slide(k, 1, r), spaced))))",
    ),
    "long product": (
        "M = 4, N = 6, K = 64", "a : [[float]K]M; b : [[float]N]K",
        "product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0, "
        "zip(x, y)), transpose(b))), a)",
    ),
    "product of bytes": (
        "M = 4, N = 6, K = 16", "a : [[char]K]M; b : [[char]N]K",
        "product = map#row(x => join(map#column(y => reduce((acc, k) => fma(int_of(k.0), "
        "int_of(k.1), acc), 0:int, zip(x, y)), transpose(b))), a)",
    ),
    "row maxima": (
        "M = 6, K = 96", "a : [[short]K]M",
        "largest = join(map#row(x => reduce((acc, q) => max(acc, q), -32768:short, x), a))",
    ),
    "product with relu": (
        "M = 8, N = 6, K = 4", "a : [[float]K]M; b : [[float]N]K",
        "product = map#row(x => join(map#column(y => map#relu(t => max(t, 0.0), reduce((acc, k) => "
        "fma(k.0, k.1, acc), 0.0, zip(x, y))), transpose(b))), a)",
    ),
    "matrix-vector": (
        "M = 6, K = 128", "a : [[float]K]M; b : [float]K",
        "product = join(map#row(x => reduce((acc, k) => fma(k.0, k.1, acc), 0.0, zip(x, b)), a))",
    ),
    "row sums": (
        "M = 6, K = 96", "a : [[float]K]M", f"sums = join(map#row(x => {SUM.format('x')}, a))",
    ),
    "transposition": (
        "M = 6, N = 8", "a : [[float]N]M",
        "moved = transpose(map#row(r => map#column(x => id(x), r), a))",
    ),
    "scaled": (
        "M = 6, N = 8", "a : [[float]N]M", 
        "moved = map#row(r => map#column(x => mul(x, 2.0), r), a)",
    ),
    "scaled rows": (
        "M = 6, N = 8", "a : [[float]N]M; b : [float]M",
        "scaled = map#row(r => map#column(x => mul(x, r.1), r.0), zip(a, b))",
    ),
    "stencil": (
        "H = 7, W = 9, kh = 3", "a : [[float]W]H",
        f"one = map#row(line => join(map#column(win => {SUM.format('join(win)')}, line)), "
        f"{WINDOWS.format(EDGE.format('a'))})",
    ),
    "pool": (
        "R = 3, N = 12, k = 2", "a : [[float]N]R",
        "pool = map#row(r => join(map#cell(win => reduce((acc, q) => max(acc, q), -1000.0, win), "
        "slide(k, k, r))), a)",
    ),
    "tensor contraction": (
        "A = 4, B = 3, C = 2, D = 6, E = 2, F = 4",
        "x : [[[[float]F]B]E]A; y : [[[[float]C]E]D]F",
        "out = map#a(p => map#b(q => transpose(map#d(s => join(map#c(t => reduce((acc, k) => "
        "fma(k.0, k.1, acc), 0.0, zip(join(q), join(t))), transpose(map#l1(v => transpose(v), "
        "transpose(s))))), transpose(y))), transpose(p)), x)",
    ),
    "convolution NHWC": (
        "C = 4, H = 6, W = 5, M = 4, kh = 3", "a : [[[float]C]W]H; f : [[[[float]C]kh]kh]M",
        "convolution = map#row(line => map#column(win => join(map#filter(one => "
        f"{CONVOLVE}, f)), line), {WINDOWS.format(EDGE.format('a'))})",
    ),
    "convolution NCHW": (
        "C = 4, H = 6, W = 5, M = 4, kh = 3", "a : [[[float]W]H]C; f : [[[[float]kh]kh]C]M",
        "convolution = map#filter(one => map#row(line => join(map#column(win => "
        f"{CONVOLVE}, line)), map#o1(v => transpose(v), transpose(map#o2(v => "
        f"{WINDOWS.format('v')}, a)))), f)",
    ),
    "long convolution NHWC with relu": (
        "C = 16, H = 4, W = 5, M = 4, kh = 3", "a : [[[float]C]W]H; f : [[[[float]C]kh]kh]M",
        "convolution = map#row(line => map#column(win => join(map#filter(one => map#relu(t => "
        f"max(t, 0.0), {CONVOLVE}), f)), line), {WINDOWS.format(EDGE.format('a'))})",
    ),
    "long convolution NCHW": (
        "C = 16, H = 4, W = 5, M = 4, kh = 3", "a : [[[float]W]H]C; f : [[[[float]kh]kh]C]M",
        "convolution = map#filter(one => map#row(line => join(map#column(win => "
        f"{CONVOLVE}, line)), map#o1(v => transpose(v), transpose(map#o2(v => "
        f"{WINDOWS.format(EDGE.format('v'))}, a)))), f)",
    ),
    "pointwise NHWC": (
        "C = 4, H = 3, W = 5, M = 6, kh = 1", "a : [[[float]C]W]H; f : [[[[float]C]kh]kh]M",
        "convolution = map#row(line => map#column(win => join(map#filter(one => "
        f"{CONVOLVE}, f)), line), {WINDOWS.format('a')})",
    ),
    "pointwise NCHW": (
        "C = 4, H = 6, W = 3, M = 8, kh = 1", "a : [[[float]W]H]C; f : [[[[float]kh]kh]C]M",
        "convolution = map#filter(one => map#row(line => join(map#column(win => "
        f"{CONVOLVE}, line)), map#o1(v => transpose(v), transpose(map#o2(v => "
        f"{WINDOWS.format('v')}, a)))), f)",
    ),
    "scaled volume": (
        "L = 3, M = 5, N = 7", "a : [[[float]N]M]L; b : [[[float]N]M]L",
        "scaled = map#plane(p => map#row(r => map#column(x => add(x.0, x.1), r), "
        "map#both_rows(q => zip(q.0, q.1), zip(p.0, p.1))), zip(a, b))",
    ),
    "depthwise": (
        "C = 4, H = 6, W = 5, kh = 3", "a : [[[float]W]H]C; f : [[[float]kh]kh]C",
        "depthwise = map#channel(both => map#row(line => join(map#column(win => reduce((acc, q) => "
        "fma(q.0, q.1, acc), 0.0, zip(join(win), join(both.1))), line)), "
        f"{WINDOWS.format('both.0')}), zip(a, f))",
    ),
}  # fmt: skip
DEVICES = ("pocl", "h200")


def program_of(name: str) -> Program:
    sizes, inputs, kernel = PROGRAMS[name]
    lines = [f"size {s}" for s in sizes.split(", ")] + [f"input {i}" for i in inputs.split("; ")]
    return parse('program "p" {\n' + "\n".join(lines) + f"\nkernel {kernel}\n}}")


def maps_of(body: Node) -> list[str]:
    return [str(node.id) for node in nodes_of(body) if isinstance(node, Map)]


def drawn(program: Program, random: Random) -> dict[str, int] | None:
    """Values of the parameters that the program's types and requirements allow."""
    obligations = check_program(program).obligations
    left = {p.name for p in program.parameters}
    budget = [5000]

    def fits(values: dict[str, int], last: str) -> bool:
        for o in obligations:
            names = o.left.names() | o.right.names()
            if last in names and not (names & left) - values.keys():
                try:
                    if not o.holds(dict(program.sizes) | values):
                        return False
                except InputError:
                    return False
        return True

    def deeper(values: dict[str, int], place: int) -> dict[str, int] | None:
        if place == len(program.parameters):
            return values
        own = program.parameters[place]
        for value in random.sample(own.values, len(own.values)):
            budget[0] -= 1
            if budget[0] < 0:
                return None
            longer = values | {own.name: value}
            if fits(longer, own.name):
                found = deeper(longer, place + 1)
                if found is not None:
                    return found
        return None

    return deeper({}, 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_sketches_keep_the_meaning(name: str, device: str) -> None:
    program = program_of(name)
    random = Random(name)
    inputs = arrays(program, random)
    wanted = interpret(program, {}, inputs)
    sketches = sketches_of(program, load_profile(device))
    assert len({s.name for s in sketches}) == len(sketches) > 1
    for sketch in sketches:
        check_program(sketch.program)
        values: dict[str, int] | None = {}
        for _ in range(2):
            values = drawn(sketch.program, random)
            assert values is not None, sketch.name
            found = interpret(sketch.program, values, inputs)
            np.testing.assert_array_equal(found, wanted, f"{sketch.name} {values}")
        elaborate(sketch.program, values or {})


def test_steps_that_are_called_alike_or_by_no_name_are_told_apart() -> None:
    program = parse("""program "p" {
      size M = 4
      size N = 64
      input a : [[float]N]M
      kernel first = join(map#row(r => reduce((acc, v) => add(acc, v), 0.0, r), a))
      kernel second = reduce((acc, v) => add(acc, v), 0.0, first)
    }
    """)
    found = {sketch.name: sketch for sketch in sketches_of(program, load_profile("pocl"))}
    sketch = found["all-first"]
    assert sketch.schedule.uses[0].arguments[0] == ("name", "first_step")
    assert derived(program, sketch.schedule) == sketch.program


def test_sums_in_lanes_step_over_all_accumulators_at_once() -> None:
    found = sketches_of(program_of("row sums"), load_profile("pocl"))
    sketch = next(s for s in found if s.name == "sums-in-lanes")
    values = {"parts_sums": 8, "chunk_sums": 4, "unroll_sums": 1}
    (kernel,) = elaborate(sketch.program, values).kernels
    nests = [
        ["reduce" if loop.map_id is None else str(loop.map_id) for loop in loops]
        for statement, loops in walk(kernel.statements)
        if isinstance(statement, Store)
    ]
    # A row, chunks, steps, and only then the parts: neighbours are read one after the other.
    (inner,) = [nest for nest in nests if nest.count("reduce") == 2]
    assert inner[:4] == ["row", "reduce", "reduce", "q_in_tile_part"]


def test_every_operand_may_be_laid_out_as_tiles_read_it() -> None:
    found = sketches_of(program_of("product"), load_profile("pocl"))
    sketch = next(s for s in found if s.name == "tile-packed-whole-column")
    assert [kernel.name for kernel in sketch.program.kernels] == ["a_packed", "b_packed", "product"]
    values = {"own_row": 4, "own_column": 4, "lanes_column": 2, "chunk_product": 2,
              "unroll_product": 0}  # fmt: skip
    shapes = {
        kernel.name: [str(size) for size in kernel.output.dimensions]
        for kernel in elaborate(sketch.program, values).kernels
    }
    # Tile after tile; in each step after step what it needs, side by side.
    assert shapes["a_packed"][1:] == ["6", "4"]
    assert shapes["b_packed"][1:] == ["6", "4"]


def test_what_windows_read_is_written_with_its_border_before() -> None:
    # Else each step of the sums asks whether its place is inside of the image.
    layer = LayerSpec(4, 6, 8, 8, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    program = high_level_convolution(replace(layer, layout=Layout.NHWC))
    found = {s.name: s for s in sketches_of(program, load_profile("pocl"))}
    bordered = found["tile-bordered-packed-filter"].program
    names = [kernel.name for kernel in bordered.kernels]
    assert names == ["image_bordered", "weights_packed", "convolution"]
    values = {p.name: p.values[0] for p in bordered.parameters}
    asks = {
        kernel.name: any(
            c_condition(guard)
            for statement, _ in walk(kernel.statements)
            if isinstance(statement, Store)
            for guard in guards_of(statement.value)
        )
        for kernel in elaborate(bordered, values).kernels
    }
    assert asks == {"image_bordered": True, "weights_packed": False, "convolution": False}


def test_a_filter_along_one_dimension_has_sketches_of_its_windows() -> None:
    program = parse("""program "blur" { size N = 64 size k = 5 input a : [float]N input f : [float]k
      kernel out = join(map#x(w => reduce((acc, p) => fma(p.0, p.1, acc), 0.0, zip(w, f)),
        slide(k, 1, pad(2, 2, 0.0, a)))) }""")
    on_cores = {s.name: s.program for s in sketches_of(program, load_profile("pocl"))}
    assert [k.name for k in on_cores["tile-bordered-x"].kernels] == ["a_bordered", "out"]
    on_a_gpu = [s.name for s in sketches_of(program, load_profile("h200"))]
    assert {"blocks-local-x", "blocks-sliced-x", "blocks-halo-x"} <= {*on_a_gpu}


def test_structures_of_all_lanes_come_in_turns_on_a_processor() -> None:
    # Few sketches are weighed: with those of one map first, the other's never are.
    layer = LayerSpec(4, 6, 8, 8, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    program = high_level_convolution(replace(layer, layout=Layout.NCHW))
    program = replace(program, constants=("weights",))
    names = [s.name for s in sketches_of(program, load_profile("pocl"))]
    assert names[1:3] == ["tile-bordered-packed-column", "tile-bordered-packed-filter"]


def test_a_chunk_is_summed_in_registers_where_the_sums_of_all_tiles_are_in_memory() -> None:
    found = {s.name: s for s in sketches_of(program_of("product"), load_profile("pocl"))}
    values = {"tile_row": 4, "own_row": 2, "tile_column": 6, "own_column": 2, "lanes_column": 2,
              "chunk_product": 3, "unroll_product": 0}  # fmt: skip
    for name, arrays_of_sums in (("tile-packed-column", 1), ("blocks-packed-column", 2)):
        program = found[name].program
        own = {p.name: values.get(p.name, 0) for p in program.parameters}
        stores = [s for k in elaborate(program, own).kernels for s, _ in walk(k.statements)]
        sums = {s.buffer.name for s in stores
                if isinstance(s, Store) and s.buffer.memory is Memory.PRIVATE}  # fmt: skip
        assert len(sums) == arrays_of_sums, name


def test_the_places_of_a_window_may_be_the_innermost_steps() -> None:
    layer = LayerSpec(4, 6, 8, 8, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    program = high_level_convolution(replace(layer, layout=Layout.NCHW))
    found = {s.name: s for s in sketches_of(program, load_profile("pocl"))}
    sketch = found["tile-bordered-packed-windows-filter"].program
    values = {p.name: p.values[0] for p in sketch.parameters}
    *_, last = elaborate(sketch, values).kernels
    reduces = [
        [str(loop.trip) for loop in loops if loop.map_id is None]
        for statement, loops in walk(last.statements)
        if isinstance(statement, Store)
    ]
    # Chunks of channels, their channels, and the nine places.
    assert max(reduces, key=len)[-1] == "9"


def test_each_use_of_an_array_has_a_packed_copy_of_its_own() -> None:
    found = {s.name: s for s in sketches_of(program_of("gram matrix"), load_profile("pocl"))}
    sketch = found["tile-packed-whole-column"]
    kernels = [kernel.name for kernel in sketch.program.kernels]
    assert kernels == ["a_packed", "a_packed_2", "gram"]
    values = {"own_row": 2, "own_column": 8, "lanes_column": 4, "chunk_gram": 2, "unroll_gram": 0}
    shapes = {
        kernel.name: [str(size) for size in kernel.output.dimensions]
        for kernel in elaborate(sketch.program, values).kernels
    }
    # Tile after tile: rows of two, and columns of two times four lanes.
    assert shapes["a_packed"] == ["8", "6", "2"]
    assert shapes["a_packed_2"] == ["2", "6", "8"]
    one = [k.name for k in found["tile-packed-column"].program.kernels]
    assert one == ["a_packed", "gram"]


def test_both_operands_of_a_gram_matrix_are_staged_on_a_gpu() -> None:
    found = {s.name: s for s in sketches_of(program_of("gram matrix"), load_profile("h200"))}
    uses = found["blocks-local-column"].schedule.uses
    assert [use.primitive for use in uses].count("stage") == 2


def test_steps_of_a_chunk_are_shared_out_over_some_work_items() -> None:
    found = {s.name: s for s in sketches_of(program_of("long product"), load_profile("h200"))}
    sketch = found["blocks-sliced-column"]
    slices = next(p for p in sketch.program.parameters if p.name == "slices_product")
    assert slices.values == (2, 4, 8, 16)
    values = {"tile_row": 2, "items_row": 1, "run_row": 1, "tile_column": 6, "lanes_column": 1,
              "items_column": 3, "chunk_product": 16, "slices_product": 4, "copy_a": 1,
              "copy_b": 1, "prefetch_product": 1, "unroll_product": 0}  # fmt: skip
    (kernel,) = elaborate(sketch.program, values).kernels
    lengths = {
        str(loop.map_id): str(loop.trip)
        for _, loops in walk(kernel.statements)
        for loop in loops
        if loop.map_id is not None
    }
    assert lengths["k_in_tile_tile_part"] == "4"
    assert len({name for name in found if name.startswith("blocks-sliced")}) >= 2


@pytest.mark.parametrize("name", ["long convolution NCHW", "long convolution NHWC with relu"])
def test_parts_of_a_reduce_go_over_groups_and_windows_stay_whole(name: str) -> None:
    found = {s.name: s for s in sketches_of(program_of(name), load_profile("h200"))}
    split = [sketch for sketch in found.values() if "-split-" in sketch.name]
    assert split
    for sketch in split:
        *_, parts, total = sketch.program.kernels
        assert (parts.name, total.name) == ("convolution_parts", "convolution")
        sizes = {p.name: p.values for p in sketch.program.parameters}
        # Channels alone, at least two parts.
        assert sizes["part_convolution"] == (1, 2, 4, 8)
        assert any(u.primitive == "stage" for u in sketch.schedule.uses)


@pytest.mark.parametrize(("channels", "local_memory", "others"), [
    (16, "own", False), (4, "own", True), (16, "ordinary", True), (16, "", True),
])  # fmt: skip
def test_long_sums_are_of_what_is_copied_to_local_memory(
    channels: int, local_memory: str, others: bool
) -> None:
    # 36 or 144 steps, and more results than few.
    layer = LayerSpec(channels, 24, 24, 16, 3, 3, 1, 1, 1, 1, 1, layout=Layout.NCHW)
    device = replace(load_profile("h200"), local_memory=local_memory)
    names = {s.name for s in sketches_of(high_level_convolution(layer), device)}
    assert {"blocks-local-column", "blocks-sliced-column", "tile-column"} <= names
    assert ({"blocks-column", "blocks-halo-column"} <= names) == others
    long = channels == 16
    assert any(name.startswith("sums-in") for name in names) == (long and others)


def test_no_parts_over_groups_where_tiles_keep_a_device_busy() -> None:
    large = LayerSpec(64, 512, 512, 64, 3, 3, 1, 1, 1, 1, 1, layout=Layout.NCHW)
    names = [s.name for s in sketches_of(high_level_convolution(large), load_profile("h200"))]
    assert names and not any("split" in name for name in names)


def test_tiles_of_windows_along_rows_are_whole_vectors_with_a_border() -> None:
    rows_last = LayerSpec(8, 8, 8, 8, 3, 3, 1, 1, 1, 1, 1, layout=Layout.NCHW)
    program = replace(high_level_convolution(rows_last), constants=("weights",))
    found = {s.name: s for s in sketches_of(program, load_profile("h200"))}
    sketch = found["blocks-registers-filter"]
    widened = [dict(u.arguments) for u in sketch.schedule.uses if u.primitive == "widen"]
    # Of the group's tile, of a chunk, of a work-item, and of a step.
    assert len(widened) == 4
    # The border begins one place before a row, and with it a vector.
    assert {one["front"] for one in widened} == {"(copy_image - 1)"}
    assert {p.name: p.values for p in sketch.program.parameters}["wide_image"] == (0, 1, 2, 3)
    channels_last = sketches_of(program_of("convolution NHWC"), load_profile("h200"))
    assert not any(u.primitive == "widen" for s in channels_last for u in s.schedule.uses)


def test_no_size_of_a_gpus_vectors_is_longer_than_they_are() -> None:
    device = load_profile("h200")
    for sketch in sketches_of(program_of("convolution NCHW"), device):
        for parameter in sketch.program.parameters:
            if sketch.name.startswith("blocks-") and parameter.name.startswith(("copy_", "lanes_")):
                assert set(parameter.values) <= {*device.vector_widths}


def test_maps_that_go_through_all_arrays_row_after_row_are_one() -> None:
    def along(name: str) -> set[str]:
        found = sketches_of(program_of(name), load_profile("h200"))
        return {name for s in found for k in s.program.kernels for name in maps_of(k.body)}

    assert "plane_row_column_tile" in along("scaled volume")
    assert any(name.startswith("row_column_tile") for name in along("pointwise NHWC"))
    # A window is around each pixel here, and here each map goes along an array of its own.
    assert not any(name.startswith("row_column") for name in along("convolution NHWC"))
    assert not any(name.startswith("row_column") for name in along("product"))


def test_a_number_for_each_row_is_no_reason_to_turn_tiles() -> None:
    for device in DEVICES:
        names = {s.name for s in sketches_of(program_of("scaled rows"), load_profile(device))}
        assert names == {"as-is", "vectors-column"}
        turned = {s.name for s in sketches_of(program_of("transposition"), load_profile(device))}
        assert "tiles" in turned


def test_what_is_constant_is_packed_and_nothing_else_then() -> None:
    program = replace(program_of("product"), constants=("a",))
    found = {s.name: s for s in sketches_of(program, load_profile("h200"))}
    packed = found["blocks-local-packed-column"].program
    assert [kernel.name for kernel in packed.kernels] == ["a_packed", "product"]
    before = {s.name: s for s in sketches_of(program_of("product"), load_profile("h200"))}
    packed = before["blocks-local-packed-column"].program
    assert [kernel.name for kernel in packed.kernels] == ["b_packed", "product"]


def test_no_number_of_slices_for_a_prime_number_of_steps() -> None:
    program = parse("""program "p" {
      size M = 8
      size N = 8
      size K = 37
      input a : [[float]K]M
      input b : [[float]N]K
      kernel product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc),
        0.0, zip(x, y)), transpose(b))), a)
    }
    """)
    names = [s.name for s in sketches_of(program, load_profile("h200"))]
    assert "blocks-local-column" in names
    assert not [name for name in names if "sliced" in name]


def test_zeros_between_pixels_are_written_first_so_that_what_reads_them_is_tiled() -> None:
    found = {
        s.name: s for s in sketches_of(program_of("transposed convolution"), load_profile("pocl"))
    }
    sketch = found["all-first"]
    assert sketch.schedule.uses[0].primitive == "copy_views"
    kernels = [kernel.name for kernel in sketch.program.kernels]
    assert kernels == ["spaced", "turned", "turned_packed", "convolved"]


def test_views_that_maps_can_be_tiled_through_are_put_in() -> None:
    found = {
        s.name: s for s in sketches_of(program_of("product of a named view"), load_profile("pocl"))
    }
    sketch = found["tile-column"]
    assert sketch.schedule.uses[0].primitive == "inline"
    assert [kernel.name for kernel in sketch.program.kernels] == ["product"]
