"""Every route of the OpenAPI document against every kind of principal.

A route without an entry in :data:`ACCESS` fails, so that nobody opens one by forgetting it.
"""

from __future__ import annotations

import re

import pytest
from fastapi import APIRouter

from api import openapi
from api.auth import Access
from api.routing import ACCESS_KEY, GuardedRoute
from tests.unit.api.conftest import Service

NOBODY, USER, ADMIN = None, "user", "admin"
OWN, OTHER = "own device", "other device"
PRINCIPALS = (NOBODY, USER, ADMIN, OWN, OTHER)

PUBLIC = frozenset(PRINCIPALS)
USERS = frozenset({USER, ADMIN})
ADMINS = frozenset({ADMIN})
OWN_DEVICE = frozenset({OWN})
OWN_OR_USERS = USERS | OWN_DEVICE
#: Devices of any name pass the door; what is behind it is theirs or a 404 (tested elsewhere).
DEVICES = frozenset({OWN, OTHER})
ALL_TOKENS = USERS | DEVICES

#: Written by hand, apart from the code: who is let in.
ACCESS = {
    "GET /healthz": PUBLIC,
    "GET /readyz": PUBLIC,
    "GET /version": PUBLIC,
    "GET /metrics": USERS,
    "GET /problems": PUBLIC,
    "GET /problems/{slug}": PUBLIC,
    "POST /v1/enrol": PUBLIC,
    "POST /v1/session": USERS,
    "GET /v1/session": USERS,
    "DELETE /v1/session": PUBLIC,
    "GET /v1/profiles": USERS,
    "GET /v1/profiles/{name}": USERS,
    "GET /v1/variants": USERS,
    "GET /v1/layer-sets": USERS,
    "GET /v1/layer-sets/{name}": USERS,
    "GET /v1/layer-sets/{name}/{number}": USERS,
    "POST /v1/layers": USERS,
    "GET /v1/layers": USERS,
    "GET /v1/layers/{layer_id}": USERS,
    "POST /v1/programs": USERS,
    "GET /v1/programs": USERS,
    "GET /v1/programs/{program_id}": USERS,
    "POST /v1/subjects/describe": USERS,
    "POST /v1/constraints": USERS,
    "POST /v1/constraints/waterfall": USERS,
    "POST /v1/mappings": USERS,
    "POST /v1/mappings/stream": USERS,
    "POST /v1/mappings/count": USERS,
    "POST /v1/mappings/sample": USERS,
    "POST /v1/mappings/best": USERS,
    "POST /v1/mappings/check": USERS,
    "POST /v1/mappings/explain": USERS,
    "POST /v1/schedules/derive": USERS,
    "POST /v1/schedules/sketches": USERS,
    "POST /v1/kernels": USERS,
    "GET /v1/kernels/{kernel_hash}": USERS,
    "GET /v1/kernels/{kernel_hash}/source": USERS,
    "GET /v1/operations/{job_id}": USERS,
    "POST /v1/operations/{job_id}/cancel": USERS,
    "POST /v1/runs": USERS,
    "GET /v1/runs": USERS,
    "GET /v1/runs/{run_id}": USERS,
    "POST /v1/runs/{run_id}/pause": USERS,
    "POST /v1/runs/{run_id}/resume": USERS,
    "POST /v1/runs/{run_id}/cancel": USERS,
    "GET /v1/runs/{run_id}/events": USERS,
    "GET /v1/runs/{run_id}/series": USERS,
    "GET /v1/runs/{run_id}/baselines": USERS,
    "GET /v1/candidates/{candidate_id}": USERS,
    "GET /v1/studies": USERS,
    "GET /v1/studies/{study_id}": USERS,
    "GET /v1/measurements": USERS,
    "GET /v1/measurements/export": USERS,
    "GET /v1/measurements/{measurement_id}": USERS,
    "GET /v1/fronts": USERS,
    "GET /v1/artifacts/{artifact_hash}": ALL_TOKENS,
    "GET /v1/devices": USERS,
    "GET /v1/devices/{device_id}": OWN_OR_USERS,
    "GET /v1/devices/{device_id}/history": USERS,
    "POST /v1/devices/{device_id}/quarantine": ADMINS,
    "POST /v1/devices/{device_id}/release": ADMINS,
    "POST /v1/devices/{device_id}/disable": ADMINS,
    "POST /v1/devices/{device_id}/enable": ADMINS,
    "GET /v1/devices/{device_id}/strikes": USERS,
    "POST /v1/devices/{device_id}/strikes": ADMINS,
    "POST /v1/devices/{device_id}/strikes/{strike_id}/lift": ADMINS,
    "POST /v1/devices/{device_id}/lease": OWN_DEVICE,
    "POST /v1/devices/{device_id}/health": OWN_DEVICE,
    "POST /v1/jobs/{job_id}/heartbeat": DEVICES,
    "POST /v1/jobs/{job_id}/release": DEVICES,
    "POST /v1/jobs/{job_id}/result": DEVICES,
    "POST /v1/enrolments": ADMINS,
    "GET /v1/tokens": ADMINS,
    "POST /v1/tokens": ADMINS,
    "DELETE /v1/tokens/{token_id}": ADMINS,
}
_NAMES = {"device_id": "", "run_id": "run_" + "0" * 26, "job_id": "job_" + "0" * 26}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One service for the whole table: no request of it changes who may come in."""
    made = Service(tmp_path_factory.mktemp("farm"))
    yield made
    made.close()


def routes_of(service):
    return [f"{method} {path}" for path, method, _ in openapi.operations(service.app.openapi())]


def path_for(service, path):
    """A path with its parameters filled in: the device is the board's own, the rest is absent."""
    names = {**_NAMES, "device_id": service.device_id}
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "0" * 64), path)


def test_every_route_has_an_entry_and_every_entry_a_route(service):
    assert sorted(routes_of(service)) == sorted(ACCESS)


@pytest.mark.parametrize("principal", PRINCIPALS, ids=str)
def test_the_door_opens_to_those_of_the_table_alone(service, principal):
    client = service.client(principal)
    found = {}
    for route, allowed in ACCESS.items():
        method, path = route.split(" ")
        answer = client.request(method, path_for(service, path), json={})
        refused = answer.status_code in (401, 403)
        if principal in allowed:
            assert not refused, f"{route}: {answer.text}"
        else:
            assert answer.status_code == (401 if principal is NOBODY else 403), route
            slug = "unauthenticated" if principal is NOBODY else "forbidden"
            assert answer.json()["type"] == f"/problems/{slug}"
        found[route] = not refused
    assert found == {route: principal in allowed for route, allowed in ACCESS.items()}


@pytest.mark.parametrize("token", ["", "nm_x.y", "nm_" + "a" * 12 + "." + "b" * 43, "\x00"])
def test_a_token_that_is_none_opens_no_door(service, token):
    client = service.client(None)
    for route, allowed in ACCESS.items():
        if NOBODY in allowed:
            continue
        method, path = route.split(" ")
        headers = {"Authorization": f"Bearer {token}".encode()}
        answer = client.request(method, path_for(service, path), json={}, headers=headers)
        assert answer.status_code == 401, route


def test_a_revoked_token_opens_no_door(service):
    made = service.admin.post("/v1/tokens", json={"scope": "user"}).json()
    service.tokens["revoked"], token_id = made["token"], made["id"]
    client = service.client("revoked")
    assert client.get("/v1/runs").status_code == 200
    assert service.admin.delete(f"/v1/tokens/{token_id}").status_code == 204
    assert client.get("/v1/runs").status_code == 401


def test_strangers_are_turned_away_before_their_body_is_read(service):
    def body():
        raise AssertionError("the body was read")
        yield b""

    async def chunks():
        for chunk in body():
            yield chunk

    answer = service.client(None).post("/v1/layers", content=chunks())
    assert answer.status_code == 401


def test_a_route_that_does_not_say_who_reaches_it_cannot_be_made():
    router = APIRouter(route_class=GuardedRoute)
    with pytest.raises(TypeError, match="does not say who reaches it"):
        router.add_api_route("/v1/forgotten", lambda: None)


def test_the_document_says_of_each_route_whether_it_wants_a_token(service):
    for path, method, operation in openapi.operations(service.app.openapi()):
        public = operation[ACCESS_KEY] == Access.PUBLIC.value
        assert operation["security"] == ([] if public else [{"bearer": []}]), (method, path)
