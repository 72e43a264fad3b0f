"""docker-compose.yml, as far as it can be judged without a container engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
OURS = ("api", "migrate", "api-prod", "api-cluster", "solver-worker", "board")
NEEDS = pytest.mark.needs("docker-compose", install="apt-get install docker-compose")


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def services_of(*profiles: str) -> set[str]:
    """What compose starts: services of no profile, and those of an active one."""
    services = compose()["services"]
    chosen = {n for n, s in services.items() if set(profiles) & set(s.get("profiles", profiles))}
    needed = {d for name in chosen for d in services[name].get("depends_on", ())}
    assert needed <= chosen, "a service waits for one that does not start"
    return chosen


@NEEDS
def test_compose_takes_the_file() -> None:
    result = subprocess.run(
        ["docker-compose", "config"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COMPOSE_PROFILES": "cluster"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert set(yaml.safe_load(result.stdout)["services"]) == set(compose()["services"])


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        (("default",), {"api"}),
        (("prod",), {"postgres", "migrate", "api-prod"}),
        (("cluster",), {"postgres", "migrate", "rabbitmq", "api-cluster", "solver-worker"}),
        (("default", "board"), {"api", "board"}),
        (
            ("prod", "obs"),
            {"postgres", "migrate", "api-prod", "prometheus", "grafana"},
        ),
    ],
)
def test_a_profile_starts_what_it_says(profiles: tuple[str, ...], expected: set[str]) -> None:
    assert services_of(*profiles) == expected


def test_without_a_profile_the_embedded_default_starts() -> None:
    assert "COMPOSE_PROFILES=default" in (ROOT / ".env").read_text().splitlines()


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_change_nothing_but_their_data(name: str) -> None:
    service = compose()["services"][name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_every_image_is_pinned_to_a_version() -> None:
    images = [service["image"] for service in compose()["services"].values()]
    assert all(re.search(r":v?\d+\.\d+", image) for image in images), images
    (base,) = re.findall(r"^ARG PYTHON=(.*)$", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)


def test_every_lasting_service_has_a_health_check() -> None:
    """Workers have no port: their health is in the database, by their leases."""
    without = {
        name
        for name, service in compose()["services"].items()
        if service.get("restart") == "unless-stopped" and "healthcheck" not in service
    }
    assert without == {"solver-worker", "board"}


def test_nothing_listens_beyond_this_machine_unless_asked() -> None:
    for service in compose()["services"].values():
        for port in service.get("ports", ()):
            assert re.match(r"\$\{\w+:-127\.0\.0\.1:\d+\}:\d+$", port), port


def test_no_secret_stands_in_the_file() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for line in text.splitlines():
        if re.search(r"password|token|code|_url", line, re.I) and "file" not in line.lower():
            assert re.fullmatch(r"\s*(secrets: \[[\w, ]+\]|#.*)", line), line


def test_the_dockerfile_has_the_targets_that_are_built() -> None:
    targets = set(
        re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    )
    built = {s["build"]["target"] for s in compose()["services"].values() if "build" in s}
    assert built <= targets


def test_secrets_are_random_and_stay(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "deploy/secrets").mkdir(parents=True)
    script = shutil.copy(ROOT / "scripts/make-secrets.sh", tmp_path / "scripts")
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    folder = tmp_path / "deploy/secrets"
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(first) >= {Path(s["file"]).name for s in compose()["secrets"].values()}
    assert first["postgres_password"] in first["store_url"]
    assert len(first["postgres_password"]) >= 40
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == first
    assert folder.stat().st_mode & 0o077 == 0


def test_grafana_s_dashboard_asks_for_metrics_of_the_service() -> None:
    """Every metric in a panel is one that /metrics has."""
    board = json.loads((ROOT / "deploy/grafana/dashboards/nestmap.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"nestmap_\w+", target["expr"])
    }
    assert asked
    source = "\n".join(path.read_text() for path in (ROOT / "api").rglob("*.py"))
    stems = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in asked}
    missing = {stem for stem in stems if f'"{stem}' not in source}
    assert not missing
