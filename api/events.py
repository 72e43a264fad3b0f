"""A run's events as a stream of server-sent events that can be resumed anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from api.auth import Principal
from api.bells import heard
from api.services import Services
from api.streaming import ADMIT_S, comment, event
from db.farm.records import Event
from db.farm.run_records import Run

PAGE = 500
RETRY_MS = 2_000


async def run_events(
    services: Services,
    run_id: str,
    after: int,
    principal: Principal,
    still_admitted: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Events of a run with ids above ``after``, until the run has ended, the listener's token has
    or the service stops.

    Heartbeats are comments. An event ``gap`` says that some were dropped for good: read the run
    anew. An event ``end`` is the last one. Raises ``AbsentError`` for an unknown run.
    """
    settings, loop = services.settings, asyncio.get_running_loop()
    with services.streams.one_more(principal.id), services.bells.listening(run_id) as bell:
        said_at = admitted_at = loop.time()
        yield f"retry: {RETRY_MS}\n\n".encode()
        while not services.stopping:
            bell.clear()
            if loop.time() - admitted_at >= ADMIT_S:
                admitted_at = loop.time()
                if not await still_admitted():
                    return
            # The run first: what happens after this is seen in the events.
            run = await services.database(services.farm.runs.run, run_id)
            page = await services.database(services.farm.events.events_after, run_id, after, PAGE)
            if page.gap:
                yield event("gap", {"after": after})
            for found in page.events:
                after = found.id
                yield event(found.kind.value, _data(found), found.id)
            if page.events:
                said_at = loop.time()
            if len(page.events) == PAGE:
                continue
            if run.state.ended:
                yield event("end", {"state": run.state.value, "reason": run.reason})
                return
            if loop.time() - said_at >= settings.event_heartbeat_s:
                said_at = loop.time()
                yield comment("still here")
            await heard(bell, min(settings.event_poll_s, settings.event_heartbeat_s, ADMIT_S))


async def nothing_more(services: Services, run: Run, after: int) -> bool:
    """Whether the run has ended and a client that has heard all is to stay away (204)."""
    if not run.state.ended or after == 0:
        return False
    newest = await services.database(services.farm.events.newest, run.id)
    return after >= newest


def _data(found: Event) -> dict[str, object]:
    return {"at": found.at.isoformat(), **found.payload}
