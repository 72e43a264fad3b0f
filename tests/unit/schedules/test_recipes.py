"""Published programs as schedules of the high-level convolution (``examples/schedules``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.ast_model.bounded_json import loads_bounded
from mapper.ast_model.builders import said_name
from mapper.ast_model.elaborate import elaborate_symbolic
from mapper.ast_model.index_expr import symbol
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nest import Nest, NestMap, maps_below
from mapper.ast_model.nest_codec import nest_from_json
from mapper.ast_model.nodes import Program
from mapper.constraint_rules.catalogue import derive
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.kernel_gen.generate import Choices, generate
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_from_json, derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.programs.direct_convolution import direct_convolution
from mapper.programs.high_level import high_level_convolution
from mapper.programs.partial_convolution import partial_convolution
from mapper.schedule import parse_code
from mapper.schedules.facts import facts_of
from mapper.schedules.loops import Loop, loops_of
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from mapper.schedules.tree import concrete_maps
from mapper.solver.counting import count_mappings
from mapper.solver.space import build_space, check
from tests.kernels import run_once
from tests.unit.kernel_gen.test_kernel_texts import DIRECT, LAYER
from tests.unit.programs.test_convolution_programs import naive_convolution, random_inputs
from tests.unit.schedules.test_record_compositions import kernels_of, normal
from tests.unit.schedules.test_record_compositions import renamed as with_names

ROOT = Path(__file__).resolve().parents[3]
SMALL = LayerSpec(4, 6, 4, 4, 3, 3, 1, 1, 1, 1, 1)


@cache
def recipe(name: str, layer: LayerSpec) -> Program:
    schedule = parse_schedule((ROOT / "examples" / "schedules" / f"{name}.schedule").read_text())
    return derived(high_level_convolution(layer), schedule)


def nest_of(program: Program) -> Nest:
    (kernel,) = elaborate_symbolic(program, {}).kernels
    return kernel.nest()


def renamed(item: NestMap, names: dict[str, str], sizes: dict) -> NestMap:
    inner = tuple(renamed(one, names, sizes) for one in item.nested)
    trip = item.trip.substitute(sizes)
    return replace(item, id=names.get(str(item.id), str(item.id)), trip=trip, nested=inner)


def published() -> Nest:
    text = (ROOT / "examples" / "cc22_convolution_tree.json").read_text()
    return nest_from_json(loads_bounded(text)).nest


def numbered(nest: Nest) -> Nest:
    """A nest whose maps carry the numbers of the published tree, in the same order."""
    theirs = [str(item.id) for item in maps_below(published().roots)]
    ours = [str(item.id) for item in maps_below(nest.roots)]
    assert len(ours) == len(theirs) == 43
    names = dict(zip(ours, theirs, strict=True))
    return replace(nest, roots=tuple(renamed(root, names, {}) for root in nest.roots))


def shape(item: NestMap) -> tuple[object, ...]:
    return (item.id, item.trip, item.reads, item.writes, item.perfectly_nested,
            tuple(shape(one) for one in item.nested))  # fmt: skip


def test_the_43_maps_of_cc22_come_out_of_the_high_level_convolution() -> None:
    (ours,) = numbered(nest_of(recipe("direct", named_layer("vgg16/7")))).roots
    sizes = {
        "OH": symbol("H") + symbol("rho") + 3 - symbol("kh"),
        "OW": symbol("W") + symbol("rho") + 3 - symbol("kw"),
    }
    (theirs,) = published().roots
    assert shape(ours) == shape(renamed(theirs, {}, sizes))


def test_its_123_constraint_instances_and_41094_mappings_come_out_as_before() -> None:
    nest = nest_of(recipe("direct", named_layer("vgg16/7")))
    bare = replace(numbered(nest), known_buffers=False)
    instances = Counter(c.rule for c in derive(bare, Mode.PAPER))
    assert instances.pop("sequential-fusion") == 25
    assert instances.total() == 123
    count = count_mappings(build_space(bare, Mode.PAPER))
    assert (count.mappings, count.complete) == (41_094, True)


@pytest.mark.parametrize("rho", [0, 1])
def test_the_direct_recipe_is_the_convolution(rho: int) -> None:
    layer = replace(SMALL, height=SMALL.height - rho, width=SMALL.width - rho)
    values = dict(
        rho=rho, kg=4, th=2, tw=2, sk=2, swy=2, swx=1, td=4, wth=1, wtw=3, icd=2, icy=1, icx=1, kc=1
    )
    inputs = random_inputs(layer)
    result = interpret(recipe("direct", layer), values, inputs)
    np.testing.assert_allclose(
        result, naive_convolution(layer, inputs["image"], inputs["weights"]), rtol=1e-10, atol=1e-10
    )


@cache
def direct_choices() -> tuple[Program, Choices]:
    """The recipe with the names of CC'22, and the mapping of the golden kernel of ``direct``."""
    program = recipe("direct", LAYER)
    ours = [str(item.id) for item in maps_below(nest_of(program).roots)]
    theirs = [str(item.id) for item in maps_below(published().roots)]
    steps = {
        "product_tile_tile_tile": "step", "product_tile_tile_in_tile": "tap",
        "product_tile_tile_tile_sum": "part", "product_tile_tile_tile_parts": "partial_sum",
        "image_private": "image_cached", "weights_private": "weights_cached",
    }  # fmt: skip
    bound = [name for kernel in program.kernels for name in facts_of(kernel.body).bound]
    values = {name: steps[said_name(name)] for name in bound if said_name(name) in steps}
    named = with_names(program, dict(zip(ours, theirs, strict=True)), values)
    return named, _choices(named)


def _choices(program: Program) -> Choices:
    point: dict[str, Any] = DIRECT
    codes = {m.id: parse_code(point["mapping"][str(m.id)]) for m in concrete_maps(program)}
    sizes = {name: tuple(size) for name, size in point["local_sizes"].items()}
    return Choices(point["parameters"], codes, sizes)


def test_the_kernel_of_the_direct_recipe_is_that_of_the_written_program() -> None:
    program, choices = direct_choices()
    written = direct_convolution(LAYER)
    found = kernels_of(normal(generate(program, choices).source))
    wanted = kernels_of(normal(generate(written, _choices(written)).source))
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == wanted[name]


@pytest.mark.kernels
def test_the_kernel_of_the_direct_recipe_is_right_on_a_device() -> None:
    program, choices = direct_choices()
    inputs = {name: a.astype(np.float32) for name, a in random_inputs(LAYER).items()}
    found = run_once(generate(program, choices), inputs)
    wanted = interpret(program, dict(choices.parameters), inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def depths(loops: tuple[Loop, ...], depth: int = 0) -> list[tuple[int, str]]:
    """Kinds of loops with their depth; without the copy of inputs in registers (``fetch``)."""
    found: list[tuple[int, str]] = []
    for loop in loops:
        if loop.kind == "buffer" and loop.name == "fetched":
            continue
        found += [(depth, loop.kind), *depths(loop.inner, depth + 1)]
    return found


def test_the_loops_of_gpgpu20_come_out_of_the_high_level_convolution() -> None:
    layer = named_layer("vgg16/7")
    ours, theirs = loops_of(recipe("partial", layer)), loops_of(partial_convolution(layer))
    assert [depths(kernel.loops) for kernel in ours] == [depths(k.loops) for k in theirs]


WINDOW = "row_in_tile_column_in_tile"
#: Tables 1 and 4 of GPGPU'20: theta = th + kh - 1 = 5.
TABLE_4 = {
    "parameters": {"th": 3, "rho": 11, "kappa": 4, "sigma": 3, "omega": 144, "upsilon": 4,
                   "unroll": 0, "coalesce": 1},
    "mapping": {
        "padded": "G1", "padded_1": "G0", "padded_2": "S", "row_tile": "W1", "column_tile": "F",
        "filter_tile": "W0", f"{WINDOW}_tile": "L1", "product_part": "L0",
        f"{WINDOW}_in_tile_zero": "S", "filter_in_tile_zero": "F", f"{WINDOW}_in_tile": "S",
        "filter_in_tile": "S", f"{WINDOW}_in_tile_out_2_tile": "S",
        f"{WINDOW}_in_tile_out_2_in_tile": "F", "filter_in_tile_out_2": "F", "row_tile_out": "W1",
        "column_tile_out": "F", "filter_tile_out": "W0", f"{WINDOW}_tile_out": "L0",
        f"{WINDOW}_in_tile_out": "L1", "filter_in_tile_out": "F", "convolution_copy": "G1",
        "convolution_copy_1": "G0", "convolution_copy_2": "S",
    },
    "local_sizes": {"padded": [5, 5, 1], "partial": [8, 3, 1], "summed": [3, 3, 1],
                    "convolution": [8, 8, 1]},
}  # fmt: skip


def test_the_point_of_table_4_is_valid_in_the_recipe() -> None:
    subject = subject_of_program(recipe("partial", named_layer("vgg16/7")), "partial")
    space = derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())
    assert check(space, assignment_from_json(space, TABLE_4)) == ()


@pytest.mark.parametrize("coalesce", [0, 1])
@pytest.mark.parametrize("rho", [0, 3])
def test_the_partial_recipe_is_the_convolution(rho: int, coalesce: int) -> None:
    layer = LayerSpec(4, 6, 6, 4, 3, 3, 1, 1, 1, 1, 1)
    values = dict(th=3, rho=rho, kappa=2, sigma=3, omega=12, upsilon=4, unroll=0, coalesce=coalesce)
    inputs = random_inputs(layer)
    result = interpret(recipe("partial", layer), values, inputs)
    np.testing.assert_allclose(
        result, naive_convolution(layer, inputs["image"], inputs["weights"]), rtol=1e-10, atol=1e-10
    )


@pytest.mark.kernels
def test_the_kernels_of_table_4_are_right_on_a_device() -> None:
    program = recipe("partial", LAYER)
    point: dict[str, Any] = TABLE_4
    values = point["parameters"] | {"rho": 3, "omega": 24}
    sizes = {"padded": (5, 5, 1), "partial": (3, 3, 1), "summed": (3, 3, 1),
             "convolution": (4, 4, 1)}  # fmt: skip
    codes = {m.id: parse_code(point["mapping"][str(m.id)]) for m in concrete_maps(program)}
    inputs = {name: a.astype(np.float32) for name, a in random_inputs(LAYER).items()}
    found = run_once(generate(program, Choices(values, codes, sizes)), inputs)
    np.testing.assert_allclose(found, interpret(program, values, inputs), rtol=1e-4, atol=1e-4)
