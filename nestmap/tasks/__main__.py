"""A solver child: requests on stdin, replies on stdout (``python -m nestmap.tasks``).

A thread reads stdin, so that ``{"cancel": "<id>"}`` is heard while a request is worked on. The
end of stdin ends the child once everything is answered.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from dataclasses import dataclass
from typing import Any, BinaryIO

from mapper.ast_model.bounded_json import loads_bounded
from mapper.errors import InputError, LimitError, NestmapError, Problem
from mapper.solver.limits import Cancelled, Watch
from nestmap.tasks import kernels, kinds, portraits, proposals, schedules
from nestmap.tasks import limits as task_limits
from nestmap.tasks.context import Context, Kind
from nestmap.tasks.known_spaces import KnownSpaces
from nestmap.tasks.replies import Replies, problem, problem_of
from nestmap.tasks.request_fields import (
    MAX_REQUEST_BYTES,
    MAX_REQUEST_DEPTH,
    Envelope,
    read_envelope,
    request_id,
)
from nestmap.tasks.run_search import Searches

SCHEMA = "nestmap/solver-task/1"
KINDS: dict[str, Kind] = {
    "describe": kinds.describe,
    "constraints": kinds.constraints,
    "waterfall": kinds.waterfall,
    "mappings": kinds.mappings,
    "count": kinds.count,
    "sample": kinds.sample,
    "best": kinds.best,
    "check": kinds.check,
    "explain": kinds.explain,
    "kernel": kernels.kernel,
    "derive": schedules.derive,
    "sketches": schedules.sketches,
    "portrait": portraits.portrait,
    "prediction": portraits.prediction,
    "propose": proposals.propose,
}
#: Spaces that are kept between requests may take this share of a request's memory.
_KEPT_SHARE = 0.4
_CANCEL_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What a child remembers from one request to the next."""

    spaces: KnownSpaces
    searches: Searches


class Incoming:
    """Lines of stdin, read by a thread; who was cancelled is known at once."""

    def __init__(self, stdin: BinaryIO) -> None:
        self._stdin = stdin
        self._lines: queue.Queue[bytes | None] = queue.Queue(1)
        self._cancelled: set[str] = set()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> bytes | None:
        """The next request; None when there are no more."""
        return self._lines.get()

    def is_cancelled(self, request: str) -> bool:
        """Whether somebody asked to stop this request."""
        return request in self._cancelled

    def forget(self, request: str) -> None:
        """The request is over."""
        self._cancelled.discard(request)

    def _read(self) -> None:
        while line := self._stdin.readline(MAX_REQUEST_BYTES + 2):
            if len(line) < _CANCEL_BYTES and b'"cancel"' in line and self._cancel(line):
                continue
            # The rest of a line that is too long is dropped; its beginning is refused.
            while len(line) > MAX_REQUEST_BYTES and not line.endswith(b"\n"):
                rest = self._stdin.readline(MAX_REQUEST_BYTES)
                if not rest or rest.endswith(b"\n"):
                    break
            if line.strip():
                self._lines.put(line)
        self._lines.put(None)

    def _cancel(self, line: bytes) -> bool:
        try:
            value = loads_bounded(line, _CANCEL_BYTES, 4)
        except InputError:
            return False
        if not isinstance(value, dict) or set(value) != {"cancel"}:
            return False
        self._cancelled.add(str(value["cancel"]))
        return True


def main(arguments: list[str], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer every request; the exit status."""
    if arguments not in ([], ["--end-with-parent"]):
        sys.stderr.write("usage: python -m nestmap.tasks [--end-with-parent]\n")
        return 2
    task_limits.set_lasting_limits("--end-with-parent" in arguments)
    kept = Kept(KnownSpaces(), Searches())
    incoming = Incoming(stdin)
    Replies(stdout, "").ready({"schema": SCHEMA, "pid": os.getpid(), "kinds": list(KINDS)})
    while (line := incoming.next()) is not None:
        if not answer(line, kept, stdout, incoming):
            return task_limits.EXIT_MEMORY
    return 0


def answer(line: bytes, kept: Kept, stdout: BinaryIO, incoming: Incoming) -> bool:
    """Answer one request. False if the process should end: it has run out of memory."""
    try:
        envelope = read_envelope(line, tuple(KINDS))
    except InputError as error:
        Replies(stdout, _id_of(line)).problem(problem("malformed-request", error.problems))
        return True
    replies = Replies(stdout, envelope.id)
    replies.begun()
    task_limits.begin(envelope.limits)
    watch = Watch(
        envelope.limits.for_solver(), cancelled=lambda: incoming.is_cancelled(envelope.id)
    )
    try:
        context = Context(kept.spaces, kept.searches, watch, envelope.limits)
        KINDS[envelope.kind](envelope, context, replies)
        return True
    except MemoryError:
        found = _out_of_memory(envelope)
        replies.problem(problem("solver-limit", (found,), reason="memory", ends=True))
        return False
    except Cancelled:
        replies.problem(problem("cancelled", (Problem("", "the caller asked to stop"),)))
    except NestmapError as error:
        late = isinstance(error, LimitError) and watch.left_s == 0
        replies.problem(_out_of_time(envelope) if late else problem_of(error))
    except BrokenPipeError:
        raise
    except Exception as error:
        found = Problem("", "an unexpected failure", f"{type(error).__name__}: {error}")
        replies.problem(problem("internal", (found,)))
    finally:
        task_limits.end()
        incoming.forget(envelope.id)
        kept.spaces.shrink(int(envelope.limits.memory_bytes * _KEPT_SHARE))
    # What was computed for a request that did not end well may be half done.
    kept.spaces.forget_parts(envelope.fields)
    return True


def _out_of_time(envelope: Envelope) -> dict[str, Any]:
    allowed = f"{envelope.limits.wall_s:g} s"
    found = Problem("", "the time limit was reached", "", allowed, "a longer time limit")
    return problem("solver-limit", (found,), reason="time")


def _out_of_memory(envelope: Envelope) -> Problem:
    allowed = f"{envelope.limits.memory_bytes / 2**20:.0f} MiB"
    return Problem("", "the request needs more memory than it may use", "", allowed)


def _id_of(line: bytes) -> str:
    """The id of a request that is refused, where it can be read at all."""
    try:
        value = loads_bounded(line, MAX_REQUEST_BYTES, MAX_REQUEST_DEPTH)
    except InputError:
        return ""
    return request_id(value) if isinstance(value, dict) else ""


if __name__ == "__main__":
    # Whatever a library prints must not stand among the replies.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        sys.exit(main(sys.argv[1:], sys.stdin.buffer, out))
    except BrokenPipeError:
        os._exit(0)
