"""Simulated boards: ``python -m bench.farm.boards``, a few hundred in one process.

Each speaks the lease protocol (docs/decisions/0015) as the agent does: a long poll, a heartbeat
at once and then three in the time of a lease, the kernel's source, and the result, which some
send twice. What they do not do is measure: they answer after a drawn time, as a null device.

The first line of standard input is a :class:`Crew` as JSON; one line is written when every board
has asked for work. The end of standard input ends the process. What happened is in the file
``log``, a JSON object a line, with times of the monotonic clock, which the host's processes
share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from bench.farm.http_calls import CallFailed, Connection
from nestmap.open_files import allow_open_files

VERSION = "bench-farm"
_CALL_S = 30.0
_BEATS_PER_LEASE = 3.0
_AGAIN_S = 0.5
_SENDS = 20
#: Draws of a lognormal beyond this are cut: a board has to be free again for its next job.
_LONGEST_S = 8.0
_SIGMA = 0.6


@dataclass(frozen=True, slots=True)
class Crew:
    """The boards of one process. ``boards`` are pairs of id and token, or one-time codes if
    ``enrol``; a job takes ``median_s`` seconds at the median; a share ``repeats`` of results is
    sent twice; the boards come within ``ramp_s`` seconds."""

    host: str
    port: int
    boards: list[tuple[str, str]]
    log: str
    wait_s: int = 50
    median_s: float = 1.0
    repeats: float = 0.02
    ramp_s: float = 3.0
    seed: int = 0
    enrol: bool = False


@dataclass(slots=True)
class Tally:
    """What all boards of a process have seen. A late heartbeat crossed its job's result on the
    way and was refused, as it should be."""

    calls: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    late_heartbeats: int = 0
    first_polls: int = 0


class Board:
    """One board, until it is cancelled."""

    def __init__(self, crew: Crew, number: int, tally: Tally, log: TextIO) -> None:
        self._crew = crew
        self._id, token = crew.boards[number]
        self._drawn = random.Random(f"{crew.seed}/{self._id}")
        self._tally = tally
        self._log = log
        self._line = Connection(crew.host, crew.port, token)
        self._beats = Connection(crew.host, crew.port, token)

    async def serve(self) -> None:
        """Ask for work, do it, and again."""
        facts = {"device": {"name": "simulated"}, "state": "healthy"}
        asking = {"protocol": 1, "agent_version": VERSION, "facts": facts, "health": facts}
        # Boards of a farm do not ask in step: the first poll ends some time within its span.
        wait_s = self._drawn.randint(1, self._crew.wait_s)
        try:
            await asyncio.sleep(self._drawn.random() * self._crew.ramp_s)
            self._tally.first_polls += 1
            while True:
                path = f"/v1/devices/{self._id}/lease?wait={wait_s}"
                found = await self._call("lease", path, asking, wait_s + _CALL_S)
                wait_s = self._crew.wait_s
                if found is None:
                    await self._pause()
                elif found[0] == 200:
                    await self._work(json.loads(found[1]), time.monotonic_ns())
        finally:
            await self._line.end()
            await self._beats.end()

    async def _work(self, job: dict[str, Any], got_ns: int) -> None:
        payload = job["payload"]
        self._say("got", job, t=got_ns, candidate=payload["candidate"])
        beating = asyncio.create_task(self._beat(job))
        try:
            path = f"/v1/artifacts/{payload['source']}"
            await self._call("artifact", path, None, _CALL_S)
            await asyncio.sleep(self._takes_s())
            await self._send(job)
            if self._drawn.random() < self._crew.repeats:
                await self._send(job)
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    def _takes_s(self) -> float:
        median_s = self._crew.median_s
        drawn = median_s * math.exp(self._drawn.gauss(0.0, _SIGMA)) if median_s else 0.0
        return min(drawn, _LONGEST_S)

    async def _beat(self, job: dict[str, Any]) -> None:
        """Keep the lease; the first beat at once, since the first lease is short."""
        path = f"/v1/jobs/{job['job']}/heartbeat"
        body = {"attempt": job["attempt"], "lease_token": job["lease_token"], "stage": "measuring"}
        while True:
            found = await self._call("heartbeat", path, body, _CALL_S, self._beats)
            if found is not None and found[0] == 409:
                return  # the result was quicker
            lease_s = json.loads(found[1])["lease_s"] if found else 1.0
            await asyncio.sleep(lease_s / _BEATS_PER_LEASE)

    async def _send(self, job: dict[str, Any]) -> None:
        """The result, again and again until the service has said something to it."""
        nanoseconds = [int(1e6 * (1 + self._drawn.random())) for _ in range(20)]
        body = {
            "attempt": job["attempt"],
            "lease_token": job["lease_token"],
            "outcome": {
                "kind": "timed",
                "detail": {"max_relative_error": 0.0, "compile_ms": 1.0, "facts": {}},
                "trials_ns": nanoseconds,
            },
            "facts": {},
            "agent_log": "",
        }
        for _ in range(_SENDS):
            began_ns = time.monotonic_ns()
            found = await self._call("result", f"/v1/jobs/{job['job']}/result", body, _CALL_S)
            if found is not None:
                stored = found[0] == 200 and json.loads(found[1])["stored"]
                took_ms = (time.monotonic_ns() - began_ns) / 1e6
                self._say("sent", job, t=time.monotonic_ns(), stored=stored, ms=round(took_ms, 3))
                return
            await self._pause()

    async def _call(
        self, what: str, path: str, body: Any, within_s: float, line: Connection | None = None
    ) -> tuple[int, bytes] | None:
        """The answer; None, and counted, where it is to be tried again or was refused."""
        self._tally.calls[what] += 1
        content = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        try:
            found = await (line or self._line).call(method, path, content, within_s)
        except CallFailed as failure:
            self._tally.errors[f"{what} {failure}"] += 1
            return None
        if found[0] == 409 and what in ("heartbeat", "result"):
            # Somebody else has the job, or it has ended: to be dropped, not tried again.
            if what == "heartbeat":
                self._tally.late_heartbeats += 1
            else:
                self._tally.errors["result 409"] += 1
            return found
        if found[0] not in (200, 204):
            self._tally.errors[f"{what} {found[0]}"] += 1
            return None
        return found

    async def _pause(self) -> None:
        await asyncio.sleep(_AGAIN_S * (0.5 + self._drawn.random()))

    def _say(self, event: str, job: dict[str, Any], **more: Any) -> None:
        said = {"event": event, "board": self._id, "job": job["job"], "attempt": job["attempt"]}
        self._log.write(json.dumps({**said, **more}) + "\n")


async def enrol(crew: Crew) -> list[tuple[str, str]]:
    """Ids and tokens for the codes of a crew, eight at a time. Raises CallFailed."""
    at_once = asyncio.Semaphore(8)

    async def one(name: str, code: str) -> tuple[str, str]:
        body = {"code": code, "name": name, "agent_version": VERSION, "facts": {}}
        async with at_once:
            line = Connection(crew.host, crew.port, "none")
            status, answer = await line.call(
                "POST", "/v1/enrol", json.dumps(body).encode(), _CALL_S
            )
            await line.end()
        if status != 201:
            raise CallFailed(f"enrol {status}: {answer[:300]!r}")
        found = json.loads(answer)
        return found["device"], found["token"]

    return list(await asyncio.gather(*(one(name, code) for name, code in crew.boards)))


async def run(crew: Crew) -> None:
    """Serve until standard input ends."""
    if crew.enrol:
        print(json.dumps(await enrol(crew)), flush=True)
        return
    tally = Tally()
    with Path(crew.log).open("w", encoding="utf-8") as log:
        tasks = [
            asyncio.create_task(Board(crew, number, tally, log).serve())
            for number in range(len(crew.boards))
        ]
        told = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while tally.first_polls < len(tasks) and not told.done():
            await asyncio.sleep(0.05)
        print(json.dumps({"ready": tally.first_polls}), flush=True)
        await asyncio.wait([told, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [repr(end) for end in ended if isinstance(end, Exception)]
        seen = {
            "calls": tally.calls,
            "errors": tally.errors,
            "late_heartbeats": tally.late_heartbeats,
            "faults": faults,
        }
        log.write(json.dumps({"event": "end", **seen}) + "\n")


def main() -> None:
    """Read the crew and let it serve."""
    crew = Crew(**json.loads(sys.stdin.readline()))
    allow_open_files()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(crew))


if __name__ == "__main__":
    main()
