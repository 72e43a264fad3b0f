"""What every answer of the service has, whatever it is about."""

from __future__ import annotations

import json

from api.settings import Settings
from tests.unit.api.conftest import Service


def test_health_version_and_problem_types_are_open(service):
    client = service.client(None)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/version").json()["lease_protocol"] == 1
    listed = {t["type"] for t in client.get("/problems").json()}
    assert "/problems/stale-lease" in listed
    for path in listed:
        assert client.get(path).json()["type"] == path


def test_ready_means_database_and_solver(service, monkeypatch):
    assert service.client(None).get("/readyz").json()["status"] == "ready"
    monkeypatch.setattr(service.solver, "pids", ())
    answer = service.client(None).get("/readyz")
    assert (answer.status_code, answer.json()["solver"]) == (503, "no solver process runs")


def test_not_ready_without_its_database(service, monkeypatch):
    from mapper.errors import StoreError

    def lost():
        raise StoreError("connection to db.internal refused")

    monkeypatch.setattr(service.farm, "fault", lost)
    answer = service.client(None).get("/readyz")
    assert (answer.status_code, answer.json()["database"]) == (503, "cannot be reached")


def test_every_answer_has_security_headers_and_a_request_id(service):
    for path in ("/healthz", "/nothing", "/v1/runs", "/docs", "/x%00"):
        headers = service.client(None).get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-request-id"].startswith("req_")


def test_no_page_from_elsewhere_may_read_an_answer(service):
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    for answer in (service.user.get("/v1/runs", headers=asked),
                   service.user.options("/v1/runs", headers=asked)):  # fmt: skip
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_the_documentation_loads_nothing_from_elsewhere(service):
    client = service.client(None)
    page = client.get("/docs")
    assert "http://" not in page.text and "https://" not in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css", "index.css", "start.js",
                  "favicon-32x32.png"):  # fmt: skip
        assert f"/docs/{asset}" in page.text
        assert client.get(f"/docs/{asset}").status_code == 200
    assert client.get("/docs/..%2fASSETS.toml").status_code == 404


def test_a_problem_names_its_type_status_and_request(service):
    answer = service.client(None).get("/v1/nothing")
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["type"], problem["status"]) == ("/problems/not-found", answer.status_code)
    assert problem["instance"] == answer.headers["x-request-id"]


def test_a_method_that_is_not_there_says_which_are(service):
    answer = service.client(None).put("/healthz")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json()["type"] == "/problems/method-not-allowed"


def test_a_fault_of_ours_is_a_problem_and_its_cause_is_only_in_the_log(service, monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("the secret plan")

    monkeypatch.setattr(service.farm.runs, "page_and_more", broken)
    answer = service.user.get("/v1/runs")
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal")
    assert "secret plan" not in answer.text
    assert "secret plan" in service.log.getvalue()


def test_the_log_has_a_line_for_each_request_and_no_secret(service):
    token = service.tokens["user"]
    service.user.get("/v1/runs?label=confidential")
    service.user.post("/v1/layers", json={"secret": "confidential"})
    service.client(None).get("/v1/runs", headers={"Authorization": f"Bearer {token}x"})
    lines = [json.loads(text) for text in service.log.getvalue().splitlines()]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("GET", "/v1/runs", 200), ("POST", "/v1/layers", 422), ("GET", "/v1/runs", 401),
    ]  # fmt: skip
    assert lines[0]["principal"] == token[3:].partition(".")[0]
    assert lines[0]["ms"] > 0
    for secret in (token.partition(".")[2], "confidential"):
        assert secret not in service.log.getvalue()


def test_metrics_are_counted_by_template_and_want_a_token(service):
    service.user.get("/v1/runs/run_" + "0" * 26)
    service.user.get("/v1/runs/run_" + "1" * 26)
    service.client(None).get("/whatever/somebody/thinks/of")
    assert service.client(None).get("/metrics").status_code == 401
    text = service.user.get("/metrics").text
    route = 'nestmap_http_requests_total{method="GET",route="/v1/runs/{run_id}",status="404"}'
    assert f"{route} 2.0" in text
    assert "whatever" not in text
    assert 'route="(none)"' in text


def test_metrics_can_be_opened_for_a_scraper(tmp_path):
    from api.settings import Settings
    from tests.unit.api.conftest import Service

    service = Service(tmp_path, Settings(metrics_open=True))
    assert service.client(None).get("/metrics").status_code == 200
    service.close()


def test_a_session_keeps_the_token_in_a_cookie_that_only_this_origin_can_use(service):
    client = service.user
    answer = client.post("/v1/session")
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 204
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert attribute in cookie
    with_cookie = service.client(None)
    with_cookie.cookies.update(client.cookies)
    assert with_cookie.get("/v1/session").json()["scope"] == "user"
    post = {"json": {"channels": 1, "filters": 1, "height": 3, "width": 3}}
    assert with_cookie.post("/v1/layers", **post).status_code == 403
    same = {"Sec-Fetch-Site": "same-origin"}
    assert with_cookie.post("/v1/layers", headers=same, **post).status_code == 201
    assert with_cookie.delete("/v1/session").status_code == 204
    assert with_cookie.get("/v1/session").status_code == 401


def test_traces_are_made_where_they_are_switched_on(service):
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from api.tracing import trace_requests

    exporter = InMemorySpanExporter()
    provider = trace_requests(service.app, exporter)
    service.user.get("/v1/runs")
    service.user.get("/healthz")
    provider.shutdown()
    names = [span.name for span in exporter.get_finished_spans()]
    assert any("/v1/runs" in name for name in names)
    assert not any("healthz" in name for name in names)


def test_requests_for_a_solver_are_limited_for_each_token_and_others_are_not(tmp_path):
    service = Service(tmp_path, Settings(token_cache_s=0.0, solver_requests_per_minute=2))
    try:
        asked = [service.user.post("/v1/mappings", json={}) for _ in range(3)]
        assert [answer.status_code for answer in asked] == [422, 422, 429]
        assert asked[-1].json()["type"] == "/problems/too-many-requests"
        assert 1 <= int(asked[-1].headers["retry-after"]) <= 30
        assert service.user.post("/v1/runs", json={}).status_code == 429
        assert service.user.get("/v1/runs").status_code == 200
        assert service.client("admin").post("/v1/mappings", json={}).status_code == 422
        assert service.client(None).post("/v1/mappings", json={}).status_code == 401
    finally:
        service.close()
