"""HTTP calls to the server: one connection kept open, everything bounded, every failure sorted.

What the protocol calls final (400, 401, 403, 404, 409, 410, 413, 422) raises Refused; whatever
else is no success raises TryAgain, be it a status, a lost connection or an answer that is
nonsense. Redirects are not followed: the token goes to the server that the owner named.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

from worker.agent import AGENT_VERSION
from worker.agent.bounded import NotAcceptable, read_object
from worker.agent.failures import AgentExit, AgentFailure, Refused, TryAgain

#: 410 and 413 beside the statuses that the protocol lists: a used code stays used, and a body
#: does not shrink by being sent again.
FINAL_STATUSES = frozenset({400, 401, 403, 404, 409, 410, 413, 422})
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_CONNECT_TIMEOUT_S = 10.0
_CHUNK_BYTES = 64 * 1024
_LONGEST_RETRY_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class Address:
    """A server's URL in parts; ``prefix`` is the path before ``/v1``."""

    secure: bool
    host: str
    port: int
    prefix: str

    @staticmethod
    def of(url: str) -> Address:
        """Read http(s)://host[:port][/prefix]; raises AgentFailure for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _bad_url(url, str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _bad_url(url, "http:// or https:// and a host are wanted")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise _bad_url(url, "user, password, query or fragment have no place in it")
        secure = parts.scheme == "https"
        return Address(secure, parts.hostname, port or (443 if secure else 80), parts.path)

    @property
    def is_loopback(self) -> bool:
        """Whether nobody else can listen on the way."""
        return self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"


def _bad_url(url: str, why: str) -> AgentFailure:
    return AgentFailure(f"--url: {ascii(url)[:200]}: {why}", AgentExit.BAD_OPTIONS)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """TLS with certificates verified, by ``ca_file`` where the site has its own authority."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise AgentFailure(f"--ca-file: {ca_file}: {error}", AgentExit.BAD_OPTIONS) from None


class HttpCalls:
    """Calls of one thread; another thread takes a :meth:`sibling`."""

    def __init__(self, url: str, token: str, ca_file: str | None = None) -> None:
        self.address = Address.of(url)
        self._token = token
        self._tls = tls_context(ca_file) if self.address.secure else None
        self._connection: http.client.HTTPConnection | None = None
        self._interrupted = False

    def sibling(self) -> HttpCalls:
        """The same server and token with a connection of its own."""
        other = object.__new__(HttpCalls)
        other.address, other._token, other._tls = self.address, self._token, self._tls
        other._connection = None
        other._interrupted = False
        return other

    def use_token(self, token: str) -> None:
        """Send this token from now on."""
        self._token = token

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Make a call that waits for its answer end with TryAgain, from a signal handler.

        A call that has not connected yet, or would connect again, ends so too, until
        :meth:`resume`.
        """
        self._interrupted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def resume(self) -> None:
        """Make calls as before the interrupt."""
        self._interrupted = False

    def post(
        self, path: str, body: dict[str, Any], *, timeout_s: float = 20.0
    ) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object of the answer (empty for 204).

        Raises Refused or TryAgain, the latter at the latest after ``timeout_s``.
        """
        text = json.dumps(body, allow_nan=False).encode()
        return self._exchange("POST", path, text, timeout_s)

    def get(self, path: str, *, timeout_s: float = 20.0) -> dict[str, Any]:
        """The JSON object at a path; raises as :meth:`post` does."""
        return self._exchange("GET", path, None, timeout_s)[1]

    def _exchange(
        self, method: str, path: str, text: bytes | None, timeout_s: float
    ) -> tuple[int, dict[str, Any]]:
        deadline = time.monotonic() + timeout_s
        with self._failures_sorted():
            response = self._request(method, path, text, timeout_s)
            answer = bytearray()
            _read(response, answer.extend, MAX_ANSWER_BYTES, deadline)
            self._check_status(response, bytes(answer))
            return response.status, read_object(bytes(answer)) if answer else {}

    def download(
        self,
        path: str,
        sink: Callable[[bytes], object],
        *,
        most_bytes: int,
        timeout_s: float = 300.0,
    ) -> None:
        """Pass the bytes at a path to ``sink`` as they come; raises as :meth:`post` does."""
        deadline = time.monotonic() + timeout_s
        with self._failures_sorted():
            response = self._request("GET", path, None, timeout_s)
            if response.status != 200:
                answer = bytearray()
                _read(response, answer.extend, MAX_ANSWER_BYTES, deadline)
                self._check_status(response, bytes(answer))
                raise TryAgain(f"status {response.status} where bytes were expected")
            _read(response, sink, most_bytes, deadline)

    @contextlib.contextmanager
    def _failures_sorted(self) -> Any:
        """A failed call leaves no half-read connection behind."""
        try:
            yield
        except Refused:
            raise
        except TryAgain:
            self.close()
            raise
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise TryAgain(f"the server's certificate is not trusted: {error}") from None
        except (OSError, http.client.HTTPException, NotAcceptable) as error:
            self.close()
            raise TryAgain(f"{type(error).__name__}: {error}".strip(": ")) from None
        except BaseException:
            self.close()
            raise

    def _request(
        self, method: str, path: str, text: bytes | None, timeout_s: float
    ) -> http.client.HTTPResponse:
        reused = self._connection is not None
        try:
            return self._send(method, path, text, timeout_s)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not reused or self._interrupted:
                raise
            # The server closed a connection that was idle; that is no failure of it.
            self.close()
            return self._send(method, path, text, timeout_s)

    def _send(
        self, method: str, path: str, text: bytes | None, timeout_s: float
    ) -> http.client.HTTPResponse:
        connection = self._connected()
        if self._interrupted:
            raise TryAgain("interrupted")
        assert connection.sock is not None
        connection.sock.settimeout(timeout_s)
        connection.response_class = _answers_until(time.monotonic() + timeout_s)
        headers = {
            "Accept": "application/json",
            "User-Agent": f"nestmap-agent/{AGENT_VERSION}",
        }
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if text is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, self.address.prefix.rstrip("/") + path, text, headers)
        return connection.getresponse()

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self.address.host, self.address.port
            if self._tls is not None:
                connection = http.client.HTTPSConnection(
                    host, port, timeout=_CONNECT_TIMEOUT_S, context=self._tls
                )
            else:
                connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_TIMEOUT_S)
            connection.connect()
            self._connection = connection
        elif self._connection.sock is None:  # the server said that it would close it
            self._connection.connect()
        return self._connection

    def _check_status(self, response: http.client.HTTPResponse, answer: bytes) -> None:
        if 200 <= response.status < 300:
            return
        kind, detail = _problem(answer)
        if response.status in FINAL_STATUSES:
            raise Refused(response.status, kind, detail)
        raise TryAgain(f"status {response.status} {detail}".strip(), _retry_after(response))


class _Until(io.RawIOBase):
    """Bytes of a socket until a moment, however slowly they drip: a timeout of the socket's own
    begins anew with every byte."""

    def __init__(self, source: socket.SocketIO, sock: socket.socket, deadline: float) -> None:
        self._source = source
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """As of the socket; TimeoutError after the deadline."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(left_s)
        return self._source.readinto(buffer)

    def close(self) -> None:
        """Close the socket's side of it, too."""
        self._source.close()
        super().close()


class _Bounded:
    """A socket for a response to read from."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        """What the response reads; ``mode`` is ``rb``."""
        del mode
        source = self._sock.makefile("rb", buffering=0)
        return io.BufferedReader(_Until(source, self._sock, self._deadline))


def _answers_until(deadline: float) -> Any:
    """A class of responses that are there, head and body, at that moment or not at all."""

    def response(sock: socket.socket, **more: Any) -> http.client.HTTPResponse:
        # Of the socket a response takes nothing but this one method.
        return http.client.HTTPResponse(cast("socket.socket", _Bounded(sock, deadline)), **more)

    return response


def _read(
    response: http.client.HTTPResponse,
    sink: Callable[[bytes], object],
    most_bytes: int,
    deadline: float,
) -> None:
    """Read a body to its end; TryAgain if it is too long, too slow or cut short."""
    count = 0
    while chunk := response.read1(_CHUNK_BYTES):
        count += len(chunk)
        if count > most_bytes:
            raise TryAgain(f"an answer of more than {most_bytes} bytes")
        if time.monotonic() > deadline:
            raise TryAgain("the answer took too long")
        sink(chunk)
    # read1 does not complain of a body that ends before its Content-Length.
    if response.length:
        raise TryAgain(f"the answer ended {response.length} bytes early")
    response.read()


def _problem(answer: bytes) -> tuple[str, str]:
    """Name and detail of an RFC 9457 problem; empty texts for anything else."""
    try:
        value = read_object(answer)
    except NotAcceptable:
        return "", ""
    kind = str(value.get("type", "")).rpartition("/")[2]
    return kind[:100], str(value.get("detail", value.get("title", "")))[:500]


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    """Seconds of Retry-After; a date counts from the server's own clock, not the board's."""
    text = response.getheader("Retry-After")
    if text is None:
        return None
    try:
        wanted = float(text)
    except ValueError:
        try:
            then = parsedate_to_datetime(text)
            now = parsedate_to_datetime(response.getheader("Date") or "")
            wanted = (then - now).total_seconds()
        except (ValueError, TypeError):
            return None
    if not wanted >= 0:
        return None
    return min(wanted, _LONGEST_RETRY_AFTER_S)
