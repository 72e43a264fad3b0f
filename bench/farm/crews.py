"""Crews of simulated boards in processes of their own, and what they say at the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.farm.boards import Crew
from bench.farm.processes import Service
from mapper.errors import StoreError

_STOPS_WITHIN_S = 30.0
_COMMAND = (sys.executable, "-m", "bench.farm.boards")


@dataclass(slots=True)
class Seen:
    """What boards saw: ``got`` and ``sent`` are events in order of time."""

    got: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    late_heartbeats: int = 0
    faults: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Crews:
    """Processes under way; ``seen`` is filled when the block around them has ended."""

    services: list[Service]
    logs: list[Path]
    seen: Seen = field(default_factory=Seen)

    @property
    def pids(self) -> list[int]:
        return [service.pid for service in self.services]


def enrolled(crew: Crew, folder: Path, environment: dict[str, str]) -> list[tuple[str, str]]:
    """Boards with their tokens for a crew of codes, over HTTP."""
    with _started(replace(crew, enrol=True), folder, environment, "enrolling") as service:
        return [(device, token) for device, token in _line(service)]


@contextmanager
def serving(
    crew: Crew, processes: int, folder: Path, environment: dict[str, str], name: str
) -> Iterator[Crews]:
    """The boards of ``crew``, dealt to so many processes; the block begins when all have asked
    for work."""
    crews = Crews([], [])
    with ExitStack() as stack:
        for number in range(processes):
            log = folder / f"{name}-{number}.ndjson"
            part = replace(crew, boards=crew.boards[number::processes], log=str(log))
            title = f"{name}-boards-{number}"
            crews.services.append(stack.enter_context(_started(part, folder, environment, title)))
            crews.logs.append(log)
        for service in crews.services:
            _line(service)
        yield crews
        for service in crews.services:
            assert service.process.stdin is not None
            service.process.stdin.close()
        for service in crews.services:
            service.process.wait(_STOPS_WITHIN_S)
        crews.seen = read_logs(crews.logs)


def read_logs(logs: Sequence[Path]) -> Seen:
    """What the files say together. StoreError for one without an end."""
    seen = Seen()
    for log in logs:
        ended = False
        for text in log.read_text(encoding="utf-8").splitlines():
            entry: dict[str, Any] = json.loads(text)
            match entry["event"]:
                case "got":
                    seen.got.append(entry)
                case "sent":
                    seen.sent.append(entry)
                case _:
                    ended = True
                    seen.calls.update(entry["calls"])
                    seen.errors.update(entry["errors"])
                    seen.late_heartbeats += entry["late_heartbeats"]
                    seen.faults += entry["faults"]
        if not ended:
            raise StoreError(f"{log.name}: the boards' process has not come to its end")
    seen.got.sort(key=lambda entry: entry["t"])
    seen.sent.sort(key=lambda entry: entry["t"])
    return seen


@contextmanager
def _started(crew: Crew, folder: Path, environment: dict[str, str], name: str) -> Iterator[Service]:
    with Service(name, _COMMAND, folder=folder, environment=environment, pipes=True) as service:
        assert service.process.stdin is not None
        service.process.stdin.write(json.dumps(asdict(crew)).encode() + b"\n")
        service.process.stdin.flush()
        yield service


def _line(service: Service) -> Any:
    """The next line of a process as JSON. StoreError where it has ended instead."""
    assert service.process.stdout is not None
    text = service.process.stdout.readline()
    if not text:
        raise StoreError(f"{service.name} ended: {service.said()}")
    return json.loads(text)
