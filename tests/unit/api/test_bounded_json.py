"""Bodies are bounded in bytes, time and structure before anything works on them."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.bounded_json import DEFAULT_BOUNDS, BodyLimit, JsonBounds, read_json
from api.problems import ProblemError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")), inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_whatever_is_acceptable_json_is_read_as_it_is(value):
    assert read_json(json.dumps(value).encode(), DEFAULT_BOUNDS) == value


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nope", b"[1,]", b"\xff\xfe", b'{"a": 1, "a": 2}', b"NaN", b"[Infinity]",
        b"[1e999]", b"[1000000000000000000000000000000]", b"[-9223372036854775809]",
        rb'["\ud800"]', rb'{"\udfff": 1}', rb'["\u0000"]', b'["\x00"]', b"[" * 100_000,
        b'{"a":' * 5_000, b"[" * 600 + b"]" * 600, b"\xed\xa0\x80", b"{}" * 2,
    ],
    ids=lambda body: body[:24],
)  # fmt: skip
def test_what_is_no_acceptable_json_is_refused_as_such(body):
    with pytest.raises(ProblemError) as refusal:
        read_json(body, DEFAULT_BOUNDS)
    assert refusal.value.type.slug == "malformed-json"


@pytest.mark.parametrize(("depth", "accepted"), [(64, True), (65, False)])
def test_levels_are_counted_exactly(depth, accepted):
    body = b"[" * (depth - 1) + b"1" + b"]" * (depth - 1)
    if accepted:
        read_json(body, JsonBounds(levels=64))
        return
    with pytest.raises(ProblemError) as refusal:
        read_json(body, JsonBounds(levels=64))
    assert refusal.value.type.slug == "too-complex"
    assert refusal.value.errors[0].allowed == "64 levels"


@pytest.mark.parametrize(("members", "accepted"), [(99, True), (100, False)])
def test_values_are_counted_exactly(members, accepted):
    body = json.dumps([0] * members).encode()
    if accepted:
        assert len(read_json(body, JsonBounds(values=100))) == members
        return
    with pytest.raises(ProblemError) as refusal:
        read_json(body, JsonBounds(values=100))
    assert refusal.value.type.slug == "too-complex"


def run_limited(chunks, headers=(), timeout_s=5.0, pause_s=0.0):
    """What an application that reads its whole body sees behind a limit of 100 bytes."""
    sent = []
    read = bytearray()

    async def app(scope, receive, send):
        while True:
            message = await receive()
            read.extend(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run():
        waiting = list(chunks)

        async def receive():
            await asyncio.sleep(pause_s)
            body = waiting.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(waiting)}

        async def send(message):
            sent.append(message)

        limit = BodyLimit(app, 100, timeout_s)
        await limit({"type": "http", "headers": list(headers)}, receive, send)

    asyncio.run(run())
    return sent, bytes(read)


def test_a_body_at_the_limit_passes():
    sent, read = run_limited([b"x" * 60, b"x" * 40])
    assert (sent[0]["status"], len(read)) == (200, 100)


def test_a_body_declared_too_long_is_refused_before_it_is_read():
    sent, read = run_limited([b"x"], headers=[(b"content-length", b"101")])
    assert (sent[0]["status"], read) == (413, b"")


def test_a_chunked_body_is_refused_at_the_byte_that_is_too_many():
    with pytest.raises(ProblemError) as refusal:
        run_limited([b"x" * 60, b"x" * 41, b"x" * 1_000_000])
    assert refusal.value.type.slug == "body-too-large"


def test_a_body_that_trickles_is_given_up():
    with pytest.raises(ProblemError) as refusal:
        run_limited([b"x"] * 90, timeout_s=0.05, pause_s=0.01)
    assert refusal.value.type.slug == "malformed-request"
