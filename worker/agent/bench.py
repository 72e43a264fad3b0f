"""The agent's measuring bench: an executor that is ready, or a reason why there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from worker.agent.announcing import Announcer
from worker.agent.executor_process import Executor, ExecutorDied, ExecutorStuck
from worker.agent.failures import AgentExit, AgentFailure
from worker.agent.machine import machine_facts
from worker.agent.waiting import Waiter

#: A job whose executor died so often is not tried again: it takes every executor along.
MOST_TRIES = 3
#: Opening a device, compiling the golden kernel and running the owner's reload command.
_START_TIMEOUT_S = 600.0
_CANCEL_GRACE_S = 5.0


class GivenUp(Exception):
    """The job under way was dropped; the message says why."""


class DeviceFailed(Exception):
    """The device, not the candidate, is to blame; the bench is out of order."""


class Bench:
    """Keeps an executor, has it measure, and says what is wrong when it cannot."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        waiter: Waiter,
        announcer: Announcer,
        module: str,
    ) -> None:
        self._arguments = tuple(arguments)
        self._folder = folder
        self._waiter = waiter
        self._announcer = announcer
        self._module = module
        self._executor: Executor | None = None
        self._proven = False
        self._has_worked = False
        self.facts: dict[str, Any] = {}
        self.quarantine = ""

    @property
    def executor_pid(self) -> int | None:
        """The executor's process id; None when there is none."""
        return self._executor.pid if self._executor is not None else None

    def make_ready(self) -> bool:
        """Start what is missing; True when the golden kernel has run since the last trouble.

        Raises AgentFailure when the device that the owner named is not there at all, as long
        as it never was.
        """
        if self.quarantine:
            return False
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._proven:
            try:
                self._await_ready(deadline)
            except ExecutorDied as death:
                self._put_down(f"the executor does not start: {death}")
                return False
            except DeviceFailed:
                return False
        return True

    def try_again(self) -> bool:
        """Leave the quarantine if a fresh executor runs the golden kernel."""
        self.quarantine = ""
        return self.make_ready()

    def _await_ready(self, deadline: float) -> None:
        if self._executor is None:
            self._executor = Executor(self._arguments, self._folder, self._waiter, self._module)
        event = self._executor.next_event(max(0.0, deadline - time.monotonic()))
        if event is not None:
            self._heed(event)
        elif time.monotonic() >= deadline:
            raise ExecutorDied(f"it was not ready within {_START_TIMEOUT_S:.0f} s")

    def _heed(self, event: dict[str, Any]) -> None:
        """Take in an event that belongs to no job."""
        match event.get("event"):
            case "ready":
                self._proven = self._has_worked = True
                self.facts = {**machine_facts(), **_facts_of(event)}
            case "recovering":
                self._announcer.say("recovering", f"device: {event.get('text')}")
            case "quarantined":
                self._put_down(str(event.get("reason"))[:2000])
                raise DeviceFailed(self.quarantine)
            case "no-device":
                reason = str(event.get("reason"))[:2000]
                self._put_down(reason)
                if not self._has_worked:
                    raise AgentFailure(reason, AgentExit.DEVICE)
                raise DeviceFailed(reason)
            case _:
                pass

    def measure(
        self,
        job: str,
        payload: dict[str, Any],
        artifacts: dict[str, str],
        limit_s: float,
        give_up: Callable[[], str],
        on_stage: Callable[[str], None],
    ) -> dict[str, Any]:
        """The executor's ``outcome`` event, or one that says how it died or hung.

        ``give_up`` is asked whenever something happens; what it answers ends the job with
        GivenUp. Raises DeviceFailed when the device is the one to blame.
        """
        deadline = time.monotonic() + limit_s
        deaths: list[str] = []
        message = {"do": "measure", "job": job, "payload": payload, "artifacts": artifacts}
        while True:
            if not self.make_ready():
                raise DeviceFailed(self.quarantine)
            try:
                return self._measure_once(
                    {**message, "limit_s": max(0.1, deadline - time.monotonic())},
                    deadline,
                    give_up,
                    on_stage,
                )
            except ExecutorDied as death:
                self.discard()
                deaths.append(f"try {len(deaths) + 1}: {death}")
                self._announcer.say("executor-died", f"job {job}: {death}")
            if len(deaths) == MOST_TRIES or time.monotonic() >= deadline:
                return _outcome("crash", exit_code=1, message="\n".join(deaths)[:8000])

    def _measure_once(
        self,
        message: dict[str, Any],
        deadline: float,
        give_up: Callable[[], str],
        on_stage: Callable[[str], None],
    ) -> dict[str, Any]:
        executor = self._executor
        assert executor is not None
        # Until it says "ready" again nothing is known of the device.
        self._proven = False
        started = time.monotonic()
        executor.send(message)
        while True:
            reason = give_up()
            # What is measured already counts: the service decides about late results.
            wait_s = 0.0 if reason else max(0.0, deadline - time.monotonic())
            event = executor.next_event(wait_s)
            if event is None:
                if reason:
                    self._cancel(executor)
                    raise GivenUp(reason)
                if time.monotonic() >= deadline:
                    self.discard()
                    return _outcome("timeout", after_s=round(time.monotonic() - started, 3))
                continue
            if event.get("job") != message["job"]:
                self._heed(event)
            elif event.get("event") == "stage":
                on_stage(str(event.get("stage"))[:100])
            elif event.get("event") == "outcome" and isinstance(event.get("outcome"), dict):
                return event

    def _cancel(self, executor: Executor) -> None:
        """Make it drop its job; if it does not, replace it."""
        end = time.monotonic() + _CANCEL_GRACE_S
        try:
            executor.send({"do": "cancel"})
            while (left := end - time.monotonic()) > 0:
                event = executor.next_event(left)
                if event is not None:
                    self._heed(event)
                if self._proven:
                    return
        except (ExecutorDied, DeviceFailed):
            pass
        self.discard()

    def _put_down(self, reason: str) -> None:
        self.quarantine = reason or "no reason was given"
        self.discard()

    def discard(self) -> None:
        """End the executor and all that it started; a fresh one comes when it is needed."""
        self._proven = False
        executor, self._executor = self._executor, None
        if executor is not None:
            try:
                executor.kill()
            except ExecutorStuck as stuck:
                self.quarantine = f"{self.quarantine}; {stuck}" if self.quarantine else str(stuck)

    def close(self) -> None:
        """Let the executor end in its own time, which is not long."""
        executor, self._executor = self._executor, None
        self._proven = False
        if executor is not None:
            try:
                executor.stop()
            except ExecutorStuck as stuck:
                self._announcer.say("stuck", str(stuck))


def _facts_of(event: dict[str, Any]) -> dict[str, Any]:
    facts = event.get("facts")
    return facts if isinstance(facts, dict) else {}


def _outcome(kind: str, **detail: Any) -> dict[str, Any]:
    """An outcome that no executor was there to send."""
    return {"event": "outcome", "outcome": {"kind": kind, "detail": detail}, "facts": {}}
