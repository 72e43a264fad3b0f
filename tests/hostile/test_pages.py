"""Pages and forms of the dashboard under texts that no browser sends, and pages that take long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import httpx
import pytest
from markupsafe import Markup

from api.dashboard.pages import candidate as page_of_candidate
from api.dashboard.pages import schedules as page_of_schedules
from api.dashboard.rendering import environment
from api.settings import Settings
from api.solver_pool import Answer
from mapper.measurement import Timed
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
DESCRIBED = Answer([], {"kernels": [], "variant": "direct", "label": "vgg16/7"})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("pages"))
    made.solver.answers["describe"] = DESCRIBED
    yield made
    made.close()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"channels": "--5"}, 422),
        ({"channels": "²"}, 422),
        ({"channels": "9" * 5_000}, 422),
        ({"program": "a\0b"}, 400),
        ({"program": "a" * 500_001}, 422),
        ({"name": "a\0b", "channels": "64", "height": "56", "width": "56", "filters": "64"}, 400),
        ({"a\0b": "x"}, 400),
    ],
)
def test_a_form_that_no_browser_sends_is_refused(
    service: Service, fields: dict[str, str], status: int
):
    body = "&".join(f"{quote_plus(name)}={quote_plus(text)}" for name, text in fields.items())
    assert service.user.post("/layers", content=body, headers=FORM).status_code == status


def test_a_cursor_that_was_made_up_is_refused_by_the_page_of_mappings(service: Service):
    page = service.user.get("/layers/vgg16/7?variant=direct&view=mappings&cursor=xyz")
    assert page.status_code == 422


def test_storing_a_program_by_a_form_counts_as_a_request_for_a_solver(tmp_path: Path):
    service = Service(tmp_path, Settings(solver_requests_per_minute=2))
    try:
        answers = [
            service.user.post("/layers", content="layer_name=vgg16%2F7", headers=FORM).status_code
            for _ in range(3)
        ]
    finally:
        service.close()
    assert answers == [303, 303, 429]


@pytest.mark.parametrize(
    "path",
    ["/layers/vgg16/7", f"/layers/{'0' * 64}", f"/candidates/{'0' * 64}", "/compare",
     f"/dashboard/runs/run_{'0' * 26}/roofline"],
)  # fmt: skip
def test_a_page_that_asks_a_solver_counts_as_a_request_for_one(tmp_path: Path, path: str):
    service = Service(tmp_path, Settings(solver_requests_per_minute=2))
    service.solver.answers["describe"] = DESCRIBED
    try:
        refused = [service.user.get(path).status_code == 429 for _ in range(3)]
        assert refused == [False, False, True]
        # Pages that read the store alone do not.
        assert service.user.get("/").status_code == service.user.get("/layers").status_code == 200
    finally:
        service.close()


@pytest.mark.parametrize(
    "override", [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]
)
def test_no_text_turns_the_direction_of_what_stands_behind_it(service: Service, override: str):
    run = new_run(service.farm, service.device_id, f"fast{override}<b>")
    named = f"fast⟨U+{ord(override):04X}⟩&lt;b&gt;"
    form = f"wanted=derive&program={quote_plus(f'a b {override}<b>')}&schedule=s"
    derived = service.user.post("/schedules", content=form, headers=FORM)
    for page in (service.user.get("/"), service.user.get(f"/runs/{run.id}"), derived):
        assert page.status_code == 200
        assert override not in page.text
    assert named in service.user.get(f"/runs/{run.id}").text
    assert environment().from_string("{{ x }}").render(x=Markup(f"<i>{override}</i>")) == (
        f"<i>⟨U+{ord(override):04X}⟩</i>"
    )
    # Letters that are read from the right are as they are.
    assert environment().from_string("{{ x }}").render(x="שלום") == "שלום"


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59"], ids=["before", "after"]
)
def test_a_time_that_utc_does_not_have_is_refused_and_no_fault_of_the_store(
    service: Service, name: str, time: str
):
    for path in ("/v1/measurements", "/v1/measurements/export", "/v1/fronts"):
        answer = service.user.get(f"{path}?{name}={time}")
        assert answer.status_code == 422, (path, answer.text)
    strike = {"reason": "x", name: time.replace("%2B", "+")}
    answer = service.admin.post(f"/v1/devices/{service.device_id}/strikes", json=strike)
    assert answer.status_code == 422, answer.text


def _candidate(service: Service) -> httpx.Response:
    new_run(service.farm, service.device_id)
    propose(service.farm, 4096, exhausted=True)
    measure(service.farm, service.device_id, Timed((1_000_000,), 1e-6, 1.0))
    found = service.user.get("/v1/measurements").json()["items"][0]["candidate"]
    return service.user.get(f"/candidates/{found}")


def _derivation(service: Service) -> httpx.Response:
    end = {"start": "", "start_loops": "", "refusal": None, "schedule": {"name": "s"}}
    service.solver.answers["derive"] = Answer([], end)
    form = "wanted=derive&program=vgg16%2F7&schedule=schedule+%22s%22+%7B%7D"
    return service.user.post("/schedules", content=form, headers=FORM)


@pytest.mark.parametrize(
    ("module", "slow_part", "ask"),
    [
        (page_of_candidate, "highlighted_lines", _candidate),
        (page_of_schedules, "steps_of", _derivation),
    ],
    ids=["candidate", "schedules"],
)
def test_a_page_that_takes_long_holds_up_nobody_else(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    slow_part: str,
    ask: Callable[[Service], httpx.Response],
):
    begun, others_were_answered = threading.Event(), threading.Event()
    waited: list[bool] = []

    def slow(*of: object) -> tuple[str, ...]:
        begun.set()
        waited.append(others_were_answered.wait(10))
        return ()

    monkeypatch.setattr(module, slow_part, slow)
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(ask, service)
        assert begun.wait(10)
        assert service.admin.get("/v1/runs").status_code == 200
        others_were_answered.set()
        assert page.result(20).status_code == 200
    assert waited == [True]
