"""What happens between a question and its answer: repeats, waiting, cancelling; no sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mapper.errors import InputError
from nestmap.client import ServiceError, calls, flows
from nestmap.client.calls import Call
from nestmap.client.errors import unreachable
from nestmap.client.flows import Patience, Pause
from nestmap.client.replies import Reply

STEADY = Patience(attempts=3, first_s=1.0, most_s=3.0, chance=lambda: 1.0)
JOB = "job_" + "0" * 26
VERSION = {"nestmap": "1", "api": "v1", "lease_protocol": 1}


def reply(value: Any, status: int = 200, **headers: str) -> Reply:
    kind = "application/json" if status < 400 else "application/problem+json"
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, {"content-type": kind, **named}, json.dumps(value).encode())


def problem(slug: str, status: int, **headers: str) -> Reply:
    body = {"type": f"/problems/{slug}", "title": "t", "status": status, "detail": "said"}
    return reply(body, status, **headers)


def operation(state: str, **more: Any) -> dict[str, Any]:
    return {
        "id": JOB, "kind": "count", "state": state, "created_at": "2026-01-01T00:00:00Z",
        "ended_at": None, "result": None, "problem": None, **more,
    }  # fmt: skip


def carry_out(flow: Any, *answers: Reply | BaseException) -> tuple[Any, list[Any]]:
    """The value of a flow whose calls get these answers, and everything that it did."""
    did: list[Any] = []
    given = iter(answers)
    try:
        step = next(flow)
        while True:
            did.append(step)
            if isinstance(step, Pause):
                step = flow.send(None)
                continue
            answer = next(given)
            step = flow.throw(answer) if isinstance(answer, BaseException) else flow.send(answer)
    except StopIteration as stop:
        assert next(given, None) is None
        return stop.value, did


def pauses(did: list[Any]) -> list[float]:
    return [step.seconds for step in did if isinstance(step, Pause)]


COUNT = calls.count("vgg16/7", {})


def test_lost_connections_are_tried_again_ever_later():
    lost = unreachable("gone")
    found, did = carry_out(
        flows.exchange(calls.version(), STEADY), lost, lost, reply(VERSION)
    )  # fmt: skip
    assert found == VERSION
    assert pauses(did) == [1.0, 2.0]
    with pytest.raises(ServiceError) as caught:
        carry_out(flows.exchange(calls.version(), STEADY), lost, lost, lost)
    assert caught.value is lost


def test_what_could_be_done_twice_is_sent_twice_only_if_it_was_not_sent():
    code = calls.create_enrolment(None, None)
    answer = {"code": "abc", "expires_at": "2026-01-01T00:00:00Z"}
    with pytest.raises(ServiceError):
        carry_out(flows.exchange(code, STEADY), unreachable("gone"))
    found, _ = carry_out(
        flows.exchange(code, STEADY), unreachable("refused", unsent=True), reply(answer, 201)
    )
    assert found == answer
    # A proxy's word does not say whether it was done, the service's does.
    with pytest.raises(ServiceError):
        carry_out(flows.exchange(code, STEADY), Reply(502, {}, b""))
    found, _ = carry_out(
        flows.exchange(code, STEADY), problem("unavailable", 503), reply(answer, 201)
    )
    assert found == answer


def test_retry_after_is_obeyed_and_too_long_a_wait_is_a_refusal():
    busy = problem("unavailable", 503, retry_after="7")
    found, did = carry_out(flows.exchange(calls.version(), STEADY), busy, reply(VERSION))
    assert found == VERSION and pauses(did) == [7.0]
    later = problem("too-many-requests", 429, retry_after="86400")
    with pytest.raises(ServiceError) as caught:
        carry_out(flows.exchange(calls.version(), STEADY), later)
    assert (caught.value.kind, caught.value.status) == ("too-many-requests", 429)


def test_a_refusal_is_not_tried_again():
    with pytest.raises(ServiceError) as caught:
        carry_out(flows.exchange(calls.version(), STEADY), problem("forbidden", 403))
    assert caught.value.kind == "forbidden" and str(caught.value) == "said"


COUNTED = {
    "count": 3, "at_least": None, "complete": True, "of": "mappings", "mode": "strict",
    "constraints": {}, "preferences": {},
}  # fmt: skip


def test_an_operation_is_waited_for_as_if_it_had_been_done_at_once():
    found, did = carry_out(
        flows.awaited(COUNT, STEADY),
        reply(operation("running"), 202),
        reply(operation("queued")),
        reply(operation("done", result=COUNTED)),
    )
    assert found == COUNTED
    asked = [step.path for step in did if isinstance(step, Call)]
    assert asked == ["/v1/mappings/count", *2 * [f"/v1/operations/{JOB}"]]


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (operation("failed", problem={"type": "/problems/solver-limit", "detail": "x"}),
         "solver-limit"),
        (operation("cancelled"), "cancelled"),
        (operation("done"), "bad-answer"),
        (operation("done", result={"count": "three"}), "bad-answer"),
    ],
)  # fmt: skip
def test_an_operation_that_did_not_do_it_is_an_error(ended: dict[str, Any], kind: str):
    with pytest.raises(ServiceError) as caught:
        carry_out(flows.awaited(COUNT, STEADY), reply(operation("running"), 202), reply(ended))
    assert caught.value.kind == kind


@pytest.mark.parametrize("how", [KeyboardInterrupt(), SystemExit()])
def test_whoever_is_interrupted_while_waiting_cancels_the_operation(how: BaseException):
    flow = flows.awaited(COUNT, STEADY)
    did: list[Any] = []
    with pytest.raises(type(how)):
        step = next(flow)
        step = flow.send(reply(operation("running"), 202))
        assert isinstance(step, Pause)
        did.append(flow.throw(how))
        flow.send(reply(operation("cancelled")))
    (cancel,) = did
    assert (cancel.method, cancel.path) == ("POST", f"/v1/operations/{JOB}/cancel")


def test_an_operation_without_end_is_cancelled_in_the_end():
    patience = Patience(operation_s=0.5, chance=lambda: 0.0)
    running = [reply(operation("running"))] * 3
    with pytest.raises(ServiceError) as caught:
        carry_out(
            flows.awaited(COUNT, patience), reply(operation("running"), 202), *running,
            problem("conflict", 409),
        )  # fmt: skip
    assert caught.value.kind == "timed-out"


def test_a_run_has_a_key_of_its_own_that_stays_when_it_is_sent_again():
    def key(call: Call[Any]) -> str:
        return dict(call.headers)["Idempotency-Key"]

    first = calls.create_run("dev_1", "vgg16/7", {}, None)
    _, did = carry_out(flows.answered(first, STEADY), unreachable("gone"), reply({}, 201))
    sent = [step for step in did if isinstance(step, Call)]
    assert len(sent) == 2 and key(sent[0]) == key(sent[1])
    assert key(first) != key(calls.create_run("dev_1", "vgg16/7", {}, None))
    assert key(calls.create_run("dev_1", "vgg16/7", {}, "mine")) == "mine"
    with pytest.raises(InputError):
        calls.create_run("dev_1", "vgg16/7", {}, "two\nlines")


@pytest.mark.parametrize("name", ["", "..", "."])
def test_a_name_is_one_part_of_a_path(name: str):
    with pytest.raises(InputError):
        calls.run(name)
    assert calls.run("a/../b?c#d").path == "/v1/runs/a%2F..%2Fb%3Fc%23d"


def test_a_page_that_is_followed_by_itself_ends_the_list():
    listing = calls.runs({"label": "x"})
    page = {"items": [], "next": "abc"}
    second = listing.after(listing.first, page)  # pyright: ignore[reportArgumentType]
    assert second is not None and dict(second.query) == {"label": "x", "cursor": "abc"}
    with pytest.raises(ServiceError, match="followed by itself"):
        listing.after(second, page)  # pyright: ignore[reportArgumentType]


def test_what_is_no_json_is_refused_before_anything_is_sent():
    with pytest.raises(InputError, match="cannot be written as JSON"):
        calls.check("vgg16/7", {"mapping": {"a": float("nan")}}, {})
