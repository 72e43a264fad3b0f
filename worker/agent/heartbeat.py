"""Keeping a lease alive, in a thread with a connection of its own while a candidate is measured."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from worker.agent.bounded import NotAcceptable
from worker.agent.bounded import seconds as seconds_field
from worker.agent.failures import Refused, TryAgain
from worker.agent.http_calls import HttpCalls
from worker.agent.lease import Lease
from worker.agent.waiting import Waiter

#: Beats in the time of a lease: two may be lost without losing it.
_BEATS_PER_LEASE = 3.0
_LONGEST_CALL_S = 10.0


class Heartbeat:
    """Beats until it is stopped; a context manager.

    ``lost`` says why the lease is no longer ours, ``cancelled`` that the server wants no result.
    """

    def __init__(self, calls: HttpCalls, lease: Lease, waiter: Waiter) -> None:
        self._calls = calls.sibling()
        self._lease = lease
        self._waiter = waiter
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self.stage = "fetching"
        self.lost = ""
        self.cancelled = False
        self.beats = 0

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._calls.interrupt()
        self._thread.join(timeout=_LONGEST_CALL_S + 5.0)
        self._calls.close()

    def _beat(self) -> None:
        lease_s = self._lease.lease_s
        # The first at once: until it comes the lease is a short one.
        pause = 0.0
        while not self._stop.wait(pause):
            started = time.monotonic()
            try:
                answer = self._call()
                lease_s = seconds_field(answer, "lease_s", 1.0, 3600.0)
                self.beats += 1
                if answer.get("cancel") is True and not self.cancelled:
                    self.cancelled = True
                    self._waiter.wake()
            except Refused as refusal:
                # 409: somebody else has it. 404: it is gone. 401, 403: so are we.
                self.lost = str(refusal)
                self._waiter.wake()
                return
            except (TryAgain, NotAcceptable):
                # Soon again, out of step with others: the lease still runs.
                pause = min(lease_s / 10, 1.0) * (0.5 + random.random())
                continue
            pause = max(0.05, lease_s / _BEATS_PER_LEASE - (time.monotonic() - started))

    def _call(self) -> dict[str, Any]:
        body = {
            "attempt": self._lease.attempt,
            "lease_token": self._lease.token,
            "stage": self.stage,
        }
        _, answer = self._calls.post(
            f"/v1/jobs/{self._lease.job}/heartbeat", body, timeout_s=_LONGEST_CALL_S
        )
        return answer
