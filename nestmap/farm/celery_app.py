"""Solver work on any number of hosts: a Celery application on RabbitMQ (extra ``cluster``).

A message is a bell: it carries the id of a job and nothing else. The database holds the truth;
a bell that is lost is rung again, one that is heard twice finds nothing to claim. The settings
are those that were seen to lose nothing (docs/solver-workers.md).
"""

from __future__ import annotations

from celery import Celery
from kombu.entity import Exchange, Queue

from worker.broker import tls_options

TASK = "nestmap.work"
QUEUE = "nestmap.solve"
DEAD_QUEUE = "nestmap.dead"
_EXCHANGE = "nestmap"
_DEAD_EXCHANGE = "nestmap.dead"
#: Deliveries of one bell: its host may have died with it three times.
DELIVERIES = 3


def celery_app(broker_url: str) -> Celery:
    """The application for a broker; nothing is connected yet."""
    app = Celery("nestmap", broker=broker_url, set_as_current=False)
    app.conf.update(
        # JSON alone: nothing is ever unpickled.
        accept_content=["json"],
        task_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        # A bell counts as heard when the work is over, one way or the other.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=True,
        worker_prefetch_multiplier=1,
        broker_use_ssl=tls_options(broker_url),
        broker_heartbeat=10,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
        # Without it a job is finished and runs again.
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_detect_quorum_queues=True,
        # A node that comes back under its name would be locked out of its own queue.
        worker_enable_remote_control=False,
        worker_consumer="worker.bell_consumer:BellConsumer",
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_hijack_root_logger=False,
        task_create_missing_queues=False,
        task_queues=[_queue()],
        task_default_queue=QUEUE,
        task_default_exchange=_EXCHANGE,
        task_default_routing_key=QUEUE,
        task_default_exchange_type="direct",
        task_routes={TASK: {"queue": QUEUE}},
        task_publish_retry=True,
        task_publish_retry_policy={"max_retries": 2, "interval_start": 0.1, "interval_max": 0.5},
    )
    return app


def _queue() -> Queue:
    return Queue(
        QUEUE,
        Exchange(_EXCHANGE, type="direct", durable=True),
        routing_key=QUEUE,
        durable=True,
        queue_arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERIES,
            "x-dead-letter-exchange": _DEAD_EXCHANGE,
            "x-dead-letter-routing-key": DEAD_QUEUE,
        },
    )


def _dead_queue() -> Queue:
    """Bells that killed whoever heard them: kept to be looked at, heard by nobody."""
    return Queue(
        DEAD_QUEUE,
        Exchange(_DEAD_EXCHANGE, type="direct", durable=True),
        routing_key=DEAD_QUEUE,
        durable=True,
        queue_arguments={"x-queue-type": "quorum", "x-max-length": 10_000},
    )


def declare_queues(app: Celery) -> None:
    """Make the queues where they are not there; kombu's errors where the broker is away."""
    with app.connection_for_write() as connection:
        for queue in (_dead_queue(), _queue()):
            queue(connection.default_channel).declare()
