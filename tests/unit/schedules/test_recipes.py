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
from mapper.constraint_rules.rule import Mode
from mapper.kernel_gen.generate import Choices, generate
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec
from mapper.programs.direct_convolution import direct_convolution
from mapper.programs.high_level import high_level_convolution
from mapper.schedule import parse_code
from mapper.schedules.facts import facts_of
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from mapper.schedules.tree import concrete_maps
from mapper.solver.counting import count_mappings
from mapper.solver.space import build_space
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
