"""``/networks``: whole networks, layer by layer, and the layers that somebody has stored."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from api.dashboard.page_routes import PageRouter
from api.dashboard.rendering import render
from api.dashboard.views.networks import (
    LayerFront,
    in_reading_order,
    layer_key,
    measured_layers,
    merged_front,
    runs_by_layer,
    sum_of,
)
from api.problems import not_found
from api.services import ServicesOf
from db.farm.farm import Farm
from db.farm.run_records import Run
from db.farm.selection import Selection
from mapper.layer_sets import LayerSet, layer_set_names, load_layer_set
from mapper.layer_spec import LAYER_SCHEMA, LayerSpec

#: Runs that are looked through for layers, and stored layers that are listed.
RUNS_LOOKED_AT = 1_000
LAYERS_SHOWN = 100
#: Of one layer, the newest ones.
RUNS_MERGED = 16
SetPath = Annotated[str, Path(max_length=64)]
_Runs = dict[str, tuple[Run, ...]]

routes = PageRouter()


@routes.get("/networks")
async def show_networks(request: Request, services: ServicesOf) -> Response:
    """Shipped networks, stored layers with their fronts, and what is to come."""
    sets = [load_layer_set(name) for name in layer_set_names()]
    runs, stored = await services.database(_look, services.farm)
    return render(
        request,
        "networks.html",
        sets=[(found, measured_layers(found, runs)) for found in sets],
        stored=stored,
        most=LAYERS_SHOWN,
    )


@routes.get("/networks/{name}")
async def show_network(name: SetPath, request: Request, services: ServicesOf) -> Response:
    """One network: each layer with its front, and their sum."""
    if name not in layer_set_names():
        raise not_found("network", name)
    found = load_layer_set(name)
    layers = await services.database(_layers, services.farm, found)
    return render(request, "network.html", network=found, layers=layers, sum=sum_of(layers))


def _look(farm: Farm) -> tuple[_Runs, list[LayerFront]]:
    runs = runs_by_layer(farm.runs.page(limit=RUNS_LOOKED_AT))
    stored: list[LayerFront] = []
    for document in farm.catalogue.documents((LAYER_SCHEMA,), limit=LAYERS_SHOWN):
        layer = LayerSpec.from_json(json.loads(document.json_text))
        stored.append(_row(farm, runs, layer.name, f"/layers/{document.hash}", layer, 1))
    return runs, sorted(stored, key=lambda row: in_reading_order(row.name))


def _layers(farm: Farm, network: LayerSet) -> list[LayerFront]:
    runs = runs_by_layer(farm.runs.page(limit=RUNS_LOOKED_AT))
    return [
        _row(farm, runs, row.layer.name, f"/layers/{row.layer.name}", row.layer, row.count)
        for row in network.layers
    ]


def _row(farm: Farm, runs: _Runs, name: str, path: str, layer: LayerSpec, count: int) -> LayerFront:
    own = runs.get(layer_key(layer), ())[:RUNS_MERGED]
    front = merged_front(farm.fronts.front(Selection(run_id=run.id)) for run in own)
    return LayerFront(name, path, layer, count, own[0] if own else None, front)
