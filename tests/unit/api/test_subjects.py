"""Layers, programs and kernels are stored once by their content; questions reach the solver."""

from __future__ import annotations

import json

import pytest

from api.solver_pool import Answer, SolverProblem
from mapper.errors import Problem

LAYER = {"channels": 3, "height": 8, "width": 8, "filters": 4}
KERNEL = {
    "source": "kernel void k() {}", "plan": {"schema": "nestmap/host-plan/1"},
    "memory": {"bytes": 64, "extra_bytes": 0}, "choices": {"mapping": {"row": 20}}, "facts": {},
    "assumed": {},
}  # fmt: skip
ABOUT = {"subject": {"name": "vgg16/7"}}


def test_a_layer_is_stored_once_and_named_by_its_content(service):
    first = service.user.post("/v1/layers", json=LAYER)
    again = service.user.post("/v1/layers", json={**LAYER, "kernel_height": 3, "bias": False})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == service.user.get(first.headers["location"]).json()
    assert first.json()["output_shape"] == [6, 6, 4]
    other = service.user.post("/v1/layers", json={**LAYER, "filters": 8}).json()
    listed = service.user.get("/v1/layers").json()["items"]
    assert sorted(row["id"] for row in listed) == sorted([first.json()["id"], other["id"]])


def test_everything_wrong_with_a_layer_is_said_at_once(service):
    answer = service.user.post("/v1/layers", json={"channels": 0, "depth": 3, "filters": "x"})
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert answer.status_code == 422
    assert {"/depth", "/height", "/width"} <= set(pointers)


def test_a_stored_layer_is_a_subject(service):
    layer = service.user.post("/v1/layers", json=LAYER).json()
    service.solver.answers["count"] = Answer([], {"count": 1, "complete": True, "of": "mappings",
        "mode": "strict", "constraints": {}, "preferences": {}})  # fmt: skip
    service.user.post("/v1/mappings/count", json={"subject": {"id": layer["id"]}})
    assert service.solver.asked[-1]["subject"] == {"document": layer["layer"]}


def test_the_best_predicted_are_asked_for_and_answered_with_their_bound(service):
    item = {"mapping": {"row": 20}, "local_sizes": {"k": [8, 1, 1]}, "predicted_ms": 0.5}
    end = {"count": 1, "bound_ms": 0.25, "gap": 0.5, "proved": False, "predicted": 4, "seed": 1}
    service.solver.answers["best"] = Answer([item], end)
    constants = {"launches": 1.0, "waves": 2.0, "operations": 3.0, "private_accesses": 4.0,
                 "spilled": 5.0, "local_bytes": 6.0, "global_bytes": 7.0, "lanes": 8}  # fmt: skip
    body = {**ABOUT, "number": 1, "seed": 1, "constants": constants, "pin": ["row=W0"]}
    answer = service.user.post("/v1/mappings/best", json=body)
    assert (answer.status_code, answer.json()) == (200, {"items": [item], **end})
    assert service.solver.asked[-1] == {
        "kind": "best", **ABOUT, "mode": "strict", "device": "pocl", "pin": ["row=W0"], "count": 1,
        "seed": 1, "constants": constants,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"number": 0}, "/number"), ({"number": 1_001}, "/number"), ({"seed": -1}, "/seed"),
        ({"constants": {"launches": 1.0}}, "/constants/lanes"),
        ({"constants": {"lanes": 0}}, "/constants/lanes"),
        ({"joint": True}, "/joint"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_question_for_the_best_predicted_is_named(service, fields, pointer):
    answer = service.user.post("/v1/mappings/best", json={**ABOUT, **fields})
    assert answer.status_code == 422
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert service.solver.asked == []


def test_a_program_is_checked_by_the_solver_and_stored_once(service):
    document = {"schema": "nestmap/program/1", "kernels": []}
    service.solver.answers["describe"] = Answer(
        [], {"layer": None, "schema": "nestmap/program/1", "document": document}
    )
    first = service.user.post("/v1/programs", json={"text": "a program"})
    again = service.user.post("/v1/programs", json={"document": document})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == service.user.get(first.headers["location"]).json()
    assert service.user.get("/v1/programs").json()["items"] == [
        {"id": first.json()["id"], "schema": "nestmap/program/1"}
    ]
    assert service.user.get(f"/v1/layers/{first.json()['id']}").status_code == 404


@pytest.mark.parametrize("body", [{}, {"text": "x", "document": {}}, {"text": ""}, {"texts": "x"}])
def test_a_program_comes_in_one_form(service, body):
    assert service.user.post("/v1/programs", json=body).status_code == 422


def test_kernels_are_named_by_their_content_and_fetched_once(service):
    service.solver.answers["kernel"] = Answer([], KERNEL)
    first = service.user.post("/v1/kernels", json=ABOUT)
    again = service.user.post("/v1/kernels", json=ABOUT)
    assert (first.status_code, again.status_code) == (201, 200)
    path = first.headers["location"]
    fetched = service.user.get(path)
    assert fetched.json() == first.json() == {**KERNEL, "hash": path.rpartition("/")[2]}
    for tag in (fetched.headers["etag"], "*", f'W/{fetched.headers["etag"]}, "x"'):
        unchanged = service.user.get(path, headers={"If-None-Match": tag})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert service.user.get(path, headers={"If-None-Match": '"x"'}).status_code == 200
    source = service.user.get(f"{path}/source")
    assert source.text == KERNEL["source"]
    tag = {"If-None-Match": source.headers["etag"]}
    assert service.user.get(f"{path}/source", headers=tag).status_code == 304
    assert service.user.get("/v1/kernels/" + "0" * 64).status_code == 404


def test_what_is_no_kernel_is_none_whatever_its_hash(service):
    service.solver.answers["kernel"] = Answer([], KERNEL)
    service.user.post("/v1/kernels", json=ABOUT)
    from db.canonical import content_hash

    answer = service.user.get(f"/v1/kernels/{content_hash(KERNEL['source'])}")
    assert answer.status_code == 404


# Questions for the solver


def test_a_question_reaches_the_child_without_what_is_the_api_s(service):
    body = {**ABOUT, "pin": ["28=W0"], "limit": 2, "time_limit_s": 5, "variant": "direct"}
    service.solver.answers["mappings"] = Answer([], {"count": 0, "next": None, "of": "mappings"})
    service.user.post("/v1/mappings", json=body)
    assert service.solver.asked == [
        {"kind": "mappings", "subject": {"name": "vgg16/7"}, "variant": "direct", "mode": "strict",
         "device": "pocl", "pin": ["28=W0"], "limit": 2, "after": 0}
    ]  # fmt: skip


def test_a_cursor_goes_on_where_the_page_ended_for_the_same_question_only(service):
    service.solver.answers["mappings"] = Answer([], {"count": 2, "next": 2, "of": "mappings"})
    cursor = service.user.post("/v1/mappings", json=ABOUT).json()["next"]
    service.user.post("/v1/mappings", json={**ABOUT, "cursor": cursor, "limit": 7})
    assert (service.solver.asked[-1]["after"], service.solver.asked[-1]["limit"]) == (2, 7)
    answer = service.user.post("/v1/mappings", json={**ABOUT, "forbid": ["28=S"], "cursor": cursor})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/cursor")


@pytest.mark.parametrize(
    ("slug", "status"),
    [("invalid-input", 422), ("too-complex", 422), ("unsatisfiable", 422), ("solver-limit", 422),
     ("invalid-mapping", 422), ("unavailable", 503), ("internal", 500)],
)  # fmt: skip
def test_a_refusal_of_the_solver_is_a_problem_with_its_parts(service, slug, status):
    service.solver.answers["kernel"] = SolverProblem(
        slug, "why", [Problem("/mapping/28", "m", "f", "a", "r")], more={"conflict": {"parts": []}}
    )
    answer = service.user.post("/v1/kernels", json=ABOUT)
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (status, f"/problems/{slug}")
    assert problem["errors"][0]["pointer"] == "/mapping/28"
    assert problem["conflict"] == {"parts": []}
    assert ("retry-after" in answer.headers) == (slug == "unavailable")


def test_a_stream_ends_with_its_end_and_frees_its_child(service):
    service.solver.answers["mappings"] = Answer([{"number": 1}, {"number": 2}], {"count": 2})
    answer = service.user.post("/v1/mappings/stream", json=ABOUT)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()] == [
        {"number": 1}, {"number": 2}, {"end": {"count": 2}},
    ]  # fmt: skip
    assert service.solver.stopped == 1


def test_a_stream_that_breaks_says_so_in_its_last_line(service):
    service.solver.answers["mappings"] = Answer([{"number": 1}], {"problem": "solver-limit"})
    lines = service.user.post("/v1/mappings/stream", json=ABOUT).text.splitlines()
    last = json.loads(lines[-1])["problem"]
    assert (len(lines), last["type"], last["status"]) == (2, "/problems/solver-limit", 422)


def test_a_stream_that_cannot_begin_is_a_problem(service):
    service.solver.answers["mappings"] = Answer([], {"problem": "unsatisfiable"})
    answer = service.user.post("/v1/mappings/stream", json=ABOUT)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/unsatisfiable")
    assert service.solver.stopped == 1


# Long work


@pytest.fixture
def slow_count(service):
    """The solver's count takes until it is told to end."""
    import asyncio

    done = asyncio.Event()
    end = {"count": 5, "complete": True, "of": "mappings", "mode": "strict", "constraints": {},
           "preferences": {}}  # fmt: skip
    stopped = []

    async def ask(request, limits=None, who=""):
        try:
            await done.wait()
        except asyncio.CancelledError:
            stopped.append(request["kind"])
            raise
        return Answer([], end)

    service.solver.ask = ask
    service.finish = lambda: service.thread.loop.call_soon_threadsafe(done.set)
    service.stopped_work = stopped
    return end


def until(service, path, *states):
    import time

    deadline = time.monotonic() + 20
    while (found := service.user.get(path).json())["state"] not in states:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_work_that_takes_longer_than_preferred_becomes_an_operation(service, slow_count):
    answer = service.user.post("/v1/mappings/count", json=ABOUT, headers={"Prefer": "wait=0"})
    path = answer.headers["location"]
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    assert service.user.get(path).json()["result"] is None
    service.finish()
    done = until(service, path, "done")
    assert (done["result"], done["problem"]) == (slow_count, None)


def test_an_operation_is_cancelled_with_its_work(service, slow_count):
    answer = service.user.post("/v1/mappings/count", json=ABOUT, headers={"Prefer": "wait=0"})
    path = answer.headers["location"]
    assert service.user.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert until(service, path, "cancelled")["result"] is None
    assert service.stopped_work == ["count"]
    service.finish()


def test_an_operation_is_its_owner_s(service, slow_count):
    answer = service.admin.post("/v1/mappings/count", json=ABOUT, headers={"Prefer": "wait=0"})
    assert service.user.get(answer.headers["location"]).status_code == 404
    assert service.admin.get(answer.headers["location"]).status_code == 200
    service.finish()
    service.thread.run(service.app.state.services.operations.close())


def test_a_service_that_dies_leaves_its_operation_to_others(service, slow_count):
    answer = service.user.post("/v1/mappings/count", json=ABOUT, headers={"Prefer": "wait=0"})
    service.thread.run(service.app.state.services.operations.close())
    job = service.farm.jobs.job(answer.json()["id"])
    assert job.payload["schema"] == "nestmap/solve-job/1"
    assert job.payload["request"]["kind"] == "count"
    assert job.state == "leased"  # until its lease has run out


def test_a_failed_operation_has_its_problem(service):
    service.solver.answers["count"] = SolverProblem("solver-limit", "too much", reason="memory")

    async def later(request, limits=None, who=""):
        import asyncio

        await asyncio.sleep(0.1)
        return await type(service.solver).ask(service.solver, request, limits)

    service.solver.ask = later
    answer = service.user.post("/v1/mappings/count", json=ABOUT, headers={"Prefer": "wait=0"})
    failed = until(service, answer.headers["location"], "failed")
    assert failed["problem"]["type"] == "/problems/solver-limit"


def test_what_is_stated_reaches_the_solver_and_what_says_nothing_does_not(service):
    service.solver.answers["explain"] = Answer([], {"empty": False, "conflict": None})
    body = {**ABOUT, "where": ["code(row) == W0"], "suits": ["all"], "sequential_fusion": False,
            "free_grid": True, "replicate_private": False}  # fmt: skip
    assert service.user.post("/v1/mappings/explain", json=body).status_code == 200
    assert service.solver.asked[-1] == {
        "kind": "explain", **ABOUT, "mode": "strict", "device": "pocl", "free_grid": True,
        "where": ["code(row) == W0"], "suits": ["all"], "sequential_fusion": False,
    }  # fmt: skip
    service.user.post("/v1/mappings/explain", json={**ABOUT, "sequential_fusion": True})
    assert service.solver.asked[-1] == {
        "kind": "explain", **ABOUT, "mode": "strict", "device": "pocl",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"where": ["a < 1"] * 33}, "/where"), ({"where": ["a" * 4097]}, "/where/0"),
        ({"where": "a < 1"}, "/where"), ({"suits": [""]}, "/suits/0"),
        ({"free_grid": "yes"}, "/free_grid"),
    ],
)  # fmt: skip
def test_what_is_stated_has_bounds(service, fields, pointer):
    answer = service.user.post("/v1/mappings/explain", json={**ABOUT, **fields})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
