"""Both clients with the real application: runs, lists, events, files, what is asked of solvers."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.solver_pool import Answer, SolverProblem
from mapper.measurement import Crash, Timed
from nestmap import Client, ServiceError
from nestmap.client.calls import Filters
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose
from tests.unit.client.conftest import QUICK, async_client

Served = tuple[Service, str]
MAPPINGS = [{"number": n, "mapping": {"a": n}, "local_sizes": {"k": [n, 1, 1]}} for n in (1, 2, 3)]
COUNTED = {"count": 3, "of": "mappings", "complete": True, "mode": "strict", "constraints": {},
           "preferences": {}}  # fmt: skip


def test_mappings_are_read_as_they_come_and_the_end_says_whether_there_are_more(
    served: Served, client: Client
):
    service, url = served
    end = {"count": 3, "next": None, "of": "mappings"}
    service.solver.answers["mappings"] = Answer(MAPPINGS, end)
    with client.mappings("vgg16/7", variant="direct", pin=["a=1,2,3"], limit=3) as found:
        assert next(found) == MAPPINGS[0]
        assert list(found) == MAPPINGS[1:]
        assert found.end == end
    asked = dict(service.solver.asked[-1])
    assert asked == {"kind": "mappings", "subject": {"name": "vgg16/7"}, "variant": "direct",
                     "mode": "strict", "device": "pocl", "pin": ["a=1,2,3"],
                     "limit": 3}  # fmt: skip
    service.solver.answers["mappings"] = Answer(MAPPINGS, {"problem": "solver-limit"})
    with client.mappings("vgg16/7") as found, pytest.raises(ServiceError) as caught:
        list(found)
    assert caught.value.kind == "solver-limit"

    async def the_other() -> list[Any]:
        service.solver.answers["mappings"] = Answer(MAPPINGS, end)
        async with async_client(service, url) as other, other.mappings("vgg16/7") as found:
            return [item async for item in found]

    assert asyncio.run(the_other()) == MAPPINGS


def test_what_a_solver_answers_is_typed_and_what_it_refuses_is_one_error(
    served: Served, client: Client
):
    service, _ = served
    service.solver.answers["count"] = Answer([], COUNTED)
    assert client.count({"channels": 1, "filters": 1}).get("count") == 3
    assert service.solver.asked[-1]["subject"] == {"document": {"channels": 1, "filters": 1}}
    conflict = {"minimal": True, "parts": []}
    service.solver.answers["sample"] = SolverProblem(
        "unsatisfiable", "none", (), more={"conflict": conflict}
    )
    with pytest.raises(ServiceError) as caught:
        client.sample("vgg16/7", number=2)
    assert (caught.value.kind, caught.value.more["conflict"]) == ("unsatisfiable", conflict)
    with pytest.raises(ServiceError) as caught:
        client.sample("vgg16/7", number=0)
    assert (caught.value.path, caught.value.found) == ("/number", "0")
    assert caught.value.instance.startswith("req_")
    item = {**MAPPINGS[0], "predicted_ms": 1.5}
    best = {"count": 1, "bound_ms": 1.25, "gap": 0.1, "proved": False, "predicted": 9, "seed": 3}
    service.solver.answers["best"] = Answer([item], best)
    found = client.best("vgg16/7", number=1, seed=3, constants=None)
    assert (found["items"], found["bound_ms"], found["proved"]) == ([item], 1.25, False)
    assert {name: service.solver.asked[-1][name] for name in ("kind", "count", "seed")} == {
        "kind": "best", "count": 1, "seed": 3,
    }  # fmt: skip
    step = {"step": 1, "use": "unroll(k)", "parameters": {"u": [1, 2]}, "constraints": [],
            "loops": "kernel k", "text": "program"}  # fmt: skip
    end = {"schema": "nestmap/derivation/1", "schedule": {}, "start": "", "start_loops": "",
           "program": {}, "refusal": None}  # fmt: skip
    service.solver.answers["derive"] = Answer([step], end)
    assert client.derive("vgg16/7", "text", partial=True) == {**end, "steps": [step]}
    assert client.derive("vgg16/7", {"schema": "nestmap/schedule/1"})["steps"] == [step]
    assert service.solver.asked[-1]["schedule"] == {"schema": "nestmap/schedule/1"}
    sketch = {"name": "blocks", "reason": "why", "steps": 0, "parameters": {}, "schedule": {},
              "text": "schedule"}  # fmt: skip
    listed = {"schema": "nestmap/sketches/1", "count": 1}
    service.solver.answers["sketches"] = Answer([sketch], listed)
    assert client.sketches("vgg16/7", device="h200") == {**listed, "items": [sketch]}
    assert service.solver.asked[-1]["device"] == "h200"
    # Nobody answers this kind: the service says when to come again, and the client does.
    before = len(service.solver.asked)
    with pytest.raises(ServiceError) as caught:
        client.explain("vgg16/7")
    assert caught.value.kind == "unavailable"
    assert len(service.solver.asked) == before + QUICK.attempts


def test_a_run_is_made_once_and_takes_its_steps(served: Served, client: Client):
    service, _ = served
    budget = {"candidates": 5}
    run = client.create_run(
        service.device_id, "vgg16/7", idempotency_key="k", variants=["direct"], budget=budget
    )
    assert run["state"] == "queued" and run["stand_ins"] == []
    again = client.create_run(
        service.device_id, "vgg16/7", idempotency_key="k", variants=["direct"], budget=budget
    )
    assert again["id"] == run["id"]
    other = client.create_run(service.device_id, "vgg16/7")
    assert other["id"] != run["id"]
    assert client.pause_run(run["id"])["state"] == "paused"
    assert client.resume_run(run["id"])["state"] in ("queued", "running")
    assert client.cancel_run(run["id"])["state"] == "cancelled"
    with pytest.raises(ServiceError) as caught:
        client.pause_run(run["id"])
    assert (caught.value.kind, caught.value.status) == ("conflict", 409)
    assert client.run(run["id"])["state"] == "cancelled"
    assert [found["id"] for found in client.runs(state="cancelled")] == [run["id"]]


def test_lists_go_through_all_pages(served: Served, client: Client):
    service, url = served
    made = [new_run(service.farm, service.device_id, f"r{n}").id for n in range(120)]
    assert [run["id"] for run in client.runs()] == made[::-1]

    async def the_other() -> list[str]:
        async with async_client(service, url) as other:
            return [run["id"] async for run in other.runs()]

    assert asyncio.run(the_other()) == made[::-1]
    assert {device["id"] for device in client.devices()} == {service.device_id, service.other_id}


@contextmanager
def measured(service: Service) -> Iterator[str]:
    """A run of four candidates, all of which end: its id."""
    run = new_run(service.farm, service.device_id)
    propose(service.farm, 100, 200, 300, 400)
    measure(
        service.farm, service.device_id,
        Timed((3_000_000,), 0.0, 1.0), Timed((2_000_000,), 0.0, 1.0), Timed((4_000_000,), 0.0, 1.0),
        Crash(1, "=1+1"),
    )  # fmt: skip
    yield run.id


def test_what_was_measured_is_listed_exported_and_has_a_front(served: Served, client: Client):
    service, _ = served
    with measured(service) as run:
        found = list(client.measurements(run=run))
        assert [m["time_ms"] for m in found] == [3.0, 2.0, 4.0, None]
        assert list(client.measurements(newest_first=True)) == found[::-1]
        front = client.front(run=run)
        assert [p["time_ms"] for p in front["points"]] == [2.0, 3.0]
        bounded = client.front(run=run, max_memory_bytes=front["points"][1]["memory_bytes"])
        assert bounded["fastest"] == front["points"][1]
        text = b"".join(client.export("csv", outcome="timed")).decode()
        assert len(list(csv.DictReader(io.StringIO(text)))) == 3
        assert client.candidate(front["points"][0]["candidate"])["memory_bytes"] > 0
        (study,) = client.studies()
        assert client.study(study["id"]) == study
        assert {m["study"] for m in found} == {study["id"]}
        assert len(client.run_series(run)["improvements"]) == 2
        with pytest.raises(ServiceError) as caught:
            client.study(study["id"] + 1)
        assert caught.value.kind == "not-found"
        with pytest.raises(ServiceError):
            list(client.export("csv", layer="no/layer"))


def test_both_clients_ask_for_one_candidate_alone(served: Served, client: Client):
    service, url = served
    with measured(service) as run:
        wanted = next(iter(client.measurements(run=run)))
        only: Filters = {"run": run, "candidate": wanted["candidate"]}

        async def the_other() -> tuple[list[Any], Any, bytes]:
            async with async_client(service, url) as other:
                found = [one async for one in other.measurements(**only)]
                pieces = [piece async for piece in other.export("csv", **only)]
                return found, await other.front(**only), b"".join(pieces)

        found, front, text = asyncio.run(the_other())
        assert found == list(client.measurements(**only)) == [wanted]
        assert [point["candidate"] for point in front["points"]] == [wanted["candidate"]]
        assert front == client.front(**only)
        assert b"".join(client.export("csv", **only)) == text
        (row,) = csv.DictReader(io.StringIO(text.decode()))
        assert row["candidate"] == wanted["candidate"]


def test_events_go_on_behind_the_last_one_after_every_lost_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("api.events.RETRY_MS", 50)
    service, url = served
    with measured(service) as run:
        service.farm.runs.cancel(run)
        with Client(url, service.tokens["user"], patience=QUICK) as direct:
            expected = list(direct.run_events(run))
            assert expected[-1].kind == "end"
            assert len(str(expected)) > 1_500  # more than one connection carries
            ids = [event.id for event in expected if event.id is not None]
            assert ids == sorted(set(ids))
            assert list(direct.run_events(run, after=ids[1])) == [
                event for event in expected if event.id is None or event.id > ids[1]
            ]
            assert list(direct.run_events(run, after=ids[-1])) == []
        with cutting_proxy(url, 1_500) as lossy:
            with Client(lossy, service.tokens["user"], patience=QUICK) as client:
                assert list(client.run_events(run)) == expected

            async def the_other() -> list[Any]:
                async with async_client(service, lossy) as other:
                    return [event async for event in other.run_events(run)]

            assert asyncio.run(the_other()) == expected


@contextmanager
def cutting_proxy(url: str, most_bytes: int) -> Iterator[str]:
    """A proxy that cuts every connection after so many bytes of the answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            with (
                client,
                socket.create_connection((host, int(port)), 5) as service,
                contextlib.suppress(OSError),  # whoever has heard enough goes away
            ):
                client.settimeout(5)
                service.sendall(whole_request(client).replace(b"keep-alive", b"close"))
                left = most_bytes
                while left and (piece := service.recv(left)):
                    client.sendall(piece)
                    left -= len(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        thread.join()
        listener.close()


def whole_request(client: socket.socket) -> bytes:
    """The head of a request with its body."""
    request = client.recv(65_536)
    while b"\r\n\r\n" not in request:
        request += client.recv(65_536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += client.recv(65_536)
    return head + b"\r\n\r\n" + body


def test_a_stream_that_is_cut_off_is_an_error_and_not_a_short_answer(served: Served):
    service, url = served
    many = [{"number": n, "mapping": {"a": n}} for n in range(200)]
    end = {"count": 200, "next": None, "of": "mappings"}
    service.solver.answers["mappings"] = Answer(many, end)
    with (
        cutting_proxy(url, 2_000) as lossy,
        Client(lossy, service.tokens["user"], patience=QUICK) as client,
        client.mappings("vgg16/7") as found,
        pytest.raises(ServiceError) as caught,
    ):
        list(found)
    assert caught.value.kind == "unreachable"


def test_devices_are_enrolled_and_taken_out_of_work_by_admins_only(served: Served):
    service, url = served
    with Client(url, service.tokens["admin"]) as admin:
        assert admin.create_enrolment("pocl", 60.0)["code"]
        stopped = admin.set_device(service.device_id, "quarantine", "too hot")
        assert (stopped["state"], stopped["reason"]) == ("quarantined", "too hot")
        assert admin.set_device(service.device_id, "release")["state"] == "active"
        assert admin.device(service.device_id)["name"] == "board"
        assert "pocl" in [profile["name"] for profile in admin.profiles()]
    with Client(url, service.tokens["user"]) as user, pytest.raises(ServiceError) as caught:
        user.create_enrolment()
    assert caught.value.kind == "forbidden"
    with Client(url, "nm_unknown.token") as nobody, pytest.raises(ServiceError) as caught:
        next(nobody.devices())
    assert caught.value.kind == "unauthenticated"


def test_a_layer_that_was_stored_is_a_subject(served: Served, client: Client):
    service, _ = served
    layer = {"channels": 4, "height": 6, "width": 6, "filters": 4}
    stored = client.add_layer(layer)
    assert client.add_layer(layer) == stored
    service.solver.answers["count"] = Answer([], COUNTED)
    client.count({"id": stored["id"]})
    assert service.solver.asked[-1]["subject"]["document"]["filters"] == 4
