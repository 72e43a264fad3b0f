"""Solver workers behind RabbitMQ: equal results, and nothing lost with worker or broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection

from api.solver_child import child_environment
from db.farm.farm import Farm
from db.farm.states import JobState, RunState
from nestmap.farm.bell_ringer import BellRinger
from nestmap.farm.celery_app import celery_app
from tests.rabbitmq_node import RabbitMqNode
from tests.unit.farm.simulated_boards import SimulatedBoard, new_run
from tests.unit.farm.test_embedded_work import COUNT, SLOW, ended, running, solve_job
from tests.unit.farm.test_embedded_work import until as until_async

needs_rabbitmq = pytest.mark.needs("rabbitmq-server", install="apt-get install rabbitmq-server")


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitMqNode]:
    with RabbitMqNode() as started:
        yield started


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with Farm.open(tmp_path / "store.sqlite3") as opened:
        yield opened


@contextmanager
def solver_worker(node: RabbitMqNode, store: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**child_environment(), "NESTMAP_BROKER": node.url, "NESTMAP_STORE": str(store)}
    process = subprocess.Popen(
        [sys.executable, "-m", "nestmap", "solver-worker", "--processes", "1"],
        env=environment, start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def until(farm: Farm, ringer: BellRinger, condition: Callable[[], Any]) -> Any:
    """What the condition gives once it is true; meanwhile a sweeper's work is done."""
    end = time.monotonic() + 90
    while not (found := condition()):
        assert time.monotonic() < end, "nothing happened"
        farm.jobs.expire()
        ringer.ring(farm.jobs.unrung(2.0))
        time.sleep(0.05)
    return found


@needs_rabbitmq
def test_a_farm_measures_the_same_candidates_as_the_embedded_runner(
    node: RabbitMqNode, farm: Farm, tmp_path: Path
):
    apart = new_run(farm, candidates=12, name="apart")
    with (
        SimulatedBoard(farm, apart.board_id) as there,
        BellRinger(node.url) as ringer,
        solver_worker(node, tmp_path / "store.sqlite3"),
    ):
        until(farm, ringer, ended(farm, apart.id))
    beside = new_run(farm, candidates=12, name="beside")

    async def embedded() -> None:
        async with running(farm):
            await until_async(ended(farm, beside.id))

    with SimulatedBoard(farm, beside.board_id) as here:
        asyncio.run(embedded())
    assert there.measured == here.measured
    assert len(there.measured) == 12
    for run in (apart, beside):
        assert farm.runs.run(run.id).state is RunState.FINISHED
    assert ringer.rung >= 2


@needs_rabbitmq
def test_a_job_outlives_a_killed_worker_and_a_killed_broker(
    node: RabbitMqNode, farm: Farm, tmp_path: Path
):
    store = tmp_path / "store.sqlite3"
    slow = solve_job(farm, **SLOW)
    with BellRinger(node.url) as ringer:
        with solver_worker(node, store) as worker:
            until(farm, ringer, lambda: farm.jobs.job(slow).state is JobState.LEASED)
            os.killpg(worker.pid, signal.SIGKILL)
        farm.jobs.cancel(slow)
        job = solve_job(farm, **COUNT)
        node.kill()
        ringer.ring(farm.jobs.unrung(0.0))
        node.start()
        with solver_worker(node, store):
            until(farm, ringer, lambda: farm.jobs.job(job).state.ended)
    found = farm.jobs.job(job)
    assert found.state is JobState.DONE and found.result["end"]["complete"]
    assert found.attempt == 1


@needs_rabbitmq
def test_bells_carry_the_id_of_a_job_and_nothing_else(node: RabbitMqNode, farm: Farm):
    job = solve_job(farm, **COUNT)
    with Connection(node.url) as connection:
        channel = connection.default_channel
        with BellRinger(node.url) as ringer:
            ringer.ring(farm.jobs.unrung(0.0))
            end = time.monotonic() + 30
            while ringer.rung == 0 and time.monotonic() < end:
                time.sleep(0.02)
        found: list[str] = []
        while job not in found and time.monotonic() < end:
            # Other tests have rung at the same broker.
            if (message := channel.basic_get("nestmap.solve", no_ack=True)) is not None:
                arguments, named, _ = json.loads(message.body or b"")
                assert arguments == [] and set(named) == {"job_id"}
                found.append(named["job_id"])
        assert job in found


def test_the_settings_are_those_that_lose_nothing():
    app = celery_app("amqp://127.0.0.1:1//")
    conf = app.conf
    assert conf.accept_content == ["json"] and conf.task_serializer == "json"
    assert conf.task_acks_late and conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1 and conf.broker_heartbeat == 10
    assert conf.broker_transport_options == {"confirm_publish": True}
    assert conf.worker_cancel_long_running_tasks_on_connection_loss
    assert conf.result_backend is None and not conf.worker_enable_remote_control
    (queue,) = conf.task_queues
    assert queue.queue_arguments["x-queue-type"] == "quorum"
    assert queue.queue_arguments["x-delivery-limit"] == 3
    assert queue.queue_arguments["x-dead-letter-exchange"] == "nestmap.dead"
