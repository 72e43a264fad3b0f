"""The shipped layer sets against what their sources publish of the whole networks."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

import nestmap
from mapper.errors import InputError
from mapper.layer_sets import layer_of_name, layer_set_names, load_layer_set, named_layer
from mapper.layer_spec import VGG16, VGG16_UNIQUE

NETWORKS = ("vgg16", "resnet50", "squeezenet1_0", "squeezenet1_1", "googlenet", "mobilenet_v2")


def rows_of(name: str) -> list[dict[str, Any]]:
    text = files("mapper.layer_sets").joinpath(f"{name}.json").read_text()
    return json.loads(text)["layers"]


def weights_of(row: dict[str, Any]) -> int:
    return row["filters"] * (row["channels"] // row["groups"]) * row["kernel"] ** 2


def output_side(row: dict[str, Any]) -> int:
    padded = row["height"] + row["padding"][0] + row["padding"][2]
    return (padded - row["kernel"]) // row["stride"] + 1


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_the_parameters_and_multiply_adds_that_are_published(name: str):
    rows, published = rows_of(name), load_layer_set(name).published
    # Beside its weights a filter has a bias, or a scale and a shift of the normalisation.
    parameters = sum(
        row["count"] * (weights_of(row) + published["per_filter"] * row["filters"]) for row in rows
    )
    multiply_adds = sum(row["count"] * weights_of(row) * output_side(row) ** 2 for row in rows)
    pairs = list(pairwise(published["fully_connected"]))
    parameters += sum(inputs * outputs + outputs for inputs, outputs in pairs)
    multiply_adds += sum(inputs * outputs for inputs, outputs in pairs)
    assert parameters == published["parameters"]
    assert multiply_adds / 1e9 == pytest.approx(published["gmacs"], abs=0.0006)


@pytest.mark.parametrize(
    ("name", "unique", "all_of_them"),
    [
        ("vgg16", 9, 13),
        ("resnet50", 23, 53),
        ("squeezenet1_0", 22, 26),
        ("squeezenet1_1", 18, 26),
        ("googlenet", 49, 57),
        ("mobilenet_v2", 30, 52),
        ("boda", 43, 43),
    ],
)
def test_each_convolution_is_listed_once_with_its_number(name: str, unique: int, all_of_them: int):
    rows = rows_of(name)
    assert len(rows) == unique
    assert sum(row["count"] for row in rows) == all_of_them
    shapes = {
        json.dumps({k: row[k] for k in row if k not in ("name", "count", "where")}) for row in rows
    }
    assert len(shapes) == unique


def test_the_operations_of_boda_have_its_sizes_and_flops():
    for row in rows_of("boda"):
        height, width = row["output"]
        assert (output_side(row), output_side(row)) == (height, width), row["name"]
        flops = 2 * row["batch"] * height * width * weights_of(row)
        # The appendix prints six digits.
        assert flops == pytest.approx(row["flops"], rel=5e-6), row["name"]


def test_the_nine_layers_of_table_3_are_the_named_ones():
    listed = {item.layer.name: item.layer for item in load_layer_set("vgg16").layers}
    assert listed == {name: VGG16[name] for name in VGG16_UNIQUE}


@pytest.mark.parametrize("name", layer_set_names())
def test_every_layer_is_found_by_its_name(name: str):
    for item in load_layer_set(name).layers:
        assert layer_of_name(item.layer.name) == item.layer
        assert nestmap.named_layer(item.layer.name) == item.layer


def test_layers_of_the_network_that_are_equal_keep_their_names_of_table_3():
    assert named_layer("vgg16/14") == VGG16["vgg16/14"]


def test_an_unknown_layer_is_told_the_names_there_are():
    with pytest.raises(InputError, match=r"resnet50/99.*resnet50/1 to resnet50/23"):
        layer_of_name("resnet50/99")
    with pytest.raises(InputError, match="no layer set of this name"):
        load_layer_set("alexnet")
