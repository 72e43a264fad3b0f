"""Pages of a store with nothing in it, of a run in which much failed, and beside a busy writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.orm import Session

from api.dashboard.pages import run as page_of_run
from db.engine import address_of, open_engine
from db.farm.board_steps import add_history
from mapper.measurement import CompileError, Crash, ResourceError, Timed, Timeout, Wrong
from tests.dashboard.synthetic import write_run
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose

NOW = datetime(2026, 11, 21, tzinfo=UTC)
OUTCOMES = (
    Timed((2_000_000,) * 9, 1e-6, 5.0), CompileError("line 1: no such <type>"),
    Wrong(0.5, (0, 1), "the output differs"), ResourceError("CL_OUT_OF_RESOURCES"),
    ResourceError("CL_OUT_OF_RESOURCES"), Timeout(2.0), Crash(-11, "Segmentation fault"),
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("states"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def run(service: Service) -> str:
    """A run whose candidates ended in every possible way."""
    found = new_run(service.farm, service.device_id)
    propose(service.farm, *range(100, 100 + len(OUTCOMES)), exhausted=True)
    measure(service.farm, service.device_id, *OUTCOMES)
    return found.id


def test_pages_of_an_empty_store_say_that_there_is_nothing_and_what_to_do(tmp_path):
    empty = Service(tmp_path)
    try:
        for path, said in (
            ("/", "No run is going on. Begin one with"),
            ("/networks", "No layer has been stored"),
            ("/networks", "Plan of a network"),
            ("/networks/vgg16", "No layer of it has been tuned in this store yet"),
            ("/compare", "Candidate id"),
            (f"/devices/{empty.device_id}", "Its agent has said nothing of its health yet"),
            (f"/devices/{empty.device_id}", "never seen"),
        ):
            page = empty.user.get(path)
            assert page.status_code == 200 and said in page.text, (path, said)
        waiting = new_run(empty.farm, empty.device_id)
        page = empty.user.get(f"/runs/{waiting.id}").text
        assert "No kernel has been timed yet" in page and "Nothing has been measured yet" in page
    finally:
        empty.close()


def test_every_failure_stands_on_the_page_of_its_run_with_its_reason(service: Service, run: str):
    page = service.user.get(f"/runs/{run}").text
    for reason in ("line 1: no such &lt;type&gt;", "CL_OUT_OF_RESOURCES", "no result after 2.0 s",
                   "Segmentation fault"):  # fmt: skip
        assert reason in page, reason
    assert "<type>" not in page
    outcomes = page[page.index('id="outcomes-title"') :]
    for words, number in (("timed", 1), ("not enough of a resource", 2), ("crash", 1)):
        assert f"<dt>{words}</dt><dd" in outcomes
        assert f">{number}</dd>" in outcomes[outcomes.index(f"<dt>{words}</dt>") :][:80]


def test_a_device_shows_its_leases_and_its_readings_over_time(service: Service):
    waiting = new_run(service.farm, service.device_id)
    propose(service.farm, 4000, first=50, exhausted=True)
    claim = service.farm.jobs.claim_for_board(service.device_id, lease_s=30)
    assert claim is not None
    with closing(open_engine(address_of(service.path)).connect()) as connection:
        for minute, degrees in enumerate((41.5, 63.25)):
            said = {"temperature_c": degrees, "gpu_clock_mhz": 850.0}
            at = NOW + timedelta(minutes=minute)
            with Session(connection) as session, session.begin():
                add_history(session, service.device_id, said, at, 100)
        connection.engine.dispose()
    page = service.user.get(f"/devices/{service.device_id}").text
    assert f'href="/runs/{waiting.id}"' in page and "It holds none" not in page
    assert "2 entries as a table" in page and "gpu clock" in page
    assert page.index("41.50</td>") < page.index("63.25</td>")
    service.farm.results.finish_measure(claim.lease, OUTCOMES[0], facts={})


@pytest.mark.parametrize(
    ("target", "shown"),
    [("skylake-avx512", "skylake-avx512"), ("<b>", "&lt;b&gt;"), ("", "what its driver chooses")],
)
def test_a_device_shows_what_its_compiler_targets(service: Service, target: str, shown: str):
    facts = {"device.name": "cpu", "device.target": target}
    board = service.farm.boards.add(f"for {target}", facts=facts).board
    page = service.user.get(f"/devices/{board.id}").text
    assert f"<dt>Compiles for</dt><dd>{shown}</dd>" in page


def test_no_page_waits_for_the_writer_and_none_makes_it_wait(service: Service, run: str):
    measured = service.user.get(f"/v1/measurements?run={run}").json()["items"]
    candidate = measured[0]["candidate"]
    pages = (
        "/", f"/runs/{run}", f"/candidates/{candidate}",
        f"/compare?c={candidate}&c={measured[1]['candidate']}", "/layers", "/layers/vgg16/7",
        "/devices", f"/devices/{service.device_id}", "/networks", "/networks/vgg16",
        f"/dashboard/runs/{run}/points", f"/dashboard/runs/{run}/axes",
        f"/dashboard/runs/{run}/matching?where=theta%3D1",
        f"/dashboard/runs/{run}/details?ids={measured[0]['id']}",
        f"/v1/measurements/export?run={run}&format=csv", f"/v1/runs/{run}/series",
        f"/v1/runs/{run}/baselines",
    )  # fmt: skip
    user = service.user
    assert user.get("/").status_code == 200
    with closing(sqlite3.connect(service.path, isolation_level=None)) as writer:
        # A page that had to write would wait for 30 s here, and then fail.
        writer.execute("BEGIN IMMEDIATE")
        for path in pages:
            answer = user.get(path)
            assert answer.status_code == 200, (path, answer.text[:500])
        writer.execute("UPDATE runs SET label = label")
        writer.execute("COMMIT")


def test_a_page_gets_so_many_points_of_a_larger_run_and_its_whole_front(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    assert page_of_run.MOST_POINTS == 20_000
    # As a run of more, in less time.
    monkeypatch.setattr(page_of_run, "MOST_POINTS", 300)
    large = write_run(service.path, 400)
    sent = service.user.get(f"/dashboard/runs/{large}/points").json()
    assert len(sent["id"]) == len(set(sent["id"])) == 300 and sent["total"] == 400
    front = service.user.get(f"/v1/fronts?run={large}").json()["points"]
    assert {point["measurement"] for point in front} == set(sent["front"]) <= set(sent["id"])
