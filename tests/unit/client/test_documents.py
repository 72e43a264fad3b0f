"""The client's documents are those of docs/openapi.json, and both clients can do the same."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, NotRequired, get_origin

import pytest
from typing_extensions import get_type_hints, is_typeddict

from nestmap import AsyncClient, Client
from nestmap.client import calls, documents
from nestmap.client.calls import Call, Listing

OPENAPI = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
SCHEMAS = OPENAPI["components"]["schemas"]
#: What answers hold without a name of its own in the document.
INNER = {"StreamEnd", "ConflictPart", "ConflictParts", "Change", "Nearest", "ConstraintCounts",
         "MeasuredEvent", "Page"}  # fmt: skip
TYPED = {name: found for name, found in vars(documents).items() if is_typeddict(found)}


@pytest.mark.parametrize("name", sorted(set(TYPED) - INNER))
def test_a_document_has_the_fields_of_the_schema_of_its_name(name: str):
    schema, shape = SCHEMAS[name], TYPED[name]
    hints = get_type_hints(shape, include_extras=True)
    required = {
        field for field, hint in hints.items()
        if shape.__total__ and get_origin(hint) is not NotRequired
    }  # fmt: skip
    # What the service may leave out the client does not count on.
    assert required == set(schema.get("required", ()))
    may_have_more = bool(schema.get("additionalProperties"))
    assert may_have_more or set(hints) <= set(schema["properties"])


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "describe": ("vgg16/7", {}), "constraints": ("vgg16/7", {}), "waterfall": ("vgg16/7", {}, True),
    "count": ("vgg16/7", {}), "sample": ("vgg16/7", {}), "best": ("vgg16/7", {}),
    "check": ("vgg16/7", {}, {}),
    "explain": ("vgg16/7", {}), "mappings": ("vgg16/7", {}), "kernel": ("vgg16/7", {}),
    "derive": ("vgg16/7", "s", {}), "sketches": ("vgg16/7", {}),
    "kernel_of_hash": ("0",), "add_layer": ({},), "add_program": ("text",),
    "create_run": ("dev_1", "vgg16/7", {}, None), "runs": ({},), "run": ("run_1",),
    "step_run": ("run_1", "pause"), "run_series": ("run_1",), "run_events": ("run_1", 3),
    "run_baselines": ("run_1",),
    "measurements": ({}, True), "export": ("csv", {}), "front": ({},), "candidate": ("0",),
    "studies": (), "study": (1,), "devices": (None,), "device": ("dev_1",),
    "strikes": ("dev_1",), "lift_strike": ("dev_1", 1),
    "strike": ("dev_1", "why", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    "set_device": ("dev_1", "disable", "why"), "create_enrolment": ("pocl", 60.0),
    "profiles": (), "version": (), "operation": ("job_1",), "cancel_operation": ("job_1",),
}  # fmt: skip


def test_every_call_is_a_route_of_the_document_with_fields_that_it_knows():
    public = {name for name, found in vars(calls).items()
              if inspect.isfunction(found) and found.__module__ == calls.__name__
              and not name.startswith("_")} - {"subject_json", "part"}  # fmt: skip
    assert public == set(ARGUMENTS)
    routes = {re.sub(r"\{[^}]*\}", "{}", path): found for path, found in OPENAPI["paths"].items()}
    for name, arguments in ARGUMENTS.items():
        made = getattr(calls, name)(*arguments)
        call: Call[Any] = made.first if isinstance(made, Listing) else made
        pattern = re.sub(r"/(run_1|dev_1|job_1|0|1)(?=/|$)", "/{}", call.path)
        route = routes[pattern][call.method.lower()]
        known = {p["name"] for p in route.get("parameters", ())}
        assert {key for key, _ in call.query} <= known, name


@pytest.mark.parametrize(
    ("question", "schema"),
    [
        (calls.About, "About"), (calls.MappingsQuestion, "StreamQuery"),
        (calls.CountQuestion, "CountQuery"), (calls.SampleQuestion, "SampleQuery"),
        (calls.BestQuestion, "BestQuery"), (calls.CheckQuestion, "CheckQuery"),
        (calls.KernelQuestion, "KernelQuery"),
        (calls.RunQuestion, "RunRequest"), (calls.Restricted, "RestrictedAbout"),
    ],
)  # fmt: skip
def test_every_field_of_a_question_is_one_of_the_schema_and_none_is_left_out(
    question: Any, schema: str
):
    given = {"subject", "device" if schema == "RunRequest" else "", "mapping"}
    fields = set(question.__optional_keys__) | set(question.__required_keys__)
    assert fields - given == set(SCHEMAS[schema]["properties"]) - given


def test_both_clients_have_the_same_methods_with_the_same_arguments():
    def surface(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in found
            if not name.startswith("_") and name not in ("close", "aclose")
        }

    assert surface(Client) == surface(AsyncClient)


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        (calls.Filters, "/v1/measurements"),
        (calls.Filters, "/v1/measurements/export"),
        (calls.FrontFilters, "/v1/fronts"),
        (calls.RunFilters, "/v1/runs"),
    ],
)
def test_whatever_the_service_filters_by_a_client_can_ask_for(shape: type, path: str):
    allowed = {parameter["name"] for parameter in OPENAPI["paths"][path]["get"]["parameters"]}
    # Methods have these as arguments of their own.
    assert set(get_type_hints(shape)) == allowed - {"cursor", "limit", "order", "format"}
