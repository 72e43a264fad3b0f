"""How fast mappings come: the first hundred of a layer, and all that solver workers can list."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from api.operations import SOLVE_JOB
from bench.farm.figures import summary
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.states import JobState
from mapper.errors import StoreError
from mapper.layer_sets import named_layer

DEVICE = "mali-g72"
_VARIANT = "direct"
_FIRST = 100
_WITHIN_S = 900.0


def first_mappings(
    client: httpx.Client, layers: Sequence[str], repeats: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """POST each layer as a document for its first 100 valid mappings: milliseconds to the whole
    answer. The first time of each is apart: the service has not seen the layer before."""
    found: dict[str, Any] = {}
    warm: list[float] = []
    for name in layers:
        document = {**named_layer(name).to_json(), "name": name}
        body = {
            "subject": {"document": document}, "variant": _VARIANT, "device": DEVICE,
            "limit": _FIRST,
        }  # fmt: skip
        took: list[float] = []
        for _ in range(repeats + 1):
            before = time.perf_counter()
            answer = client.post("/v1/mappings", json=body).raise_for_status()
            took.append((time.perf_counter() - before) * 1e3)
            if len(answer.json()["items"]) != _FIRST:
                raise StoreError(f"{name} has not {_FIRST} mappings: {answer.text[:300]}")
        warm += took[1:]
        found[name] = {"cold_ms": round(took[0], 1), "warm_ms": summary(took[1:], 1)}
        say(f"first {_FIRST} mappings of {name}: {found[name]['warm_ms']['p50']} ms warm")
    return {"layers": found, "warm_ms": summary(warm, 1)}


def enumerate_in_jobs(
    farm: Farm, layers: Sequence[str], mappings: int, repeats: int, rounds: int
) -> list[dict[str, Any]]:
    """Rounds of ``solve`` jobs, each for so many mappings of a layer, ``repeats`` jobs a layer:
    mappings a second by round, from the first claim to the last end. In the first round no
    worker knows the layers yet."""
    done: list[dict[str, Any]] = []
    for _ in range(rounds):
        jobs = [
            farm.jobs.enqueue(NewJob(_payload(name, mappings), "bench farm")).value.id
            for _ in range(repeats)
            for name in layers
        ]
        _wait(farm, jobs)
        claims = [attempt.claimed_at for job in jobs for attempt in farm.jobs.attempts(job)]
        ended = [farm.jobs.job(job) for job in jobs]
        listed = sum(len(job.result["items"]) for job in ended)
        span_s = (
            max(job.ended_at for job in ended if job.ended_at is not None) - min(claims)
        ).total_seconds()
        done.append(
            {
                "jobs": len(jobs),
                "mappings": listed,
                "seconds": round(span_s, 2),
                "mappings_a_second": round(listed / span_s, 1),
                "claims": len(claims),
            }
        )
    return done


def _payload(name: str, mappings: int) -> dict[str, Any]:
    request = {
        "kind": "mappings", "subject": {"name": name}, "variant": _VARIANT, "device": DEVICE,
        "limit": mappings,
    }  # fmt: skip
    return {"schema": SOLVE_JOB, "request": request, "limits": {}}


def _wait(farm: Farm, jobs: Sequence[str]) -> None:
    """Until all have ended well. StoreError for one that has not."""
    end = time.monotonic() + _WITHIN_S
    for job_id in jobs:
        while not (job := farm.jobs.job(job_id)).state.ended:
            if time.monotonic() > end:
                raise StoreError(f"{job_id} is {job.state} after {_WITHIN_S:g} s")
            time.sleep(0.1)
        if job.state is not JobState.DONE or "items" not in job.result:
            raise StoreError(f"{job_id} {job.state}: {str(job.result)[:300]}")
