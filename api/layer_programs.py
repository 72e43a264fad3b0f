"""The layer that a subject is, and the programs that a layer becomes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from db.canonical import canonical_json, content_hash
from mapper.ast_model.codec import program_to_json
from mapper.errors import InputError
from mapper.layer_sets import is_layer_name, layer_of_name
from mapper.layer_spec import LayerSpec
from mapper.variants import variant_program, variants_of


def layer_of(subject: Mapping[str, object]) -> LayerSpec | None:
    """The layer that a run's subject is; None for programs."""
    name = subject.get("name")
    if isinstance(name, str) and is_layer_name(name):
        return layer_of_name(name)
    document = subject.get("document")
    if not isinstance(document, dict) or "channels" not in document:
        return None
    try:
        return LayerSpec.from_json({"name": "layer", **document})
    except InputError:
        return None


@lru_cache(maxsize=256)
def programs_of(layer: LayerSpec) -> Mapping[str, str]:
    """The hash of the program that a layer becomes in each variant that computes it, by the
    variant's name. It takes a tenth of a second where the layer is new."""
    return MappingProxyType(
        {
            name: content_hash(canonical_json(program_to_json(variant_program(layer, name))))
            for name in variants_of(layer)
        }
    )
