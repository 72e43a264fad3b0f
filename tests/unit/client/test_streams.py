"""Lines and events from bytes as they come, hostile ones too."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestmap.client import Patience, ServiceError, flows
from nestmap.client.errors import unreachable
from nestmap.client.streams import EventLines, Lines, MappingLines, RunEvent

NDJSON = b'{"number":1,"mapping":{"a":0}}\n{"number":2,"mapping":{"a":1}}\n'
END = b'{"end":{"count":2,"next":null,"of":"mappings"}}\n'
EVENTS = (
    b'retry: 100\n\nid: 3\nevent: measured\ndata: {"a":1}\n\n: still here\n\n'
    b'event: gap\ndata: {"after": 3}\n\nid: 9\nevent: run-state\ndata: {\ndata: }\n\n'
    b'event: end\ndata: {"state":"finished"}\n\n'
)
HEARD = [
    RunEvent("measured", {"a": 1}, 3),
    RunEvent("gap", {"after": 3}),
    RunEvent("run-state", {}, 9),
    RunEvent("end", {"state": "finished"}),
]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_it_does_not_matter_how_the_network_cuts_a_stream(places: list[int]):
    mappings = MappingLines()
    found = [item for piece in cut(NDJSON + END, places) for item in mappings.feed(piece)]
    mappings.finish()
    assert [item["number"] for item in found] == [1, 2]
    assert mappings.end == {"count": 2, "next": None, "of": "mappings"}
    events = EventLines()
    assert [e for piece in cut(EVENTS, places) for e in events.feed(piece)] == HEARD
    assert (events.last, events.ended, events.retry_s) == (9, True, 0.1)


def test_a_stream_that_was_cut_off_is_not_taken_for_a_whole_one():
    for part in (b"", NDJSON, NDJSON + END[:-5]):
        mappings = MappingLines()
        list(mappings.feed(part))
        with pytest.raises(ServiceError, match="cut off"):
            mappings.finish()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"[1]\n", "bad-answer"),
        (b"nonsense\n", "bad-answer"),
        (b"\xff\n", "bad-answer"),
        (b'{"a":NaN}\n', "bad-answer"),
        (b"[" * 1_000 + b"\n", "bad-answer"),
        (b'{"end":{"count":"2"}}\n', "bad-answer"),
        (END + b'{"number":3}\n', "bad-answer"),
        (b'{"problem":{"type":"/problems/solver-limit","detail":"late"}}\n', "solver-limit"),
        (b'{"problem":{"type":"about:blank"}}\n', "bad-answer"),
    ],
)
def test_a_line_that_is_not_as_promised_is_an_error(line: bytes, kind: str):
    with pytest.raises(ServiceError) as caught:
        list(MappingLines().feed(line))
    assert caught.value.kind == kind


def test_lines_and_events_are_bounded():
    lines = Lines(most_bytes=10)
    assert list(lines.feed(b"123456789\r\n1234")) == [b"123456789", *()]
    with pytest.raises(ServiceError, match="too long"):
        list(lines.feed(b"1234567"))
    with pytest.raises(ServiceError, match="too long"):
        list(Lines(most_bytes=3).feed(b"1234\n"))
    piece = b"data: " + b"1" * 2**20 + b"\n"
    with pytest.raises(ServiceError, match="event is too long"):
        events = EventLines()
        for _ in range(6):
            list(events.feed(piece))


@pytest.mark.parametrize(
    "event", [b"id: x\ndata: {}\n\n", b"id: -1\ndata: {}\n\n", b"data: 1\n\n", b"data: \xff\n\n"]
)
def test_an_event_that_is_not_as_promised_is_an_error(event: bytes):
    with pytest.raises(ServiceError):
        list(EventLines().feed(event))


def test_a_new_connection_begins_with_a_whole_event_behind_the_last_one():
    events = EventLines()
    list(events.feed(b'id: 3\nevent: measured\ndata: {"a":1}\n\nid: 4\nevent: meas'))
    events.again()
    assert events.last == 3
    assert list(events.feed(b'id: 4\nevent: x\ndata: {"b":2}\n\n')) == [RunEvent("x", {"b": 2}, 4)]


def test_streams_that_say_nothing_are_opened_a_few_times_only():
    patience = Patience(attempts=3, first_s=0.01, chance=lambda: 0.0)
    lost, events = unreachable("gone"), EventLines()
    list(events.feed(b": alive\n\n"))
    for _ in range(5):  # as long as something is heard between two losses
        assert flows.again_after_s(events, patience, lost) > 0
        events.again()
        list(events.feed(b": alive\n\n"))
    events.again()
    assert flows.again_after_s(events, patience, None) > 0
    events.again()
    assert flows.again_after_s(events, patience, None) > 0
    events.again()
    with pytest.raises(ServiceError, match="without a word"):
        flows.again_after_s(events, patience, None)
    refused = ServiceError("not-found", lost.problems[0])
    with pytest.raises(ServiceError) as caught:
        flows.again_after_s(EventLines(), patience, refused)
    assert caught.value is refused


def test_mappings_of_a_tuning_space_may_have_any_names():
    (found,) = MappingLines().feed(json.dumps({"end": 1, "x": 2}).encode() + b"\n")
    assert found == {"end": 1, "x": 2}
