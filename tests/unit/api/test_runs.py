"""Runs are created once, watched without a gap, and take only the steps they may take."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from api.solver_pool import Answer, SolverProblem
from mapper.errors import Problem
from mapper.measurement import Timed
from tests.unit.api.farm_data import measure, new_run, propose
from tests.unit.api.live_server import serving

NOWHERE = "dev_" + "0" * 26


def body(service, **more):
    return {"device": service.device_id, "subject": {"name": "vgg16/7"}, **more}


def test_a_run_is_created_with_its_location_and_can_be_read(service):
    answer = service.user.post("/v1/runs", json=body(service, variants=["direct"], seed=3))
    run = answer.json()
    assert answer.status_code == 201
    assert service.user.get(answer.headers["location"]).json() == run
    assert (run["label"], run["state"]) == ("vgg16/7", "queued")
    assert run["request"] == {
        "subject": {"name": "vgg16/7"}, "variants": ["direct"], "mode": "strict", "seed": 3,
        "strategy": "auto",
    }  # fmt: skip


def test_what_a_run_states_is_read_by_the_solver_and_kept_for_its_proposals(service):
    service.solver.answers["describe"] = Answer([], {})
    stated = {"where": ["code(row) == W0"], "suits": ["all"], "sequential_fusion": False}
    answer = service.user.post("/v1/runs", json=body(service, variants=["direct"], **stated))
    assert answer.status_code == 201
    assert service.solver.asked[-1] == {
        "kind": "describe", "subject": {"name": "vgg16/7"}, "variant": "direct", "mode": "strict",
        "device": "pocl", **stated,
    }  # fmt: skip
    assert stated.items() <= answer.json()["request"].items()
    wrong = SolverProblem("invalid-input", "no such name", [Problem("/where/0", "no such name")])
    service.solver.answers["describe"] = wrong
    refused = service.user.post("/v1/runs", json=body(service, variants=["direct"], **stated))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/where/0"


@pytest.mark.parametrize("subject", [{"text": "program …"}, {"name": "vgg16/7"}])
def test_sketches_are_asked_for_by_name_with_the_device_s_limits(service, subject):
    service.solver.answers["describe"] = Answer([], {"has_kernels": True, "label": "product"})
    program = {"subject": subject, "variants": ["tile-column"]}
    answer = service.user.post("/v1/runs", json=body(service, **program))
    assert answer.status_code == 201
    assert answer.json()["request"]["variants"] == ["tile-column"]
    (asked, *_) = [each for each in service.solver.asked if "variant" in each]
    assert (asked["variant"], asked["device"]) == ("tile-column", "pocl")
    wrong = SolverProblem("invalid-input", "no sketch", [Problem("/variant", "no sketch")])
    service.solver.answers["describe"] = wrong
    refused = service.user.post("/v1/runs", json=body(service, **program))
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/variants/0"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"where": ["a < 1"]}, "/where"),
        ({"where": ["a < 1"], "variants": ["direct", "partial"]}, "/where"),
        ({"free_grid": 1}, "/free_grid"),
        ({"device": NOWHERE}, "/device"),
        ({"stand_ins": [NOWHERE]}, "/stand_ins/0"),
        ({"device": "board"}, "/device"),
        ({"subject": {"name": "vgg16/1"}}, "/subject/name"),
        ({"subject": {"document": {"channels": 0, "height": 1, "width": 1, "filters": 1}}},
         "/layer/channels"),
        ({"subject": {"id": "0" * 64}}, "/subject/id"),
        ({"subject": {"name": "vgg16/7", "id": "0" * 64}}, "/subject/id"),
        ({"subject": {}}, "/subject"),
        ({"variants": ["high-level", "direct"],
          "subject": {"document": {"channels": 2, "height": 4, "width": 4, "filters": 2,
                                   "bias": True}}}, "/variants/1"),
        ({"variants": []}, "/variants"),
        ({"variants": ["direct", "direct"]}, "/variants"),
        ({"budget": {"candidates": 0}}, "/budget/candidates"),
        ({"budget": {"hours": 1}}, "/budget/hours"),
        ({"strategy": "luck"}, "/strategy"),
        ({"strategy": "random", "transfer": True}, "/transfer"),
        ({"transfer": 1}, "/transfer"),
        ({"seed": -1}, "/seed"),
        ({"seed": 1.5}, "/seed"),
        ({"priority": 101}, "/priority"),
        ({"label": ""}, "/label"),
        ({"labels": "x"}, "/labels"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_named_by_its_pointer(service, change, pointer):
    answer = service.user.post("/v1/runs", json=body(service, **change))
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/invalid-input"
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert service.user.get("/v1/runs").json()["items"] == []


def test_the_same_key_and_body_create_one_run_however_many_come_at_once(service):
    headers = {"Idempotency-Key": "retry-1"}
    start = threading.Barrier(8)

    def create(_):
        start.wait()
        return service.user.post("/v1/runs", json=body(service), headers=headers)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(create, range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(service.user.get("/v1/runs").json()["items"]) == 1
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert sorted(map(str, replayed)) == ["None"] + ["true"] * 7


def test_another_body_under_the_same_key_is_refused(service):
    headers = {"Idempotency-Key": "k"}
    service.user.post("/v1/runs", json=body(service), headers=headers)
    answer = service.user.post("/v1/runs", json=body(service, seed=1), headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (
        422, "/problems/idempotency-key-reused",
    )  # fmt: skip


def test_a_key_belongs_to_its_principal(service):
    headers = {"Idempotency-Key": "k"}
    first = service.user.post("/v1/runs", json=body(service), headers=headers).json()
    second = service.admin.post("/v1/runs", json=body(service), headers=headers).json()
    assert first["id"] != second["id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "ä".encode("latin-1")])
def test_a_key_that_is_none_is_refused(service, key):
    answer = service.user.post("/v1/runs", json=body(service), headers={"Idempotency-Key": key})
    assert answer.status_code == 422


def test_pages_walk_every_run_once_newest_first(service):
    made = [new_run(service.farm, service.device_id, f"run {n}").id for n in range(7)]
    found, cursor = [], ""
    while cursor is not None:
        page = service.user.get(f"/v1/runs?limit=3{cursor and '&cursor=' + cursor}").json()
        found += [run["id"] for run in page["items"]]
        cursor = page["next"]
    assert found == made[::-1]


def test_a_cursor_of_another_list_is_refused(service):
    for n in range(3):
        new_run(service.farm, service.device_id, f"run {n}")
    cursor = service.user.get("/v1/runs?limit=1").json()["next"]
    answer = service.user.get(f"/v1/devices?cursor={cursor}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/cursor")


def test_lists_are_filtered(service):
    mine = new_run(service.farm, service.device_id, "mine")
    new_run(service.farm, service.other_id, "other")
    service.farm.runs.cancel(mine.id)
    for query in ("label=mine", f"device={service.device_id}", "state=cancelled"):
        items = service.user.get(f"/v1/runs?{query}").json()["items"]
        assert [run["id"] for run in items] == [mine.id]
    assert service.user.get("/v1/runs?state=done").status_code == 422


def test_a_run_takes_only_the_steps_that_its_state_allows(service):
    run = new_run(service.farm, service.device_id)
    states = []
    for step in ("pause", "pause", "resume", "cancel", "cancel"):
        states.append(service.admin.post(f"/v1/runs/{run.id}/{step}").json()["state"])
    assert states == ["paused", "paused", "queued", "cancelled", "cancelled"]
    for step in ("pause", "resume"):
        answer = service.admin.post(f"/v1/runs/{run.id}/{step}")
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")


def test_a_new_run_rings_for_a_solver_worker_at_once(tmp_path):
    from api.app import create_app

    rung = threading.Event()
    jobs = []

    def ring(waiting):
        jobs.extend(waiting)
        rung.set()

    from tests.unit.api.conftest import Service

    service = Service(tmp_path)
    service.app = create_app(service.settings, service.farm, service.solver, ring=ring)  # pyright: ignore
    with service.running():
        service.user.post("/v1/runs", json=body(service))
        assert rung.wait(10)
    assert [kind.value for _, kind in jobs] == ["propose"]
    service.close()


# Events


def events_of(text):
    """(id, name) of each event of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            found.append((int(fields["id"]) if "id" in fields else None, fields["event"]))
    return found


@pytest.fixture
def ended_run(service):
    run = new_run(service.farm, service.device_id)
    propose(service.farm, 100, 200, exhausted=True)
    measure(service.farm, service.device_id, Timed((5,), 0, 1), Timed((6,), 0, 1))
    return run


def test_an_ended_run_tells_all_its_events_in_order_and_ends(service, ended_run):
    answer = service.user.get(f"/v1/runs/{ended_run.id}/events")
    found = events_of(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [name for _, name in found] == [
        "run-created", "proposed", "run-state", "measured", "measured", "run-state", "end",
    ]  # fmt: skip
    ids = [number for number, _ in found[:-1]]
    assert ids == sorted(set(ids))


def test_a_stream_goes_on_behind_any_event(service, ended_run):
    everything = events_of(service.user.get(f"/v1/runs/{ended_run.id}/events").text)
    for place, (number, _) in enumerate(everything[:-2]):
        headers = {"Last-Event-ID": str(number)}
        rest = service.user.get(f"/v1/runs/{ended_run.id}/events", headers=headers)
        assert events_of(rest.text) == everything[place + 1 :]
        assert rest.text == service.user.get(f"/v1/runs/{ended_run.id}/events?after={number}").text


def test_who_has_heard_everything_of_an_ended_run_is_told_to_stay_away(service, ended_run):
    last = events_of(service.user.get(f"/v1/runs/{ended_run.id}/events").text)[-2][0]
    answer = service.user.get(f"/v1/runs/{ended_run.id}/events?after={last}")
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("value", ["x", "-1", "9" * 19, "1e3", "١"])
def test_a_place_that_is_none_is_refused(service, ended_run, value):
    answer = service.user.get(f"/v1/runs/{ended_run.id}/events?after={value}")
    assert answer.status_code == 422
    headers = {"Last-Event-ID": value.encode()}
    answer = service.user.get(f"/v1/runs/{ended_run.id}/events", headers=headers)
    assert answer.status_code == 422


def test_events_of_an_unknown_run_are_a_404(service):
    assert service.user.get("/v1/runs/run_" + "0" * 26 + "/events").status_code == 404


def test_events_come_as_they_happen_with_comments_between_and_resume_after_a_cut(service):
    run = new_run(service.farm, service.device_id)
    headers = {"Authorization": f"Bearer {service.tokens['user']}"}
    heard = []
    with serving(service.app) as url, httpx.Client(headers=headers, timeout=30) as client:
        with client.stream("GET", f"{url}/v1/runs/{run.id}/events") as stream:
            lines = stream.iter_lines()
            heard += [next(line for line in lines if line.startswith("id:"))]
            propose(service.farm, 100, 200, exhausted=True)
            heard += [next(line for line in lines if line.startswith("id:"))]
        # The line was cut here, in the middle of a run.
        measure(service.farm, service.device_id, Timed((5,), 0, 1), Timed((6,), 0, 1))
        last = heard[-1].partition(": ")[2]
        rest = client.get(f"{url}/v1/runs/{run.id}/events", headers={"Last-Event-ID": last})
        everything = client.get(f"{url}/v1/runs/{run.id}/events")
        assert heard + re.findall("id: .*", rest.text) == re.findall("id: .*", everything.text)


def test_an_idle_stream_is_kept_open_by_comments(tmp_path):
    from api.settings import Settings
    from tests.unit.api.conftest import Service

    service = Service(tmp_path, Settings(event_poll_s=0.02, event_heartbeat_s=0.05))
    run = new_run(service.farm, service.device_id)
    headers = {"Authorization": f"Bearer {service.tokens['user']}"}
    with (
        serving(service.app) as url,
        httpx.Client(headers=headers, timeout=30) as client,
        client.stream("GET", f"{url}/v1/runs/{run.id}/events") as stream,
    ):
        comments = [line for line, _ in zip(
            (line for line in stream.iter_lines() if line.startswith(":")), range(3), strict=False
        )]  # fmt: skip
    assert comments == [": still here"] * 3
    service.close()
