"""HTTP/1.1 over one connection, as little as a simulated board needs of it.

A thousand clients of a full library would use more of the machine than the service they load.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

#: The service closes connections that were idle for 5 s.
_IDLE_S = 4.0
_MOST_BODY_BYTES = 16 * 2**20


class CallFailed(Exception):
    """No answer came: the connection broke, or the time was over."""


class Connection:
    """A connection that is made when it is needed and kept while it is in use."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used_at = 0.0

    async def call(self, method: str, path: str, body: bytes, within_s: float) -> tuple[int, bytes]:
        """Status and body of the answer. Raises CallFailed."""
        content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" * bool(body)
        sent = f"{method} {path} HTTP/1.1\r\n{self._head}{content}\r\n".encode() + body
        try:
            async with asyncio.timeout(within_s):
                reader, writer = await self._connected()
                writer.write(sent)
                await writer.drain()
                answer = await _answer(reader)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self.close()
            raise CallFailed(type(error).__name__) from error
        except BaseException:
            self.close()
            raise
        self._used_at = time.monotonic()
        return answer

    def close(self) -> None:
        """Let go of the connection; the next call makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def end(self) -> None:
        """Close, and wait until it is closed."""
        streams = self._streams
        self.close()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and time.monotonic() - self._used_at > _IDLE_S:
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        return self._streams


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ", 2)[1])
    length = 0
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
        elif name.lower() == "transfer-encoding":
            raise ValueError("chunks are not read here")
    if not 0 <= length <= _MOST_BODY_BYTES:
        raise ValueError("a body of that length is not read here")
    return status, await reader.readexactly(length) if length else b""
