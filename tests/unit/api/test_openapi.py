"""The committed OpenAPI document is that of the code, and complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api import openapi
from api.problems import PROBLEM_TYPES

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document():
    return json.loads(COMMITTED.read_text(encoding="utf-8"))


def test_the_committed_document_is_that_of_the_code(service):
    now = openapi.as_text(service.app.openapi())
    if now != COMMITTED.read_text(encoding="utf-8"):
        pytest.fail(
            "the API has changed: write docs/openapi.json anew with\n"
            "    .venv/bin/python -m api.openapi > docs/openapi.json\n"
            "and read the diff before it is committed",
            pytrace=False,
        )


def test_the_document_is_openapi_3_1_by_its_own_schema(document):
    from jsonschema_rs import validator_for

    # The meta-schema of JSON Schema 2020-12, which OpenAPI 3.1 uses for schemas.
    for name, schema in document["components"]["schemas"].items():
        validator_for({**schema, "components": document["components"]})
        assert schema.keys() & {"type", "enum", "oneOf"}, name
    assert document["openapi"].startswith("3.1")


def test_every_operation_is_named_described_tagged_and_refuses_by_problems(document):
    ids = []
    for path, method, operation in openapi.operations(document):
        ids.append(operation["operationId"])
        assert operation["summary"] and operation["description"] and operation["tags"], path
        assert {"400", "413", "422", "500", "503"} <= set(operation["responses"]), (method, path)
    assert len(set(ids)) == len(ids)


def test_every_type_of_problem_is_in_the_schema(document):
    schema = document["components"]["schemas"]["ProblemDocument"]
    assert schema["properties"]["type"]["enum"] == [t.uri for t in PROBLEM_TYPES.values()]
    assert schema["examples"]


def test_the_page_for_readers_lists_every_type_of_problem_and_every_setting():
    from api.settings import Settings

    page = (COMMITTED.parent / "http-api.md").read_text(encoding="utf-8")
    for found in PROBLEM_TYPES.values():
        assert f"| `{found.uri}` | {found.status} | {found.title}." in page
    for name in Settings.model_fields:
        assert f"`{name.upper()}`" in page or f"NESTMAP_{name.upper()}" in page, name
