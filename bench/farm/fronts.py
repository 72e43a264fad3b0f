"""How long exact fronts take in a store of millions of measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from sqlalchemy import Engine

from bench.farm.figures import summary
from bench.farm.measured_rows import LABEL, plan_of
from db.farm.farm import Farm
from db.farm.fronts import front_statement
from db.farm.selection import Selection


def time_fronts(
    farm: Farm,
    engine: Engine,
    client: httpx.Client,
    studies: Sequence[int],
    repeats: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Times in milliseconds, from the call to the values; through HTTP to the whole answer.

    ``one study`` asks for the same one again and again, ``studies in turn`` for each once, so
    that most of it comes from the disk's cache or the disk; ``all`` is the front of every
    measurement at once.
    """
    one = Selection(study_ids=frozenset(studies[:1]))
    some = Selection(study_ids=frozenset(studies[:10]))
    every = Selection(label=LABEL)
    found: dict[str, Any] = {}

    def timed(name: str, ask: Callable[[int], Any], times: int) -> None:
        took: list[float] = []
        points = 0
        for number in range(times):
            before = time.perf_counter()
            points = ask(number)
            took.append((time.perf_counter() - before) * 1e3)
        found[name] = {"points": points, "ms": summary(took), "first_ms": round(took[0], 2)}
        say(f"front, {name}: {found[name]['ms']['p50']} ms")

    def of_http(study: int) -> int:
        answer = client.get("/v1/fronts", params={"study": study}).raise_for_status()
        return len(answer.json()["points"])

    def of_turn(number: int) -> int:
        selection = Selection(study_ids=frozenset([studies[number]]))
        return len(farm.fronts.front(selection))

    timed("studies in turn", of_turn, len(studies))
    timed("one study", lambda _: len(farm.fronts.front(one)), repeats)
    timed("one study through HTTP", lambda _: of_http(studies[0]), repeats)
    timed("ten studies", lambda _: len(farm.fronts.front(some)), max(3, repeats // 3))
    timed("all", lambda _: len(farm.fronts.front(every)), 3)
    found["plan of one study"] = plan_of(engine, front_statement(one))
    return found
