"""A typed client of the HTTP API, blocking (:class:`Client`) and not (:class:`AsyncClient`).

Both carry out the same descriptions of requests (:mod:`nestmap.client.calls`) and the same rules
for repeats, waiting and cancelling (:mod:`nestmap.client.flows`); what comes back is checked
before it is believed (:mod:`nestmap.client.replies`). docs/client.md has examples.

Names are looked up when they are first used: the command line knows the errors without httpx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nestmap.client.async_client import AsyncClient, AsyncMappingStream
    from nestmap.client.errors import ServiceError
    from nestmap.client.flows import Patience
    from nestmap.client.streams import RunEvent
    from nestmap.client.sync_client import Client, MappingStream

_HOME = {
    "AsyncClient": "async_client",
    "AsyncMappingStream": "async_client",
    "Client": "sync_client",
    "MappingStream": "sync_client",
    "Patience": "flows",
    "RunEvent": "streams",
    "ServiceError": "errors",
}

__all__ = [
    "AsyncClient",
    "AsyncMappingStream",
    "Client",
    "MappingStream",
    "Patience",
    "RunEvent",
    "ServiceError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nestmap.client' has no attribute {name!r}")
    return getattr(import_module(f"nestmap.client.{_HOME[name]}"), name)
