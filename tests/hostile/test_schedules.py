"""Schedules from strangers: whatever they ask for ends with an answer or a refusal, in time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from api.settings import Settings
from api.solver_pool import Answer, PoolSettings, SolverLimits, SolverPool, SolverProblem
from tests.unit.api.conftest import Service
from tests.unit.tasks.child_replies import ask
from tests.unit.tasks.test_schedules import SUBJECT, derive, exploding


def in_a_child(request: dict[str, Any], wall_s: float) -> Answer | SolverProblem:
    """What a real child answers, with the memory that it gets in service."""

    async def main() -> Answer | SolverProblem:
        async with SolverPool(PoolSettings(children=1)) as pool:
            limits = SolverLimits(wall_s=wall_s, cpu_s=2 * wall_s)
            try:
                return await pool.ask({"kind": "derive", **request}, limits)
            except SolverProblem as error:
                return error

    return asyncio.run(main())


def test_a_child_refuses_an_explosion_and_does_not_die_of_it() -> None:
    steps = [*(f"inline(a{k})" for k in range(1, 9)), *(f"inline(a{k})" for k in range(17, 9, -1)),
             "inline(a9)"]  # fmt: skip
    schedule = 'schedule "s" { ' + " ".join(steps) + " }"
    found = in_a_child({"subject": {"text": exploding(18)}, "schedule": schedule}, 30)
    assert isinstance(found, SolverProblem) and found.slug == "too-complex"
    assert "too large" in found.detail


def test_a_sum_of_very_many_sizes_is_not_tried_out() -> None:
    names = "+".join(f"p{k}" for k in range(40))
    began = time.process_time()
    reply = derive(f'schedule "s" {{ split(row, {names}) split(row_in_tile, q) }}')
    assert reply.end is not None or reply.problem["type"] in ("invalid-input", "too-complex")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("size", ["*".join(["(a+b+c)"] * 28), "/".join(["a"] * 90), "(" * 99])
def test_an_expression_that_grows_is_refused(size: str) -> None:
    began = time.process_time()
    reply = derive(f'schedule "s" {{ split(row, {size}) }}')
    assert reply.problem["type"] in ("invalid-input", "too-complex")
    assert time.process_time() - began < 5


def test_a_program_that_is_nested_too_deeply_is_refused() -> None:
    text = "join(split(1, " * 150 + "a" + "))" * 150
    program = f'program "p" {{ input a : [float]2 kernel k = map#m(x => id(x), {text}) }}'
    reply = ask(kind="derive", subject={"text": program}, schedule='schedule "s" { split(m, 1) }')
    assert reply.problem["type"] in ("invalid-input", "too-complex")


def test_a_schedule_as_a_deep_or_wide_document_is_refused() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    document = {"schema": "nestmap/schedule/1", "name": "s"}
    assert derive({**document, "steps": deep}).problem is not None
    wide = [{"primitive": "unroll", "name": "k"}] * 501
    assert "too many" in derive({**document, "steps": wide}).problem["problems"][0]["message"]
    reorder = {"primitive": "reorder", "maps": ["row"] * 1_000}
    assert derive({**document, "steps": [reorder]}).problem["type"] == "invalid-input"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = Settings(body_bytes=400_000, failed_logins_per_minute=100_000)
    made = Service(tmp_path_factory.mktemp("schedules"), settings)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"schedule": "x" * 200_001}, 422),
        ({"schedule": "x" * 500_000}, 413),
        ({"schedule": "a\x00b"}, 400),
        ({"schedule": ["split"]}, 422),
        ({"schedule": ""}, 422),
        ({}, 422),
        ({"schedule": "s", "device": "pocl"}, 422),
        ({"schedule": "s", "partial": "yes"}, 422),
        ({"schedule": "s", "time_limit_s": 0}, 422),
    ],
    ids=lambda value: json.dumps(value)[:30],
)
def test_no_solver_is_asked_for_what_is_no_question(
    service: Service, body: dict[str, Any], status: int
) -> None:
    answer = service.user.post("/v1/schedules/derive", json={**SUBJECT, **body})
    assert answer.status_code == status, answer.text
    assert not service.solver.asked
