"""From a posted layer to valid mappings and their kernels, with real solver children."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_from_json, derive_space, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.space import check
from tests.integration.api_server import running_service

LAYER = {"channels": 8, "height": 14, "width": 14, "filters": 16, "name": "small"}
SMALL = {"subject": {"name": "vgg16/24"}, "variant": "high-level"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("farm")) as running:
        yield running


@pytest.fixture
def client(service):
    with service.client() as client:
        yield client


def space_of(layer, variant):
    subject = subject_of_layer(layer, variant)
    return derive_space(subject, Mode.STRICT, load_profile("pocl"), RuleOptions())


def test_a_posted_layer_leads_to_mappings_that_the_checker_accepts(client):
    layer = client.post("/v1/layers", json=LAYER).json()
    about = {"subject": {"id": layer["id"]}, "variant": "direct"}
    page = client.post("/v1/mappings", json={**about, "limit": 100}).json()
    space = space_of(LayerSpec.from_json(LAYER), "direct")
    assert len(page["items"]) == 100
    for item in page["items"]:
        item.pop("number")
        assert check(space, assignment_from_json(space, item)) == ()


def test_pages_walk_the_whole_space_once_and_agree_with_count_and_stream(client):
    counted = client.post("/v1/mappings/count", json=SMALL).json()
    pages, cursor = [], None
    while True:
        body = {**SMALL, "limit": 20} | ({"cursor": cursor} if cursor else {})
        page = client.post("/v1/mappings", json=body).json()
        pages += page["items"]
        if (cursor := page["next"]) is None:
            break
    lines = client.post("/v1/mappings/stream", json=SMALL).text.splitlines()
    assert [json.loads(line) for line in lines[:-1]] == pages
    assert counted["complete"] and counted["count"] == len(pages)
    assert len({json.dumps(item["mapping"], sort_keys=True) for item in pages}) == len(pages)


def test_pins_and_forbidden_values_bind(client):
    code = client.post("/v1/mappings", json={**SMALL, "limit": 1}).json()["items"][0]["mapping"]
    name, value = next(iter(code.items()))
    pinned = client.post("/v1/mappings", json={**SMALL, "pin": [f"{name}={value}"]}).json()
    assert {item["mapping"][name] for item in pinned["items"]} == {value}
    left = client.post("/v1/mappings", json={**SMALL, "forbid": [f"{name}={value}"]}).json()
    assert value not in {item["mapping"][name] for item in left["items"]}


def test_a_sample_is_the_same_for_the_same_seed(client):
    body = {**SMALL, "number": 5, "seed": 7}
    first, again = (client.post("/v1/mappings/sample", json=body).json() for _ in range(2))
    assert first == again
    assert first["count"] == 5


def test_a_mapping_s_kernel_is_printed_and_fetched_by_its_hash(client):
    item = client.post("/v1/mappings", json={**SMALL, "limit": 1}).json()["items"][0]
    item.pop("number")
    made = client.post("/v1/kernels", json={**SMALL, "mapping": item})
    again = client.post("/v1/kernels", json={**SMALL, "mapping": item})
    assert (made.status_code, again.status_code) == (201, 200)
    kernel = client.get(made.headers["location"]).json()
    assert kernel == made.json()
    assert "kernel void" in kernel["source"]
    assert kernel["memory"]["bytes"] == sum(b["bytes"] for b in kernel["plan"]["buffers"])


def test_a_broken_mapping_is_explained_with_the_nearest_valid_one(client):
    item = client.post("/v1/mappings", json={**SMALL, "limit": 1}).json()["items"][0]
    broken = {"mapping": dict.fromkeys(item["mapping"], 30)}
    verdict = client.post("/v1/mappings/check", json={**SMALL, "mapping": broken}).json()
    assert not verdict["valid"]
    assert all(v["sentence"] and v["rule"] for v in verdict["violations"])
    nearest = verdict["nearest"]["assignment"]
    assert client.post("/v1/mappings/check", json={**SMALL, "mapping": nearest}).json()["valid"]
    refused = client.post("/v1/kernels", json={**SMALL, "mapping": broken})
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid-mapping")
    assert refused.json()["violations"]


def test_what_cannot_hold_together_is_named(client):
    item = client.post("/v1/mappings", json={**SMALL, "limit": 1}).json()["items"][0]
    every = [f"{name}=G0" for name in item["mapping"]]
    refused = client.post("/v1/mappings", json={**SMALL, "pin": every})
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/unsatisfiable")
    assert refused.json()["conflict"]["parts"]
    explained = client.post("/v1/mappings/explain", json={**SMALL, "pin": every}).json()
    assert explained["empty"] and explained["conflict"]["parts"]


def test_constraints_have_their_source_and_the_waterfall_ends_at_the_count(client):
    listed = client.post("/v1/constraints", json=SMALL).json()
    assert all(c["provenance"] and c["sentence"] for c in listed["constraints"])
    steps = client.post("/v1/constraints/waterfall", json=SMALL).json()["steps"]
    count = client.post("/v1/mappings/count", json=SMALL).json()["count"]
    assert {s["rule"] for s in steps} <= {c["rule"] for c in listed["constraints"]}
    assert all(step["after"] <= step["before"] for step in steps)
    assert steps[-1]["after"] == count


def test_a_program_in_text_form_is_stored_and_is_a_subject(client):
    described = client.post("/v1/subjects/describe", json=SMALL).json()
    stored = client.post("/v1/programs", json={"document": described["document"]}).json()
    assert stored["id"] == described["hash"]
    by_id = {"subject": {"id": stored["id"]}}
    assert (
        client.post("/v1/mappings/count", json=by_id).json()["count"]
        == (client.post("/v1/mappings/count", json=SMALL).json()["count"])
    )
    bad = client.post("/v1/programs", json={"text": "this is no program"})
    assert (bad.status_code, bad.json()["type"]) == (422, "/problems/invalid-input")


def test_a_reader_that_goes_away_frees_the_solver(service, client):
    about = {"subject": {"name": "vgg16/24"}, "variant": "direct"}
    text = json.dumps(about).encode()
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port)) as line:
        line.sendall(
            f"POST /v1/mappings/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.user}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
    # There is one child: it can only answer once it has dropped the endless stream.
    started = time.monotonic()
    assert client.post("/v1/mappings/count", json=SMALL).status_code == 200
    assert time.monotonic() - started < 30


def test_a_run_of_a_bare_nest_tree_is_refused_since_it_has_no_kernels(service, client):
    tree = {"schema": "nestmap/nest/1", "tree": {}}
    body = {"device": service.device_id, "subject": {"document": tree}}
    answer = client.post("/v1/runs", json=body)
    assert answer.status_code == 422
