"""Messages between the measuring parent and its child: length-prefixed JSON over pipes.

Nothing is ever unpickled, so that a child whose memory a kernel scribbled over can at most
send nonsense, never code. Arrays travel as ``.npy`` files in a private directory.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
    outcome_detail,
    outcome_kind,
)

_HEADER = struct.Struct("<Q")
#: Larger than any plan; a longer message can only be a corrupted length.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class StreamEnded(Exception):
    """The other side closed its end."""


class DeadlinePassed(Exception):
    """Nothing (more) came, or nothing could be sent, before the deadline."""


class BadMessage(Exception):
    """What came is not a message."""


def _wait(descriptor: int, event: int, deadline: float | None) -> None:
    """Wait until ``descriptor`` is ready or raise DeadlinePassed (monotonic seconds)."""
    poll = select.poll()
    poll.register(descriptor, event)
    remaining_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    if not poll.poll(remaining_ms):
        raise DeadlinePassed


def _read_exactly(descriptor: int, count: int, deadline: float | None) -> bytes:
    chunks: list[bytes] = []
    while count:
        _wait(descriptor, select.POLLIN, deadline)
        try:
            chunk = os.read(descriptor, min(count, 1 << 20))
        except BlockingIOError:  # somebody else was faster
            continue
        if not chunk:
            raise StreamEnded
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def send(descriptor: int, message: dict[str, Any], deadline: float | None = None) -> None:
    """Write one message; raises StreamEnded when nobody reads, DeadlinePassed when late.

    A sender with a deadline must have made ``descriptor`` non-blocking.
    """
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"message of {len(body)} bytes; allowed: {MAX_MESSAGE_BYTES}")
    view = memoryview(_HEADER.pack(len(body)) + body)
    while view:
        _wait(descriptor, select.POLLOUT, deadline)
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            raise StreamEnded from None


def receive(descriptor: int, deadline: float | None = None) -> dict[str, Any]:
    """Read one message; raises StreamEnded, DeadlinePassed or BadMessage."""
    (count,) = _HEADER.unpack(_read_exactly(descriptor, _HEADER.size, deadline))
    if count > MAX_MESSAGE_BYTES:
        raise BadMessage(f"length prefix says {count} bytes")
    try:
        message = json.loads(_read_exactly(descriptor, count, deadline))
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
    if not isinstance(message, dict):
        raise BadMessage("not an object")
    return message


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """A plain JSON value; :func:`outcome_from_json` reads it back."""
    value = {"kind": outcome_kind(outcome), **outcome_detail(outcome)}
    if isinstance(outcome, Timed):
        value["trials_ns"] = list(outcome.trials_ns)
        if outcome.spans_ns:
            value["spans_ns"] = list(outcome.spans_ns)
    return value


def outcome_from_json(value: dict[str, Any]) -> Outcome:
    """Read what :func:`outcome_to_json` wrote; raises BadMessage for an unknown kind."""
    match value["kind"]:
        case "timed":
            return Timed(
                tuple(value["trials_ns"]),
                float(value["max_relative_error"]),
                float(value["compile_ms"]),
                dict(value["facts"]),
                tuple(value.get("spans_ns", ())),  # recordings of before have none
            )
        case "wrong":
            return Wrong(
                float(value["max_relative_error"]),
                tuple(value["first_bad_index"]),
                value["message"],
            )
        case "compile-error":
            return CompileError(value["message"])
        case "resource-error":
            return ResourceError(value["message"])
        case "timeout":
            return Timeout(float(value["after_s"]))
        case "crash":
            return Crash(value["exit_code"], value["message"])
        case kind:
            raise BadMessage(f"unknown outcome kind {kind!r}")
