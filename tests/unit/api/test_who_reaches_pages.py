"""Every route that the OpenAPI document leaves out, pages above all, against every principal.

A route without an entry in :data:`ACCESS` fails, as in ``test_who_reaches_what.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from api.auth import COOKIE
from tests.unit.api.conftest import Service
from tests.unit.api.test_who_reaches_what import NOBODY, PRINCIPALS, PUBLIC, USERS

#: Written by hand, apart from the code: who is let in.
ACCESS = {
    "GET /docs": PUBLIC,
    "GET /docs/{name}": PUBLIC,
    "GET /openapi.json": PUBLIC,
    "GET /sign-in": PUBLIC,
    "POST /sign-in": PUBLIC,
    "POST /sign-out": PUBLIC,
    "GET /static/{of_version}/{name:path}": PUBLIC,
    "GET /": USERS,
    "GET /runs/{run_id}": USERS,
    "POST /runs/{run_id}/baselines": USERS,
    "GET /candidates/{candidate_id}": USERS,
    "POST /candidates/{candidate_id}/re-measure": USERS,
    "GET /compare": USERS,
    "GET /layers": USERS,
    "POST /layers": USERS,
    "GET /schedules": USERS,
    "POST /schedules": USERS,
    "GET /layers/{set_name}/{number}": USERS,
    "GET /layers/{subject_id}": USERS,
    "GET /devices": USERS,
    "GET /devices/{device_id}": USERS,
    "GET /networks": USERS,
    "GET /networks/{name}": USERS,
    "GET /dashboard/runs/{run_id}/points": USERS,
    "GET /dashboard/runs/{run_id}/details": USERS,
    "GET /dashboard/runs/{run_id}/axes": USERS,
    "GET /dashboard/runs/{run_id}/matching": USERS,
    "GET /dashboard/runs/{run_id}/roofline": USERS,
}
#: They look at the site that a form came from, which these requests do not say.
_FORMS_OF_STRANGERS = {"POST /sign-in", "POST /sign-out"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("pages"))
    yield made
    made.close()


def hidden_routes(routes: Any) -> Iterator[str]:
    for route in routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from hidden_routes(included.routes)
        elif not route.include_in_schema:
            yield from (f"{method} {route.path}" for method in route.methods if method != "HEAD")


def path_for(service: Service, path: str) -> str:
    names = {"device_id": service.device_id, "run_id": "run_" + "0" * 26, "name": "vgg16"}
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: names.get(found[1], "0" * 64), path)


def test_every_hidden_route_has_an_entry_and_every_entry_a_route(service: Service):
    assert sorted(hidden_routes(service.app.routes)) == sorted(ACCESS)


@pytest.mark.parametrize("principal", PRINCIPALS, ids=str)
def test_pages_open_to_those_of_the_table_alone(service: Service, principal: str | None):
    client = service.client(principal)
    for route, allowed in ACCESS.items():
        if route in _FORMS_OF_STRANGERS:
            continue
        method, path = route.split(" ")
        answer = client.request(method, path_for(service, path))
        to_sign_in = answer.headers.get("location", "").startswith("/sign-in")
        refused = answer.status_code in (401, 403) or to_sign_in
        assert refused == (principal not in allowed), f"{route}: {answer.status_code}"


def test_a_form_of_another_site_is_refused_whosever_cookie_it_brings(service: Service):
    client = service.client(NOBODY)
    client.cookies.set(COOKIE, service.tokens["admin"])
    for route in (route for route in ACCESS if route.startswith("POST ")):
        path = path_for(service, route.split(" ")[1])
        for headers in (
            {},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"},
            {"Sec-Fetch-Site": "none", "Origin": "http://testserver"},
        ):
            answer = client.post(path, content=b"", headers=headers)
            assert answer.status_code == 403, (route, headers)
