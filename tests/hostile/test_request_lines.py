"""A line of JSON for each request is written where somebody asked for it, and not by default."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from typer.testing import CliRunner

from api.app import create_app
from api.observing import service_logger
from api.settings import Settings
from nestmap.cli import app
from nestmap.farm import serving as serving_module
from tests.unit.api.conftest import CannedSolver, Service
from tests.unit.api.live_server import serving

LINES = [
    ([], {}, 0),
    (["--json"], {}, 1),
    ([], {"NESTMAP_LOG_LEVEL": "info"}, 1),
    (["--json"], {"NESTMAP_LOG_LEVEL": "warning"}, 0),
]


@pytest.mark.parametrize(("options", "environment", "lines"), LINES)
def test_lines_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str],
    environment: dict[str, str], lines: int,
) -> None:  # fmt: skip
    asked: list[Settings] = []

    def serve(_: Any, settings: Settings, said: Any) -> None:
        asked.append(settings)

    monkeypatch.delenv("NESTMAP_LOG_LEVEL", raising=False)
    monkeypatch.setattr(serving_module, "serve", serve)
    store = str(tmp_path / "s.sqlite3")
    ended = CliRunner().invoke(app, ["serve", "--store", store, *options], env=environment)
    assert ended.exit_code == 0, ended.output
    (settings,) = asked
    service, log = Service(tmp_path), io.StringIO()
    made = create_app(
        settings, service.farm, cast(Any, CannedSolver()),
        logger=service_logger(settings.log_level, log),
    )  # fmt: skip
    with serving(made) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
    service.close()
    said = [json.loads(line) for line in log.getvalue().splitlines()]
    requests = [line for line in said if line["event"] == "request"]
    assert [(line["route"], line["status"]) for line in requests] == [("/healthz", 200)] * lines
