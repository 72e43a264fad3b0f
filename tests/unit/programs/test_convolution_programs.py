"""The three convolution programs compute the convolution; the CC'22 nest is the published one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mapper.ast_model.bounded_json import loads_bounded
from mapper.ast_model.elaborate import elaborate_symbolic
from mapper.ast_model.index_expr import Expr, symbol
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nest import NestMap
from mapper.ast_model.nest_codec import nest_from_json
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec
from mapper.programs.direct_convolution import direct_convolution
from mapper.programs.high_level import high_level_convolution
from mapper.programs.partial_convolution import partial_convolution

EXAMPLE = Path(__file__).parents[3] / "examples" / "cc22_convolution_tree.json"


def naive_convolution(layer: LayerSpec, image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """An independent reference: loops over kernel positions, float64."""
    padded = np.pad(
        image.astype(np.float64),
        ((layer.pad_top, layer.pad_bottom), (layer.pad_left, layer.pad_right), (0, 0)),
    )
    rows, columns, s = layer.output_height, layer.output_width, layer.stride
    out = np.zeros((rows, columns, layer.filters))
    for y in range(layer.kernel_height):
        for x in range(layer.kernel_width):
            patch = padded[y : y + rows * s : s, x : x + columns * s : s][:rows, :columns]
            out += patch @ weights[:, y, x].astype(np.float64).T
    return out


def random_inputs(layer: LayerSpec) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "image": rng.standard_normal((layer.height, layer.width, layer.channels)),
        "weights": rng.standard_normal(
            (layer.filters, layer.kernel_height, layer.kernel_width, layer.channels)
        ),
    }


def shape(item: NestMap, values: dict[str, Expr]) -> tuple[object, ...]:
    return (
        str(item.id),
        item.trip.substitute(values),
        frozenset(item.reads),
        item.writes,
        item.perfectly_nested,
        tuple(shape(inner, values) for inner in item.nested),
    )


def test_the_nest_is_exactly_the_published_tree() -> None:
    program = direct_convolution(named_layer("vgg16/7"))
    (kernel,) = elaborate_symbolic(program, {}).kernels
    (root,) = kernel.nest().roots
    published = nest_from_json(loads_bounded(EXAMPLE.read_text())).nest
    # OH and OW of the published tree are the padded sizes, which this program derives.
    sizes = {
        "OH": symbol("H") + symbol("rho") + 3 - symbol("kh"),
        "OW": symbol("W") + symbol("rho") + 3 - symbol("kw"),
    }
    assert shape(root, {}) == shape(published.roots[0], sizes)


LAYERS = [
    LayerSpec(4, 6, 7, 4, 3, 3, 1, 1, 1, 1, 1),
    LayerSpec(3, 5, 6, 2, 2, 3, 1, 0, 1, 1, 0),
    LayerSpec(2, 9, 9, 3, 3, 3, 2, 1, 1, 1, 1),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_high_level_program_is_the_convolution(layer: LayerSpec) -> None:
    inputs = random_inputs(layer)
    result = interpret(high_level_convolution(layer), {}, inputs)
    np.testing.assert_allclose(
        result, naive_convolution(layer, inputs["image"], inputs["weights"]), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("rho", [0, 2])
def test_the_direct_program_is_the_convolution(rho: int) -> None:
    layer = LayerSpec(4, 6, 4, 4, 3, 3, 1, 1, 1, 1, 1)
    values = dict(
        rho=rho, kg=4, th=2, tw=2, sk=2, swy=2, swx=1, td=4, wth=1, wtw=3, icd=2, icy=1, icx=1, kc=1
    )
    inputs = random_inputs(layer)
    result = interpret(direct_convolution(layer), values, inputs)
    np.testing.assert_allclose(
        result, naive_convolution(layer, inputs["image"], inputs["weights"]), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(
    ("layer", "changes"),
    [
        (LAYERS[0], {"theta": 5, "rho": 2}),
        (LAYERS[0], {"theta": 4, "rho": 1, "sigma": 2}),
        (LAYERS[2], {"theta": 3, "rho": 0, "kappa": 3, "sigma": 1, "omega": 9, "upsilon": 1}),
        (LAYERS[0], {"coalesce": 0, "theta": 3, "rho": 0, "sigma": 1}),
    ],
    ids=str,
)
def test_the_partial_pipeline_is_the_convolution(layer: LayerSpec, changes: dict[str, int]) -> None:
    values = (
        dict(theta=5, rho=0, kappa=2, sigma=3, omega=12, upsilon=4, unroll=0, coalesce=1) | changes
    )
    if layer is LAYERS[0]:
        # One padding serves rows and columns, so both must miss the tiles by as much.
        layer = replace(layer, height=7)
    inputs = random_inputs(layer)
    result = interpret(partial_convolution(layer), values, inputs)
    np.testing.assert_allclose(
        result, naive_convolution(layer, inputs["image"], inputs["weights"]), rtol=1e-10, atol=1e-10
    )
