"""A board that lied: an admin strikes its times with one call, command or button, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mapper.measurement import Timed
from nestmap.cli import app
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose
from tests.unit.api.live_server import serving


@pytest.fixture
def service(tmp_path: Path):
    service = Service(tmp_path)
    yield service
    service.close()


def measured_run(service: Service) -> None:
    """A run of the device with two candidates, both timed."""
    new_run(service.farm, service.device_id)
    propose(service.farm, 4096, 2048)
    times = (Timed((1,), 0.0, 1.0, {}), Timed((5_000,), 0.0, 1.0, {}))
    measure(service.farm, service.device_id, *times)


def test_only_admins_strike_and_everybody_sees(service: Service) -> None:
    measured_run(service)
    path = f"/v1/devices/{service.device_id}/strikes"
    front = service.user.get("/v1/fronts").json()["points"]
    assert front
    assert service.user.post(path, json={"reason": "x"}).status_code == 403
    made = service.admin.post(path, json={"reason": "a lie"})
    assert made.status_code == 201
    strike = made.json()
    assert strike["measurements"] > 0 and strike["lifted_at"] is None
    assert service.user.get("/v1/fronts").json()["points"] == []
    assert [one["id"] for one in service.user.get(path).json()["items"]] == [strike["id"]]
    page = service.user.get(f"/devices/{service.device_id}").text
    assert "a lie" in page and "data-lift" not in page and "data-strike-form" not in page
    page = service.admin.get(f"/devices/{service.device_id}").text
    assert "data-lift" in page and "data-strike-form" in page
    lift = f"{path}/{strike['id']}/lift"
    assert service.user.post(lift).status_code == 403
    assert service.admin.post(lift).json()["lifted_at"]
    assert service.user.get("/v1/fronts").json()["points"] == front
    assert (
        "measurements-struck" in service.log.getvalue()
        and "measurements-restored" in service.log.getvalue()
    )


def test_what_cannot_be_struck_is_refused_by_name(service: Service) -> None:
    path = f"/v1/devices/{service.device_id}/strikes"
    for body, status in (
        ({}, 422), ({"reason": ""}, 422), ({"reason": "x" * 2001}, 422),
        ({"reason": "x", "since": "yesterday"}, 422),
        ({"reason": "x", "since": "2026-01-01T00:00:00"}, 422),
        ({"reason": "x", "more": 1}, 422),
    ):  # fmt: skip
        assert service.admin.post(path, json=body).status_code == status, body
    nobody = "/v1/devices/dev_00000000000000000000000000/strikes"
    assert service.admin.post(nobody, json={"reason": "x"}).status_code == 404
    assert service.admin.get(nobody).status_code == 404
    assert service.admin.post(f"{path}/7/lift").status_code == 404


def test_command_strikes_lists_and_lifts(service: Service, tmp_path) -> None:
    measured_run(service)
    token = tmp_path / "token"
    token.write_text(service.tokens["admin"])
    token.chmod(0o600)
    with serving(service.app) as url:

        def run(*options: str) -> dict:
            arguments = ["devices", "strike", service.device_id, "--url", url, "--json",
                         "--token-file", str(token), *options]  # fmt: skip
            found = CliRunner().invoke(app, arguments, catch_exceptions=False)
            assert found.exit_code == 0, found.output
            return json.loads(found.stdout)

        (made,) = run("--reason", "a lie", "--since", "2020-01-01T00:00:00Z")["strikes"]
        assert made["measurements"] > 0
        assert run()["strikes"] == [made]
        (lifted,) = run("--lift", str(made["id"]))["strikes"]
        assert lifted["lifted_at"]
