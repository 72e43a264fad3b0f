"""The second transport: a board hears of jobs through RabbitMQ instead of long polls.

A bell says that there is work and nothing else; jobs, artifacts and results go the same way as
always, and the database stays the truth. So a bell that is lost, doubled or late costs at most
the time until the next look. Each device has a queue of its own, ``nestmap.device.<id>``, that
one consumer at a time reads, with a user who may do nothing else (docs/workers.md).

Celery (extra ``cluster``) keeps the connection; it is imported only here.
"""

from __future__ import annotations

import threading
from typing import Any

from worker.agent.agent import Agent
from worker.agent.failures import AgentExit, AgentFailure
from worker.agent.http_calls import tls_context
from worker.agent.settings import Settings

TASK = "nestmap.device.bell"
#: How often a board looks for work by itself: what a lost bell may cost.
LOOK_S = 30.0
_PULSE_S = 1.0
_SCHEMES = ("amqp://", "amqps://")
#: Bells beyond one say nothing new.
_MOST_BELLS = 2


def device_queue(device_id: str) -> str:
    """The name of a device's queue."""
    return f"nestmap.device.{device_id}"


def queue_arguments() -> dict[str, Any]:
    """How a device's queue is declared, by boards and by whoever rings."""
    return {"x-single-active-consumer": True, "x-max-length": _MOST_BELLS}


def tls_options(broker_url: str, ca_file: str | None = None) -> dict[str, str | None] | None:
    """What Celery is told so that a broker has to prove who it is; None for one without TLS.

    ``ca_file``: PEM of the authorities that are trusted, instead of the system's.
    """
    if not broker_url.startswith("amqps://"):
        return None
    # Without the first key the name in a certificate is not looked at, so that anybody's would
    # do; for None kombu puts in the URL's host.
    return {"server_hostname": None, "ca_certs": ca_file}


def bell_app(broker_url: str, device_id: str, ca_file: str | None = None) -> Any:
    """The Celery application of one board; nothing is connected yet.

    Raises AgentFailure without Celery, for a URL that is none of a broker's, or for a ``ca_file``
    that cannot be used.
    """
    try:
        from celery import Celery
        from kombu.entity import Exchange, Queue
    except ImportError as error:
        raise AgentFailure(
            f"--broker needs the extra `cluster`: {error}", AgentExit.BAD_OPTIONS
        ) from None
    if not broker_url.startswith(_SCHEMES):
        raise AgentFailure("--broker: amqp:// or amqps:// is wanted", AgentExit.BAD_OPTIONS)
    if ca_file is not None:
        tls_context(ca_file)  # a file that is no authority is said now, not tried for ever
    app = Celery("nestmap-board", broker=broker_url, set_as_current=False)
    queue = Queue(
        device_queue(device_id),
        # The default exchange routes by queue name: no right to bind anything is needed.
        Exchange(""),
        routing_key=device_queue(device_id),
        durable=True,
        queue_arguments=queue_arguments(),
    )
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_heartbeat=10,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"confirm_publish": True},
        broker_use_ssl=tls_options(broker_url, ca_file),
        # Nobody but the server tells a board what to do, and a node that comes back under its
        # own name would be locked out of its control queue.
        worker_enable_remote_control=False,
        worker_consumer="worker.bell_consumer:BellConsumer",
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        task_create_missing_queues=False,
        task_queues=[queue],
        task_default_queue=queue.name,
    )
    return app


def serve_bells(settings: Settings, agent: Agent) -> int:
    """Work whenever a bell rings, and every half a minute, until a signal comes."""
    from celery import signals

    turn = threading.Lock()
    ended = threading.Event()
    failures: list[AgentFailure] = []

    def drain(**bell: Any) -> None:
        del bell  # there is work: the server knows which
        with turn:
            try:
                agent.drain()
            except AgentFailure as failure:
                failures.append(failure)
                # As a signal from outside: the consumer ends, and main says why.
                agent.stop()
                signal_self()

    def look() -> None:
        passed_s = 0.0
        while not ended.wait(_PULSE_S):
            agent.pulse()
            passed_s += _PULSE_S
            if passed_s >= LOOK_S:
                passed_s = 0.0
                drain()

    def ready(**more: Any) -> None:
        del more
        threading.Thread(target=look, name="look", daemon=True).start()
        threading.Thread(target=drain, name="first-look", daemon=True).start()

    def stopping(**more: Any) -> None:
        del more
        ended.set()
        agent.stop()

    try:
        agent.open()
        app = bell_app(settings.broker, agent.device_id, settings.ca_file)
        app.task(drain, name=TASK, ignore_result=True)
        signals.worker_ready.connect(ready, weak=False)
        signals.worker_shutting_down.connect(stopping, weak=False)
        app.worker_main(
            [
                "--quiet",
                "worker",
                # A thread: the connection's heartbeat goes on beside a measurement.
                "--pool=threads",
                "--concurrency=1",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
                "--loglevel=WARNING",
                f"--hostname={agent.device_id}@%h",
            ]
        )
    finally:
        ended.set()
        with turn:
            agent.close()
    if failures:
        raise failures[0]
    return AgentExit.OK


def signal_self() -> None:
    """End this process's worker as SIGTERM does."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGTERM)
