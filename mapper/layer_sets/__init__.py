"""Sets of convolution layers to measure, as data: whole networks and published lists.

Each file states its source and, for a network, what is published of it (parameters,
multiply-adds), which tests hold the layers against. A network's layers are its unique
convolutions; ``count`` says how often each stands in it. Layers are named ``<set>/<n>`` and
are convolutions alone: fp32, no bias, no activation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mapper.errors import InputError, Problem
from mapper.layer_spec import VGG16, LayerSpec

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class ListedLayer:
    """A layer of a set: ``count`` is how often it stands in the network, ``where`` first."""

    layer: LayerSpec
    count: int
    where: str


@dataclass(frozen=True, slots=True)
class LayerSet:
    """A named list of layers with its source; ``published`` holds figures of that source."""

    name: str
    title: str
    source: str
    published: dict[str, Any]
    layers: tuple[ListedLayer, ...]


@cache
def layer_set_names() -> tuple[str, ...]:
    """The sets that :func:`load_layer_set` knows, sorted."""
    names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


@cache
def load_layer_set(name: str) -> LayerSet:
    """A set by name; InputError lists the names."""
    if name not in layer_set_names():
        raise InputError(
            Problem("layers", "no layer set of this name", repr(name), ", ".join(layer_set_names()))
        )
    value = _document(name)
    rows: list[dict[str, Any]] = value["layers"]
    return LayerSet(
        name,
        value["title"],
        value["source"],
        value["published"],
        tuple(ListedLayer(_layer(row), row["count"], row.get("where", "")) for row in rows),
    )


def layer_of_name(name: str) -> LayerSpec:
    """A layer by name, such as ``resnet50/3`` or ``vgg16/14``, which has the sizes of
    ``vgg16/12``; InputError says which names there are."""
    found = _listed(name) or VGG16.get(name)
    if found is None:
        raise InputError(Problem("layer", "no layer of this name", repr(name), names_in_short()))
    return found


#: What :mod:`nestmap` calls it.
named_layer = layer_of_name


def is_layer_name(name: str) -> bool:
    """Whether :func:`layer_of_name` knows it."""
    return name in VGG16 or _listed(name) is not None


@cache
def layer_names() -> tuple[str, ...]:
    """Every name that :func:`layer_of_name` knows, set by set."""
    return tuple(name for set_name in layer_set_names() for name in _names(set_name))


def names_in_short() -> str:
    """Every name, as ranges where numbers follow each other."""
    return ", ".join(
        f"{names[0]} to {names[-1]}" if _follow_each_other(names) else ", ".join(names)
        for names in (_names(set_name) for set_name in layer_set_names())
    )


def _names(set_name: str) -> list[str]:
    # A set has each configuration once; the other layers of VGG-16 have names as well.
    if set_name == "vgg16":
        return list(VGG16)
    return [row["name"] for row in _document(set_name)["layers"]]


def _follow_each_other(names: list[str]) -> bool:
    numbers = [int(name.rpartition("/")[2]) for name in names]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _listed(name: str) -> LayerSpec | None:
    first = name.partition("/")[0]
    if first not in layer_set_names():
        return None
    rows: list[dict[str, Any]] = _document(first)["layers"]
    return next((_layer(row) for row in rows if row["name"] == name), None)


@cache
def _document(name: str) -> dict[str, Any]:
    text = files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    return json.loads(text)


def _layer(row: dict[str, Any]) -> LayerSpec:
    top, left, bottom, right = row["padding"]
    # Whatever is usual is left to the layer's defaults.
    rarer = {key: row[key] for key in ("batch", "groups") if row[key] != 1}
    return LayerSpec.from_json(
        {
            "channels": row["channels"],
            "height": row["height"],
            "width": row["width"],
            "filters": row["filters"],
            "kernel_height": row["kernel"],
            "kernel_width": row["kernel"],
            "stride": row["stride"],
            "pad_top": top,
            "pad_left": left,
            "pad_bottom": bottom,
            "pad_right": right,
            "name": row["name"],
            **rarer,
        }
    )
