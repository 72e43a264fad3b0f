"""The OpenAPI document says what the server refuses: every text and number of a request is bounded.

Schemathesis tries the document out (tests/integration/test_api_schema.py); here nothing is left
to what it happens to draw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import openapi
from mapper.layer_sets import layer_names

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8")
)
MAX_WHOLE = 2**53
OPERATIONS = [(f"{method} {path}", found) for path, method, found in openapi.operations(DOCUMENT)]


def _inner(schema: Any, seen: frozenset[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """The schema and all that it is made of."""
    if not isinstance(schema, dict):
        return
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        if name not in seen:
            yield from _inner(DOCUMENT["components"]["schemas"][name], seen | {name})
        return
    yield schema
    # Where an object has fields, `oneOf` beside them only says which go together.
    steps = ("anyOf", "allOf") if "properties" in schema else ("anyOf", "oneOf", "allOf")
    for step in steps:
        for part in schema.get(step, ()):
            yield from _inner(part, seen)
    for step in ("items", "additionalProperties"):
        yield from _inner(schema.get(step), seen)
    for part in schema.get("properties", {}).values():
        yield from _inner(part, seen)


def _sent(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is sent in URLs and bodies. HTTP itself keeps NUL out of headers."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] in ("path", "query"):
            yield from _inner(parameter["schema"])
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield from _inner(content["schema"])


def _is_bounded(schema: dict[str, Any]) -> bool:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None or most is None:
        return False
    return -MAX_WHOLE <= least <= most <= MAX_WHOLE


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_no_text_of_a_request_may_hold_a_nul_by_the_document(name, operation):
    for schema in _sent(operation):
        if schema.get("type") != "string" or schema.keys() & {"enum", "const", "format"}:
            continue
        assert "pattern" in schema, (name, schema)
        assert re.search(schema["pattern"], "a\0b") is None, (name, schema)


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_integers_of_a_request_are_those_that_every_reader_of_json_holds(name, operation):
    for schema in _sent(operation):
        if schema.get("type") == "integer" and not schema.keys() & {"enum", "const"}:
            assert _is_bounded(schema), (name, schema)


def test_every_cursor_is_described_by_the_kind_of_its_list():
    patterns = [
        part["pattern"]
        for _, operation in OPERATIONS
        for parameter in operation.get("parameters", ())
        if parameter["name"] == "cursor"
        for part in _inner(parameter["schema"])
        if part.get("type") == "string"
    ]
    assert len(patterns) == 9
    assert len(set(patterns)) == len(patterns)


def test_too_long_urls_and_too_many_requests_are_among_the_answers():
    for name, operation in OPERATIONS:
        known = operation["responses"].keys()
        assert {"400", "414", "422", "431"} <= known, name
        assert not operation["security"] or "429" in known, name


def test_the_pattern_of_layers_is_met_by_every_name_and_by_nothing_else():
    pattern = DOCUMENT["components"]["schemas"]["LayerName"]["pattern"]
    assert all(re.search(pattern, name) for name in layer_names())
    others = ("vgg16/1", "vgg16/20", "vgg16/", "vgg16", "VGG16/0", "x/0", "xvgg16/0", "vgg16/00")
    assert not any(re.search(pattern, name) for name in others)
