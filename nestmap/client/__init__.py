"""A typed client of the HTTP API, blocking (:class:`Client`) and not (:class:`AsyncClient`).

Both carry out the same descriptions of requests (:mod:`nestmap.client.calls`) and the same rules
for repeats, waiting and cancelling (:mod:`nestmap.client.flows`); what comes back is checked
before it is believed (:mod:`nestmap.client.replies`). docs/client.md has examples.
"""

from __future__ import annotations

from nestmap.client.async_client import AsyncClient, AsyncMappingStream
from nestmap.client.errors import ServiceError
from nestmap.client.flows import Patience
from nestmap.client.streams import RunEvent
from nestmap.client.sync_client import Client, MappingStream

__all__ = [
    "AsyncClient",
    "AsyncMappingStream",
    "Client",
    "MappingStream",
    "Patience",
    "RunEvent",
    "ServiceError",
]
