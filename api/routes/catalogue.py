"""What ships with nestmap: layer sets, device profiles, variants."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from api.auth import Access
from api.problems import not_found
from api.routing import GuardedRouter
from api.schemas.catalogue import (
    LayerFacts,
    LayerSetDocument,
    LayerSetSummary,
    ProfileDocument,
    VariantDocument,
)
from api.schemas.types import NO_NUL
from mapper.layer_sets import is_layer_name, layer_of_name, layer_set_names, load_layer_set
from mapper.profiles import load_profile, profile_names
from mapper.variants import VARIANTS

routes = GuardedRouter("catalogue")
NamePath = Annotated[str, Path(max_length=200, pattern=NO_NUL)]


@routes.get(
    "/v1/profiles", Access.USER, summary="Device profiles", response_model=list[ProfileDocument]
)
async def list_profiles() -> list[ProfileDocument]:
    """Limits of devices, for solving without the device."""
    return [ProfileDocument.of(load_profile(name)) for name in profile_names()]


@routes.get(
    "/v1/profiles/{name}", Access.USER, summary="A device profile", problems=(404,),
    response_model=ProfileDocument,
)  # fmt: skip
async def get_profile(name: NamePath) -> ProfileDocument:
    """The limits of one device."""
    if name not in profile_names():
        raise not_found("profile", name)
    return ProfileDocument.of(load_profile(name))


@routes.get(
    "/v1/variants", Access.USER, summary="Ways to compute a layer",
    response_model=list[VariantDocument],
)  # fmt: skip
async def list_variants() -> list[VariantDocument]:
    """The programs that a layer can become (docs/layers.md says which does which layer)."""
    return [VariantDocument(name=v.name, description=v.description) for v in VARIANTS.values()]


@routes.get(
    "/v1/layer-sets", Access.USER, summary="Named sets of layers",
    response_model=list[LayerSetSummary],
)  # fmt: skip
async def list_layer_sets() -> list[LayerSetSummary]:
    """Whole networks and published lists."""
    sets = map(load_layer_set, layer_set_names())
    return [LayerSetSummary(name=s.name, title=s.title, layers=len(s.layers)) for s in sets]


@routes.get(
    "/v1/layer-sets/{name}", Access.USER, summary="A set of layers", problems=(404,),
    response_model=LayerSetDocument,
)  # fmt: skip
async def get_layer_set(name: NamePath) -> LayerSetDocument:
    """Every layer of a set, its source, and how often the layer stands in the network."""
    if name not in layer_set_names():
        raise not_found("layer set", name)
    return LayerSetDocument.of(load_layer_set(name))


@routes.get(
    "/v1/layer-sets/{name}/{number}", Access.USER, summary="A named layer", problems=(404,),
    response_model=LayerFacts,
)  # fmt: skip
async def get_named_layer(name: NamePath, number: NamePath) -> LayerFacts:
    """The layer `<set>/<number>`, such as `vgg16/7`."""
    full = f"{name}/{number}"
    if not is_layer_name(full):
        raise not_found("layer", full)
    return LayerFacts.of(layer_of_name(full))
