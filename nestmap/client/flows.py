"""What happens between a question and its answer, without sockets and clocks.

A flow is a generator that yields what is to be done next, a :class:`~nestmap.client.calls.Call`
or a :class:`Pause`, gets the reply, and returns the answer. ``Client`` and ``AsyncClient`` carry
out the same flows, so that repeats, waiting for operations and their cancellation are written
once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from mapper.errors import Problem
from nestmap.client import calls, documents
from nestmap.client.calls import MOST_ANSWER_BYTES, Call
from nestmap.client.errors import CANCELLED, TIMED_OUT, ServiceError, bad_answer, unreachable
from nestmap.client.replies import Reply, checked, document, refusal, refusal_of, retry_after_s
from nestmap.client.streams import EventLines

T = TypeVar("T")
#: Not now: nothing was done. 502 and 504 are proxies', who do not know.
_BUSY = (429, 503)
_PROXY = (502, 504)
_PENDING = ("queued", "running")
_FIRST_LOOK_S, _LATER_LOOKS_S = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


Flow = Generator[Call[Any] | Pause, Reply | None, T]


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a call is tried again.

    The waits double from ``first_s`` to ``most_s``, half of each by chance; ``Retry-After`` is
    obeyed unless it says more than ``longest_retry_after_s``: then the refusal is final.
    After ``in_all_s`` seconds a call is not tried again. ``operation_s`` is how long an operation
    is waited for.
    """

    attempts: int = 6
    first_s: float = 0.2
    most_s: float = 10.0
    longest_retry_after_s: float = 60.0
    in_all_s: float = 120.0
    operation_s: float = 3_600.0
    chance: Callable[[], float] = random.random

    def delay_s(self, attempt: int, retry_after: float | None) -> float | None:
        """The wait before attempt number ``attempt`` + 1, counted from 1; None: give up."""
        if attempt >= self.attempts or (retry_after or 0.0) > self.longest_retry_after_s:
            return None
        backoff = min(self.most_s, self.first_s * 2 ** (attempt - 1))
        return max(retry_after or 0.0, backoff * (0.5 + self.chance() / 2))


def answered(call: Call[T], patience: Patience) -> Flow[Reply]:
    """A reply, after repeats where the connection was lost or the service busy."""
    attempt, began = 0, time.monotonic()
    while True:
        attempt += 1
        wanted: float | None = None
        try:
            reply = yield call
        except ServiceError as lost:
            if lost.status or not (call.repeatable or lost.unsent):
                raise
            error = lost
        else:
            assert reply is not None
            if not (reply.status in _BUSY or (reply.status in _PROXY and call.repeatable)):
                return reply
            error, wanted = refusal(reply), retry_after_s(reply)
        delay = patience.delay_s(attempt, wanted)
        if delay is None or time.monotonic() - began > patience.in_all_s:
            raise error
        yield Pause(delay)


def exchange(call: Call[T], patience: Patience) -> Flow[T]:
    """The document that a call is answered with."""
    reply = yield from answered(call, patience)
    return document(call.shape, reply, MOST_ANSWER_BYTES)


def opened(call: Call[T], patience: Patience) -> Flow[Reply]:
    """A reply of 200 whose body is still to be read, or a 204 without one."""
    reply = yield from answered(call, patience)
    if reply.status != 204 and reply.opened is None:
        raise refusal(reply)
    return reply


def awaited(call: Call[T], patience: Patience) -> Flow[T]:
    """The answer of a question that may become an operation (202), which is waited for.

    Where the caller is interrupted meanwhile, the operation is cancelled.
    """
    reply = yield from answered(call, patience)
    if reply.status != 202:
        return document(call.shape, reply, MOST_ANSWER_BYTES)
    operation = document(documents.Operation, reply, MOST_ANSWER_BYTES)
    try:
        operation = yield from _ended(operation, patience)
    except (ServiceError, GeneratorExit) as error:
        if isinstance(error, ServiceError) and error.kind == TIMED_OUT:
            yield from _cancelled(operation)
        raise
    except BaseException:
        # Ctrl-C, or a cancelled task: the work is not wanted any more.
        yield from _cancelled(operation)
        raise
    match operation:
        case {"state": "done", "result": dict() as result}:
            return checked(call.shape, result)
        case {"state": "failed", "problem": dict() as problem}:
            raise refusal_of(problem)
        case {"state": "cancelled"}:
            raise ServiceError(CANCELLED, Problem("", "the operation was cancelled"))
        case _:
            raise bad_answer("an operation ended without a result", operation["state"])


def _ended(operation: documents.Operation, patience: Patience) -> Flow[documents.Operation]:
    waited, pause = 0.0, _FIRST_LOOK_S
    while operation["state"] in _PENDING:
        if waited >= patience.operation_s:
            allowed = f"{patience.operation_s:g} s"
            raise ServiceError(
                TIMED_OUT, Problem("", "an operation takes too long", operation["id"], allowed)
            )
        yield Pause(pause)
        waited += pause
        pause = min(2 * pause, _LATER_LOOKS_S)
        operation = yield from exchange(calls.operation(operation["id"]), patience)
    return operation


def _cancelled(operation: documents.Operation) -> Flow[None]:
    """Stop an operation, if it can be: what stopped the caller matters more."""
    try:
        yield calls.cancel_operation(operation["id"])
    except ServiceError:
        return


def again_after_s(events: EventLines, patience: Patience, failure: ServiceError | None) -> float:
    """The wait before a stream of events is opened again; raises the failure where that would
    not help, or has not helped so far."""
    if failure is not None and not failure.is_lost_connection:
        raise failure
    silent = 0 if events.alive else events.fruitless + 1
    delay = patience.delay_s(max(1, silent), events.retry_s)
    if delay is None:
        raise failure or unreachable("the stream of events ends again and again without a word")
    return delay
