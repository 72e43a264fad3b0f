"""Layers in files: both schemas, and documents that state none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from nestmap.subjects import load_subject

SIZES = {"channels": 4, "height": 6, "width": 6, "filters": 4}


@pytest.mark.parametrize(
    ("document", "layer"),
    [
        ({"schema": "nestmap/layer/1", **SIZES, "stride": 2}, LayerSpec(4, 6, 6, 4, stride=2)),
        ({"schema": "nestmap/layer/2", **SIZES, "batch": 2}, LayerSpec(4, 6, 6, 4, batch=2)),
        ({**SIZES, "layout": "NCHW"}, LayerSpec(4, 6, 6, 4, layout="NCHW")),
        ({"channels": 4, "length": 9, "filters": 2}, LayerSpec.one_dimensional(4, 9, 2)),
    ],
)
def test_a_file_holds_a_layer(tmp_path: Path, document: dict[str, Any], layer: LayerSpec):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**document, "name": layer.name}))
    subject = load_subject(str(path), "high-level")
    assert subject.layer == layer


def test_a_variant_that_does_not_do_the_layer_says_where(tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**SIZES, "groups": 2}))
    with pytest.raises(InputError, match=r"mine.json: layer.groups: the variant direct does not"):
        load_subject(str(path), "direct")
