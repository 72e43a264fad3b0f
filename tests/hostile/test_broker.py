"""A solver hears bells and nothing else: no message runs code, and none stops the worker."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection

from db.farm.farm import Farm
from db.farm.states import JobState
from nestmap.farm.bell_ringer import BellRinger
from nestmap.farm.celery_app import DEAD_QUEUE, QUEUE, TASK, celery_app, declare_queues
from tests.rabbitmq_node import RabbitMqNode
from tests.unit.farm.test_celery_work import solver_worker, until
from tests.unit.farm.test_embedded_work import COUNT, solve_job

pytestmark = pytest.mark.needs("rabbitmq-server", install="apt-get install rabbitmq-server")


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitMqNode]:
    with RabbitMqNode() as started:
        yield started


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def bells(folder: Path) -> Iterator[tuple[bytes, str, str, dict[str, Any]]]:
    """Body, content type, encoding and headers of messages that are no bells of ours."""
    ours = {"task": TASK, "id": "1", "lang": "py", "root_id": "1", "argsrepr": "", "kwargsrepr": ""}

    def call(*arguments: Any, **named: Any) -> bytes:
        return json.dumps([arguments, named, {}]).encode()

    pickled = pickle.dumps([[Bomb(folder / "unpickled")], {}, {}])
    yield pickled, "application/x-python-serialize", "binary", ours
    yield pickled, "application/json", "utf-8", ours
    yield pickled, "application/data", "binary", ours
    yield b"!!python/object/apply:os.mkdir [/tmp/x]", "application/x-yaml", "utf-8", ours
    yield b"\xff\xfe{", "application/json", "utf-8", ours
    yield call(job_id="x"), "application/json", "no-such-encoding", ours
    yield b"[" * 200_000, "application/json", "utf-8", ours
    yield b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "application/json", "utf-8", ours
    yield b"1" * 100_000, "application/json", "utf-8", ours
    yield b"null", "application/json", "utf-8", ours
    yield b"[]", "application/json", "utf-8", ours
    yield b'[{}, [], "x"]', "application/json", "utf-8", ours
    yield b"[[], {}, {}]", "application/json", "utf-8", ours
    for job_id in (None, 7, [], {"a": 1}, "x" * 8_000_000, "\x00", "job_nobody", "../../etc"):
        yield call(job_id=job_id), "application/json", "utf-8", ours
        yield call(job_id, job_id), "application/json", "utf-8", ours
    yield call(job_id="x"), "application/json", "utf-8", {}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "task": "os.system"}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "task": "celery.backend_cleanup"}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "id": ["x"], "retries": "many"}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "eta": "yesterday"}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "expires": "\x00"}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "timelimit": [1e308, "x"]}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "chain": [{"task": "os.system"}]}
    yield call(job_id="x"), "application/json", "utf-8", {**ours, "compression": "gzip"}
    bomb = gzip.compress(bytes(200_000_000))
    yield bomb, "application/json", "utf-8", {**ours, "compression": "application/x-gzip"}
    yield json.dumps({"task": TASK, "id": "1", "args": 7}).encode(), "application/json", "utf-8", {}


def test_hostile_bells_are_refused_and_the_worker_goes_on(
    node: RabbitMqNode, tmp_path: Path
) -> None:
    store = tmp_path / "store.sqlite3"
    app = celery_app(node.url)
    declare_queues(app)
    with Farm.open(store) as farm, solver_worker(node, store) as worker:
        sent = 0
        with Connection(node.url) as connection:
            producer = connection.Producer(auto_declare=False)
            for body, kind, encoding, headers in bells(tmp_path):
                producer.publish(
                    body, routing_key=QUEUE, exchange="nestmap", content_type=kind,
                    content_encoding=encoding, headers=headers, serializer=None,
                )  # fmt: skip
                sent += 1
            channel = connection.default_channel

            def left() -> int:
                return channel.queue_declare(QUEUE, passive=True).message_count

            with BellRinger(node.url) as ringer:
                job = solve_job(farm, **COUNT)
                until(farm, ringer, lambda: farm.jobs.job(job).state.ended)
                until(farm, ringer, lambda: left() == 0)
                dead = channel.queue_declare(DEAD_QUEUE, passive=True).message_count
        assert farm.jobs.job(job).state is JobState.DONE and sent > 20
        assert dead == 0, "a message came three times"
        assert worker.poll() is None
        assert not (tmp_path / "unpickled").exists()
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0 and time.monotonic() - began < 30
    app.close()
