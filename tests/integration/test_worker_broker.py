"""A board that hears of jobs through RabbitMQ: the same work, no long polls."""

from __future__ import annotations

import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from nestmap.farm.celery_app import celery_app
from tests.rabbitmq_node import RabbitMqNode
from tests.unit.agent.fake_server import DEVICE, FakeServer
from tests.unit.agent.jobs import payload
from tests.unit.agent.running import RunningAgent, descendants
from worker.agent.failures import AgentExit, AgentFailure
from worker.broker import LOOK_S, TASK, bell_app, device_queue, queue_arguments

needs_rabbitmq = pytest.mark.needs("rabbitmq-server", install="apt-get install rabbitmq-server")
needs_openssl = pytest.mark.needs("openssl", install="apt-get install openssl")


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMqNode]:
    with RabbitMqNode(tls=shutil.which("openssl") is not None) as node:
        yield node


def ring(broker: RabbitMqNode, job: str) -> None:
    """As the server does; the queue is the board's."""
    app = bell_app(broker.url, DEVICE)
    with app.connection_for_write() as connection:
        app.send_task(TASK, kwargs={"job_id": job}, queue=device_queue(DEVICE),
                      connection=connection)  # fmt: skip
    app.close()


@needs_rabbitmq
def test_bells_bring_jobs_and_nobody_polls(broker: RabbitMqNode, tmp_path: Path) -> None:
    with FakeServer() as server:
        first = server.add_job(payload(server))
        with RunningAgent(server, tmp_path / "s", "--broker", broker.url) as agent:
            # What was there before anybody listened is found without a bell.
            agent.wait_for("delivered", job=first.id)
            calls = len(server.calls)
            second = server.add_job(payload(server))
            ring(broker, second.id)
            agent.wait_for("delivered", job=second.id, timeout_s=20)
            # Lease, heartbeat, result, and a last look; artifacts were here. No long poll.
            assert len(server.calls) - calls <= 6
            assert all("wait=0" in path for path in server.paths() if "/lease" in path)
            third = server.add_job(payload(server))
            ring(broker, third.id)
            ring(broker, third.id)
            agent.wait_for("delivered", job=third.id, timeout_s=20)
            agent.signal(signal.SIGTERM)
            assert agent.exit_code() == AgentExit.OK
        assert not descendants(agent.pid)
        for job in (first, second, third):
            assert len(job.results) == 1
            assert job.attempt == 1


@needs_rabbitmq
@needs_openssl
def test_bells_come_through_tls(broker: RabbitMqNode, tmp_path: Path) -> None:
    options = ("--broker", broker.tls_url(), "--ca-file", str(broker.ca_file))
    with FakeServer() as server:
        first = server.add_job(payload(server))
        with RunningAgent(server, tmp_path / "s", *options) as agent:
            agent.wait_for("delivered", job=first.id)
            second = server.add_job(payload(server))
            ring(broker, second.id)
            # Sooner than the board looks by itself.
            agent.wait_for("delivered", job=second.id, timeout_s=LOOK_S - 10)


def connect(app: Celery) -> None:
    with app, app.connection_for_write() as connection:
        connection.connect()


@needs_rabbitmq
@needs_openssl
def test_a_broker_with_a_certificate_for_another_name_is_refused(broker: RabbitMqNode) -> None:
    authority = str(broker.ca_file)
    connect(bell_app(broker.tls_url(), DEVICE, authority))
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        connect(bell_app(broker.tls_url("127.0.0.2"), DEVICE, authority))


@needs_rabbitmq
@needs_openssl
def test_solver_workers_trust_no_broker_of_an_unknown_authority_or_name(
    broker: RabbitMqNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        connect(celery_app(broker.tls_url()))
    monkeypatch.setenv("SSL_CERT_FILE", str(broker.ca_file))
    connect(celery_app(broker.tls_url()))
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        connect(celery_app(broker.tls_url("127.0.0.2")))


def test_an_authority_that_is_no_file_is_said_before_anything_is_tried(tmp_path: Path) -> None:
    with pytest.raises(AgentFailure, match=r"--ca-file.*No such file"):
        bell_app("amqps://broker//", DEVICE, str(tmp_path / "none.pem"))


@needs_rabbitmq
def test_refused_token_ends_a_board_at_the_broker_too(broker: RabbitMqNode, tmp_path: Path) -> None:
    with FakeServer() as server:
        other = ("--token", "nm_other.x", "--id", DEVICE)
        with RunningAgent(
            server, tmp_path / "s", "--broker", broker.url, identity=other
        ) as agent:  # fmt: skip
            assert agent.exit_code() == AgentExit.TOKEN_REFUSED


def test_queue_has_one_reader_and_few_bells() -> None:
    assert queue_arguments()["x-single-active-consumer"] is True
    assert queue_arguments()["x-max-length"] < 10
    app = bell_app("amqp://guest@127.0.0.1//", DEVICE)
    (queue,) = app.conf.task_queues
    assert queue.name == device_queue(DEVICE)
    assert queue.queue_arguments == queue_arguments()
    assert app.conf.accept_content == ["json"]
    assert not app.conf.worker_enable_remote_control
    app.close()


@pytest.mark.parametrize("url", ["redis://x", "memory://", "sqla+sqlite://"])
def test_brokers_that_lose_jobs_are_refused(url: str) -> None:
    with pytest.raises(AgentFailure, match="amqp"):
        bell_app(url, DEVICE)
