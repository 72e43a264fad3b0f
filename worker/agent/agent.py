"""The agent's loop: deliver what is pending, lease a job, measure it, deliver.

:meth:`Agent.run` waits for jobs in long polls; where bells come through a broker, whoever hears
them calls :meth:`Agent.drain`.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from types import FrameType
from typing import Any

from worker.agent import AGENT_VERSION, PROTOCOL
from worker.agent.announcing import Announcer
from worker.agent.artifact_cache import ArtifactCache
from worker.agent.bench import Bench, DeviceFailed, GivenUp
from worker.agent.bounded import NotAcceptable
from worker.agent.failures import AgentExit, AgentFailure, Refused, TryAgain
from worker.agent.heartbeat import Heartbeat
from worker.agent.hooks import RebootHook
from worker.agent.http_calls import HttpCalls
from worker.agent.identity import enrol, stored_identity
from worker.agent.journal import Journal, Pending
from worker.agent.lease import Lease
from worker.agent.machine import machine_health
from worker.agent.notifying import ServiceManager
from worker.agent.patience import Patience
from worker.agent.settings import Settings
from worker.agent.state_folder import StateFolder
from worker.agent.waiting import Waiter

#: Beyond the time of a long poll, for a slow network.
_POLL_MARGIN_S = 15.0
_FULL_JOURNAL_PAUSE_S = 5.0
#: Until a full disk is looked at again: somebody may have made room.
_LONGEST_DISK_PAUSE_S = 15.0
#: What the server refuses for now: another lease of this board, or a quarantine of its own.
_REFUSED_PAUSE_S = 15.0
_MOST_LOG_CHARACTERS = 8000
_MOST_REASON_CHARACTERS = 2000
#: For giving a job back: the next job need not wait for a server that is not there.
_RELEASE_S = 5.0
#: With --once: so long a server may say nothing before it counts as one that is not there.
_ONCE_SILENCE_S = 30.0


class Agent:
    """One board's agent over an open state folder; :meth:`run` until it is told to stop."""

    def __init__(
        self,
        settings: Settings,
        state: StateFolder,
        waiter: Waiter,
        announcer: Announcer,
        service: ServiceManager,
        bench: Bench,
    ) -> None:
        self._settings = settings
        self._state = state
        self._waiter = waiter
        self._announcer = announcer
        self._service = service
        self._calls = HttpCalls(settings.url, settings.token, settings.ca_file)
        self._patience = Patience()
        self._answered_at = time.monotonic()
        self._journal = Journal(state.folder("journal"))
        self._cache = ArtifactCache(state.folder("artifacts"), settings.cache_bytes)
        self._reboot = RebootHook(settings.reboot_command, state.path, waiter)
        self._bench = bench
        self._device = ""
        #: Why no job could be kept on the disk; empty where one could.
        self._disk_fault = ""
        self._polling = False
        self._stopping = False
        self._abandoning = False
        self._said_stopping = False
        self._stop_at: float | None = None
        self._handlers: dict[int, Any] = {}
        self.jobs_done = 0

    @property
    def device_id(self) -> str:
        """Which device of the server this is; empty until it is known."""
        return self._device

    # -- being told to stop ------------------------------------------------------------------

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT: finish the job, then end; a second one ends it at once. Until
        :meth:`run` ends: they are not for an agent that is gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.stop()

    def stop(self) -> None:
        """End after the job under way; called again, or after the grace, without it."""
        if self._stopping:
            self._abandoning = True
        else:
            self._stopping = True
            self._stop_at = time.monotonic() + self._settings.stop_grace_s
        if self._polling:
            self._calls.interrupt()
        self._waiter.wake()

    # -- the loop ----------------------------------------------------------------------------

    def run(self) -> AgentExit:
        """Work until told to stop, ``once`` or ``max_jobs``; raises AgentFailure."""
        try:
            return self._run()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self.close()

    def close(self) -> None:
        """End the executor and the connection."""
        self._service.stopping()
        self._bench.close()
        self._calls.close()

    def _run(self) -> AgentExit:
        self.open()
        most_jobs = 1 if self._settings.once else self._settings.max_jobs or math.inf
        while not self._stopping:
            if self.jobs_done < most_jobs:
                progress = self._turn(self._settings.wait_s)
            else:
                progress = self._hand_in()
            settled = not len(self._journal)
            if settled and self.jobs_done >= most_jobs:
                return AgentExit.OK
            if self._settings.once and not progress:
                self._give_up_where_nobody_answers()
                if settled and not self._patience.failures:
                    return AgentExit.NO_JOB
        self._deliver()
        return AgentExit.OK

    def _give_up_where_nobody_answers(self) -> None:
        """Whoever asked for one job wants to know that there is no server to have it from."""
        silent_s = time.monotonic() - self._answered_at
        lost = self._patience.is_open or (self._patience.failures and silent_s > _ONCE_SILENCE_S)
        if self._settings.once and lost:
            raise AgentFailure("the server cannot be reached", AgentExit.SERVER)

    def open(self) -> None:
        """Prove the device and become known to the server; raises AgentFailure."""
        self._service.status("opening the device")
        self._bench.make_ready()
        self._become_known()
        self._service.ready()
        self._announce_start()

    def drain(self) -> None:
        """Measure what there is, without waiting for more; raises AgentFailure."""
        while not self._stopping and self._turn(0):
            pass

    def pulse(self) -> None:
        """Feed the watchdog while somebody else waits for bells."""
        self._service.pulse()

    def _turn(self, wait_s: int) -> bool:
        """Do what is next; True after a job, False when there is none or nothing can be done."""
        if not self._hand_in():
            return False
        if self._journal.is_full:
            self._announcer.say("journal-full", "too many results wait for the server")
            self._pause(_FULL_JOURNAL_PAUSE_S)
        elif not self._disk_holds():
            self._sit_out_disk()
        elif not self._bench.make_ready():
            self._sit_out_quarantine()
        elif (lease := self._claim(wait_s)) is not None:
            self._work(lease)
            return True
        return False

    def _hand_in(self) -> bool:
        """Send what was measured; False after the pause that a server that is not there needs."""
        self._state.require()
        if self._deliver():
            return True
        self._pause(self._patience.wait_s())
        return False

    def _announce_start(self) -> None:
        name = self._bench.facts.get("device.name", self._settings.device)
        self._announcer.say(
            "started",
            f"agent {AGENT_VERSION} serves {self._device} on {name} for {self._settings.url}",
            device=self._device,
            version=AGENT_VERSION,
        )
        sandbox = {
            name.removeprefix("sandbox."): str(value)
            for name, value in self._bench.facts.items()
            if name.startswith("sandbox.")
        }
        if sandbox:
            said = ", ".join(f"{name}: {value}" for name, value in sandbox.items())
            self._announcer.say("sandbox", f"kernels run shut in: {said}", **sandbox)
        if not self._calls.address.secure and not self._calls.address.is_loopback:
            self._announcer.say("unencrypted", "http, not https: the token can be read on its way")

    def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until we are told to stop."""
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            self._waiter.wait(left)

    def _become_known(self) -> None:
        """Find out which device we are; enrol if that is needed."""
        self._answered_at = time.monotonic()
        settings = self._settings
        identity = stored_identity(settings, self._state)
        while identity is None and not self._stopping:
            if not settings.enrolment_code:
                raise AgentFailure(
                    "no token and no enrolment code; give --token-file or --enrol",
                    AgentExit.BAD_OPTIONS,
                )
            try:
                identity = enrol(settings, self._state, self._calls, self._facts())
                self._patience.succeeded()
                self._announcer.say("enrolled", f"enrolled as {identity.device}")
            except TryAgain as failure:
                self._failed(failure)
                self._give_up_where_nobody_answers()
                self._pause(self._patience.wait_s())
        if identity is not None:
            self._device = identity.device
            self._calls.use_token(identity.token)

    # -- talking to the server ---------------------------------------------------------------

    def _failed(self, failure: TryAgain) -> None:
        wait = self._patience.failed(failure.retry_after_s)
        said = f"{failure.reason}; again in {wait:.1f} s"
        if self._patience.failures == 1 or self._patience.is_open:
            self._announcer.say("offline", said, failures=self._patience.failures)

    def _facts(self) -> dict[str, Any]:
        return dict(self._bench.facts)

    def _health(self) -> dict[str, Any]:
        reason = self._disk_fault or self._bench.quarantine
        return {
            "state": "quarantined" if reason else "healthy",
            "reason": reason[:2000],
            "pending_results": len(self._journal),
            **machine_health(),
        }

    def _claim(self, wait_s: int) -> Lease | None:
        """Ask for a job for ``wait_s`` at most; None if there is none, or no answer."""
        if self._patience.wait_s() > 0:
            self._pause(self._patience.wait_s())
            return None
        self._service.status("waiting for a job")
        body = {
            "protocol": PROTOCOL,
            "agent_version": AGENT_VERSION,
            "facts": self._facts(),
            "health": self._health(),
        }
        self._polling = True
        try:
            if self._stopping:
                return None
            status, answer = self._calls.post(
                f"/v1/devices/{self._device}/lease?wait={wait_s}",
                body,
                timeout_s=wait_s + _POLL_MARGIN_S,
            )
            lease = None if status == 204 else Lease.of(answer)
        except TryAgain as failure:
            if not self._stopping:
                self._failed(failure)
            return None
        except NotAcceptable as error:
            self._failed(TryAgain(f"the server leased what is no job: {error}"))
            return None
        except Refused as refusal:
            self._refused(refusal)
            return None
        finally:
            self._polling = False
            self._calls.resume()
        self._patience.succeeded()
        self._answered_at = time.monotonic()
        return lease

    def _refused(self, refusal: Refused) -> None:
        """The server gives us no work: for good, or for now."""
        if refusal.status == 409:
            self._announcer.say("no-lease", str(refusal))
            self._pause(_REFUSED_PAUSE_S)
            return
        known = refusal.status in (401, 403, 404)
        raise AgentFailure(
            f"the server refuses this board: {refusal}",
            AgentExit.TOKEN_REFUSED if known else AgentExit.SERVER,
        )

    def _deliver(self) -> bool:
        """Send every result that is pending; False if the server is not there for it."""
        while (pending := self._journal.oldest()) is not None:
            if self._patience.wait_s() > 0:
                return False
            try:
                _, answer = self._calls.post(f"/v1/jobs/{pending.job}/result", pending.body)
            except TryAgain as failure:
                self._failed(failure)
                return False
            except Refused as refusal:
                if refusal.status in (401, 403):
                    self._refused(refusal)
                self._journal.dropped(pending, str(refusal))
                self._announcer.say(
                    "dropped",
                    f"result of job {pending.job} attempt {pending.attempt}: {refusal}",
                    job=pending.job,
                    attempt=pending.attempt,
                    status=refusal.status,
                )
            else:
                self._journal.sent(pending)
                self._announce_delivery(pending, answer)
            self._patience.succeeded()
        return True

    def _announce_delivery(self, pending: Pending, answer: dict[str, Any]) -> None:
        stored = answer.get("stored") is True
        self._announcer.say(
            "delivered",
            f"job {pending.job} attempt {pending.attempt} delivered"
            + ("" if stored else "; the server had it already, or needs it no more"),
            job=pending.job,
            attempt=pending.attempt,
            stored=stored,
        )

    # -- a job -------------------------------------------------------------------------------

    def _work(self, lease: Lease) -> None:
        """Measure a leased job and journal its result, unless the job is lost on the way."""
        self._announcer.start_log()
        self._announcer.say(
            "leased", f"job {lease.job} attempt {lease.attempt}", job=lease.job,
            attempt=lease.attempt,
        )  # fmt: skip
        self._service.status(f"job {lease.job}")
        started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # A little before the server's own deadline, so that the result still counts.
        deadline = time.monotonic() + max(1.0, lease.deadline_s - 1.0)
        heartbeat = Heartbeat(self._calls, lease, self._waiter)
        try:
            with heartbeat:
                event = self._measured(lease, heartbeat, deadline)
                self._keep(lease, event, started_at)
        except GivenUp as reason:
            self._announcer.say("given-up", f"job {lease.job}: {reason}", job=lease.job)
            if not heartbeat.lost:
                self._release(lease, str(reason))
        except DeviceFailed as failure:
            # No result: another attempt, perhaps on a healthy device, shall measure it.
            self._announcer.say("device-failed", f"job {lease.job}: {failure}", job=lease.job)
            self._release(lease, str(failure))
        except OSError as error:
            # The lease would run out, and the next attempt would meet the same disk.
            self._disk_fault = f"its disk: {error}"
            self._announcer.say("disk", f"job {lease.job}: {error}", job=lease.job)
            if not heartbeat.lost:
                self._release(lease, f"the board's disk: {error}")
            self._pause(_FULL_JOURNAL_PAUSE_S)
        self.jobs_done += 1

    def _release(self, lease: Lease, reason: str) -> None:
        """Say that the job is dropped, so that nobody waits for the lease's end.

        Once: where it does not get through (or the server is older), the lease runs out.
        """
        body = {
            "attempt": lease.attempt,
            "lease_token": lease.token,
            "reason": reason[:_MOST_REASON_CHARACTERS],
        }
        with contextlib.suppress(TryAgain, Refused, NotAcceptable):
            self._calls.post(f"/v1/jobs/{lease.job}/release", body, timeout_s=_RELEASE_S)

    def _give_up(self, heartbeat: Heartbeat) -> str:
        if heartbeat.lost:
            return f"the lease is lost: {heartbeat.lost}"
        if heartbeat.cancelled:
            return "cancelled by the server"
        if self._stopping and not self._said_stopping:
            # Not where the signal is handled: it may have come in the middle of a line.
            self._said_stopping = True
            self._announcer.say("stopping", "told to stop: finishing the job")
        if self._abandoning:
            return "told to stop at once"
        if self._stop_at is not None and time.monotonic() > self._stop_at:
            return "told to stop, and the job does not end"
        return ""

    def _measured(self, lease: Lease, heartbeat: Heartbeat, deadline: float) -> dict[str, Any]:
        """Fetch what is missing and have it measured; raises GivenUp or DeviceFailed."""
        paths = self._fetch(lease, heartbeat, deadline)

        def on_stage(stage: str) -> None:
            heartbeat.stage = stage
            self._announcer.say("stage", f"job {lease.job}: {stage}", job=lease.job, stage=stage)

        event = self._bench.measure(
            lease.job,
            lease.payload,
            paths,
            deadline - time.monotonic(),
            lambda: self._give_up(heartbeat),
            on_stage,
        )
        if reason := self._give_up(heartbeat):
            # It ended while nobody wanted it any more; a lost lease's result is still sent:
            # the server decides whether its attempt is the newest.
            self._announcer.say("late", f"job {lease.job}: {reason}", job=lease.job)
        return event

    def _fetch(self, lease: Lease, heartbeat: Heartbeat, deadline: float) -> dict[str, str]:
        """The files of the job's artifacts by hash."""
        try:
            wanted = lease.artifacts()
        except NotAcceptable as error:
            raise GivenUp(f"its payload is not acceptable: {error}") from None
        patience = Patience()
        paths: dict[str, str] = {}
        while missing := [digest for digest in wanted if digest not in paths]:
            if reason := self._give_up(heartbeat):
                raise GivenUp(reason)
            if time.monotonic() > deadline:
                raise GivenUp("its artifacts did not come in time")
            try:
                path = self._cache.take(missing[0], self._download, wanted)
                paths[missing[0]] = str(path)
                patience.succeeded()
            except TryAgain as failure:
                wait = patience.failed(failure.retry_after_s)
                self._announcer.say("fetch-failed", f"{failure.reason}; again in {wait:.1f} s")
                self._waiter.wait(min(wait, max(0.0, deadline - time.monotonic())))
            except Refused as refusal:
                raise GivenUp(f"artifact {missing[0]}: {refusal}") from None
        return paths

    def _download(self, digest: str, sink: Any, most_bytes: int) -> None:
        def fed(chunk: bytes) -> None:
            self._service.pulse()
            sink(chunk)

        self._calls.download(f"/v1/artifacts/{digest}", fed, most_bytes=most_bytes)

    def _keep(self, lease: Lease, event: dict[str, Any], started_at: str) -> None:
        """Journal a result: from here on it survives whatever happens to this process."""
        outcome = event["outcome"]
        kind = str(outcome.get("kind"))
        self._announcer.say(
            "measured", f"job {lease.job}: {_summary(outcome)}", job=lease.job, outcome=kind
        )
        facts = event.get("facts")
        body = {
            "attempt": lease.attempt,
            "lease_token": lease.token,
            "outcome": outcome,
            "facts": {**self._facts(), **(facts if isinstance(facts, dict) else {})},
            "started_at": started_at,
            "agent_log": self._announcer.log()[-_MOST_LOG_CHARACTERS:],
        }
        self._journal.add(lease.job, lease.attempt, body)
        self._deliver()

    # -- a disk that holds nothing -----------------------------------------------------------

    def _disk_holds(self) -> bool:
        """Whether a job's files and its result have room; where a job met a fault, by writing one:
        each claim costs the job one of its attempts."""
        faulty = bool(self._disk_fault)
        try:
            self._cache.require_room()
            if faulty:
                self._journal.prove()
        except OSError as error:
            self._disk_fault = f"its disk: {error}"
            return False
        self._disk_fault = ""
        if faulty:
            self._announcer.say("disk-holds", "the disk holds files again")
            self._report_health()
        return True

    def _sit_out_disk(self) -> None:
        """Tell the server that this board takes no job, and look again later."""
        self._announcer.say("disk", f"takes no job: {self._disk_fault}")
        self._service.status(self._disk_fault)
        if not self._report_health():
            return
        if self._settings.once:
            raise AgentFailure(f"takes no job: {self._disk_fault}", AgentExit.STATE_FOLDER)
        self._pause(min(self._settings.reprobe_s, _LONGEST_DISK_PAUSE_S))

    # -- quarantine --------------------------------------------------------------------------

    def _sit_out_quarantine(self) -> None:
        """Tell the server, ask the owner's hook for a reboot, and probe again later."""
        reason = self._bench.quarantine
        self._announcer.say("quarantined", f"the device is quarantined: {reason}", reason=reason)
        self._service.status(f"quarantined: {reason}")
        if not self._report_health():
            return
        if self._settings.once:
            raise AgentFailure(f"the device is quarantined: {reason}", AgentExit.DEVICE)
        if said := self._reboot.run():
            self._announcer.say("reboot", said)
        self._pause(self._settings.reprobe_s)
        if not self._stopping and self._bench.try_again():
            self._announcer.say("healthy", "the golden kernel runs again")
            self._report_health()

    def _report_health(self) -> bool:
        """Send the bench's state; False if the server is not there."""
        body = {"facts": self._facts(), **self._health()}
        try:
            self._calls.post(f"/v1/devices/{self._device}/health", body)
        except TryAgain as failure:
            self._failed(failure)
            self._pause(self._patience.wait_s())
            return False
        except Refused as refusal:
            self._refused(refusal)
            return True
        self._patience.succeeded()
        return True


def _summary(outcome: dict[str, Any]) -> str:
    """One line about an outcome."""
    kind, trials, detail = (outcome.get(name) for name in ("kind", "trials_ns", "detail"))
    if isinstance(trials, list) and trials:
        return f"{kind}, {sorted(trials)[len(trials) // 2] / 1e6:.4g} ms"
    detail = detail if isinstance(detail, dict) else {}
    if kind == "timeout":
        return f"timeout after {detail.get('after_s')} s"
    return f"{kind} {str(detail.get('message', '')).partition(chr(10))[0]}".strip()
