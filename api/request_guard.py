"""What is refused before anything looks at a request: long URLs, many headers, odd bytes."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import asker_at
from api.database import ASKER
from api.problems import ProblemError, ProblemResponse

MAX_URL_BYTES = 8 * 1024
MAX_HEADERS = 64
MAX_HEADER_BYTES = 16 * 1024
#: Read by us or by the framework, so that two of them would be read differently by others.
_ONCE = frozenset(
    {b"authorization", b"content-type", b"content-length", b"host", b"idempotency-key",
     b"last-event-id"}
)  # fmt: skip

#: Nothing is to be loaded from anywhere, by whoever opens an answer in a browser.
API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"content-security-policy", API_POLICY.encode()),
)


class RequestGuard:
    """ASGI middleware: refuses what no client of ours sends, adds the security headers.

    There is no CORS: no ``Access-Control-Allow-Origin`` is ever sent, so that a browser gives
    no answer of this service to a page from elsewhere.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        ASKER.set(asker_at(client[0] if client else ""))
        guarded = _with_security_headers(send)
        problem = refusal(scope)
        if problem is not None:
            await ProblemResponse(problem)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def refusal(scope: Scope) -> ProblemError | None:
    """Why a request is not looked at; None for one that is."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    query: bytes = scope.get("query_string", b"")
    if len(raw_path) + len(query) > MAX_URL_BYTES:
        return ProblemError("url-too-long", f"at most {MAX_URL_BYTES} bytes are accepted")
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        allowed = f"at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes are accepted"
        return ProblemError("headers-too-large", allowed)
    for place, encoded in (("path", raw_path), ("query", query)):
        text = unquote_to_bytes(encoded)
        if b"\0" in text:
            return ProblemError("malformed-request", f"the {place} holds a NUL")
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            return ProblemError("malformed-request", f"the {place} is not UTF-8")
    names = [name for name, _ in headers if name in _ONCE]
    if len(names) != len(set(names)):
        twice = next(name for name in names if names.count(name) > 1)
        return ProblemError("malformed-request", f"the header {twice.decode()} is given twice")
    return None


def _with_security_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[tuple[bytes, bytes]] = list(message.get("headers", []))
            present = {name.lower() for name, _ in headers}
            headers += [pair for pair in _SECURITY_HEADERS if pair[0] not in present]
            message = {**message, "headers": headers}
        await send(message)

    return wrapped
