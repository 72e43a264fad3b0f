"""Rings the bells of a broker for work that waits in the store.

The API's sweeper finds what waits, marks it as rung and hands it over; a thread publishes one
message for each. A broker that is away costs time alone: bells are kept while it is, and what
was forgotten is found by the sweeper again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from db.farm.states import JobKind
from nestmap.farm.celery_app import TASK, celery_app, declare_queues

_MOST_KEPT = 10_000
_AWAY_S = 1.0
_AT_ONCE = 100


def _silent(trouble: str) -> None:
    del trouble


class BellRinger:
    """A thread that publishes; a context manager. ``told`` hears once of trouble, and of its
    end."""

    def __init__(self, broker_url: str, told: Callable[[str], None] = _silent) -> None:
        self._app = celery_app(broker_url)
        self._told = told
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._news = threading.Condition()
        self._stopping = False
        self._connection: Any = None
        self._producer: Any = None
        self._thread = threading.Thread(target=self._run, name="bell-ringer", daemon=True)
        self.rung = 0

    def __enter__(self) -> BellRinger:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join()
        self._app.close()

    def ring(self, waiting: Sequence[tuple[str, JobKind]]) -> None:
        """There are these jobs; never blocks, from any thread."""
        with self._news:
            for job_id, _ in waiting:
                self._waiting[job_id] = None
            while len(self._waiting) > _MOST_KEPT:
                self._waiting.popitem(last=False)
            self._news.notify()

    def _run(self) -> None:
        try:
            self._ring_until_stopped()
        finally:
            self._disconnect()

    def _ring_until_stopped(self) -> None:
        in_trouble = False
        while True:
            with self._news:
                while not self._waiting and not self._stopping:
                    self._news.wait()
                if self._stopping:
                    return
                batch = list(self._waiting)[:_AT_ONCE]
            try:
                self._publish(batch)
            # Whatever a broker and its libraries raise: the next attempt makes a new connection.
            except Exception as error:
                self._disconnect()
                if not in_trouble:
                    self._told(f"the broker cannot be reached: {type(error).__name__}")
                in_trouble = True
                with self._news:
                    self._news.wait_for(lambda: self._stopping, _AWAY_S)
                continue
            if in_trouble:
                self._told("the broker is back")
            in_trouble = False

    def _publish(self, batch: Iterable[str]) -> None:
        # A connection of its own: kombu's pools belong to the process and outlive the ringer.
        if self._producer is None:
            declare_queues(self._app)
            self._connection = self._app.connection_for_write()
            self._producer = self._app.amqp.Producer(self._connection)
        for job_id in batch:
            self._app.send_task(TASK, kwargs={"job_id": job_id}, producer=self._producer)
            self.rung += 1
            with self._news:
                self._waiting.pop(job_id, None)

    def _disconnect(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            # Whatever it raises: it is not used any more.
            with contextlib.suppress(Exception):
                connection.release()
