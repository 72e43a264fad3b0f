"""Streams of lines and of server-sent events, read from bytes as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mapper.ast_model.bounded_json import loads_bounded
from mapper.errors import InputError
from nestmap.client.documents import StreamEnd
from nestmap.client.errors import bad_answer, unreachable
from nestmap.client.replies import checked, refusal_of

MOST_LINE_BYTES = 4 * 2**20
_MOST_DEPTH = 200
_LONGEST_RETRY_S = 30.0


class Lines:
    """Cuts bytes into lines, none of them longer than a bound."""

    def __init__(self, most_bytes: int = MOST_LINE_BYTES) -> None:
        self._rest = bytearray()
        self._most_bytes = most_bytes

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in this piece, without their ends; ServiceError past the bound."""
        self._rest += piece
        begin = 0
        while (end := self._rest.find(b"\n", begin)) >= 0:
            line = bytes(self._rest[begin:end])
            begin = end + 1
            if len(line) > self._most_bytes:
                break
            yield line.removesuffix(b"\r")
        else:
            del self._rest[:begin]
            if len(self._rest) <= self._most_bytes:
                return
        raise bad_answer("a line is too long", f"over {self._most_bytes} bytes")


class MappingLines:
    """NDJSON of mappings: each as it is found; the last line says how it ended."""

    def __init__(self) -> None:
        self._lines = Lines()
        self.end: StreamEnd | None = None

    def feed(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """The mappings of this piece. ServiceError for what is none, and for a ``problem``."""
        for line in self._lines.feed(piece):
            if self.end is not None:
                raise bad_answer("something follows the end of a stream", repr(line[:80]))
            value = _object(line)
            if set(value) == {"end"}:
                self.end = checked(StreamEnd, value["end"])
            elif set(value) == {"problem"} and isinstance(value["problem"], dict):
                raise refusal_of(value["problem"])
            else:
                yield value

    def finish(self) -> None:
        """The bytes have ended; ServiceError where the stream was cut off."""
        if self.end is None:
            raise unreachable("the stream of mappings was cut off: it has no end")


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened to a run.

    ``kind`` is ``run-created``, ``measured``, …, or ``gap`` where old events were dropped (read
    the run anew), or ``end``, the last one. ``id`` is what to go on behind; None has no place.
    """

    kind: str
    data: dict[str, Any]
    id: int | None = None


class EventLines:
    """Server-sent events (WHATWG HTML, section 9.2.6) with ids that are numbers.

    ``last`` is the id of the last event heard, ``retry_s`` what the service wants between two
    connections, ``alive`` whether an event or a heartbeat was heard since :meth:`again`,
    ``fruitless`` how many connections in a row said nothing.
    """

    def __init__(self, after: int = 0) -> None:
        self.last = after
        self.retry_s = 2.0
        self.ended = False
        self.fruitless = 0
        self.alive = True
        self.again()

    def again(self) -> None:
        """Another connection begins: half an event of the one before is forgotten."""
        self.fruitless = 0 if self.alive else self.fruitless + 1
        self._lines = Lines()
        self._bytes = 0
        self._fields: dict[str, str] = {}
        self._data: list[str] = []
        self.alive = False

    def feed(self, piece: bytes) -> Iterator[RunEvent]:
        """The events that end in this piece; ServiceError for what is none."""
        for line in self._lines.feed(piece):
            if not line:
                found = self._event()
                if found is not None:
                    self.alive = True
                    self.ended = found.kind == "end"
                    yield found
                continue
            self._bytes += len(line)
            if self._bytes > MOST_LINE_BYTES:
                raise bad_answer("an event is too long", f"over {MOST_LINE_BYTES} bytes")
            self._field(line)

    def _field(self, line: bytes) -> None:
        self.alive = self.alive or line.startswith(b":")  # a heartbeat
        try:
            name, _, value = line.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            raise bad_answer("an event is not UTF-8", repr(line[:80])) from None
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "retry" and value.isdecimal() and len(value) < 10:
            self.retry_s = min(max(int(value) / 1000, 0.05), _LONGEST_RETRY_S)
        elif name in ("id", "event"):
            self._fields[name] = value

    def _event(self) -> RunEvent | None:
        fields, data = self._fields, self._data
        self._fields, self._data, self._bytes = {}, [], 0
        if not data:
            return None
        number = fields.get("id")
        if number is not None:
            if not (number.isdecimal() and number.isascii() and len(number) < 19):
                raise bad_answer("an event's id is no number", number)
            self.last = int(number)
        value = _object("\n".join(data).encode())
        return RunEvent(
            fields.get("event", "message"), value, None if number is None else self.last
        )


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = loads_bounded(line, MOST_LINE_BYTES, _MOST_DEPTH)
    except InputError as error:
        raise bad_answer("a line is not acceptable JSON", str(error)) from None
    if not isinstance(value, dict):
        raise bad_answer("a line is not an object", repr(line[:80]))
    return value
