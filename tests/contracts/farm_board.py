"""A farm's board as a measuring device, all of it in this process.

A candidate becomes a measure job in the service's store, the board leases it over HTTP without a
socket, its executor measures it, its result goes back over HTTP, and the outcome is what the store
then says: every document between a tuner and a board is written and read by the code that does so
in a farm.
"""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from db.farm.run_records import ArtifactContent, Proposal, ProposedCandidate, StudySpec
from db.farm.selection import Selection
from db.farm.states import JobKind
from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome
from nestmap.tasks.replies import Replies
from nestmap.tasks.workload_files import Spool, arrays_json, measure_job
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import DEVICE, PROGRAM, candidate, new_run
from worker.agent import AGENT_VERSION, PROTOCOL
from worker.agent.lease import Lease
from worker.devices.interface import MeasuringDevice
from worker.devices.queued import Queued
from worker.executor.serving import Executor
from worker.measuring.checks import check_workload
from worker.measuring.measuring_child import profile_from_json
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    NO_DEADLINES,
    Deadlines,
    Protocol,
    Tolerance,
)

Array = np.ndarray[Any, Any]


class FarmBoard(Queued):
    """Measures with a board's executor, each candidate in a run of its own; a context manager.

    Deadlines of stages are not in the protocol: a board has a job's timeout alone. ``device`` is
    what the executor measures with, and is closed with it.
    """

    def __init__(self, device: MeasuringDevice) -> None:
        super().__init__()
        self._device = device
        self._temporary = TemporaryDirectory(prefix="nestmap-farm-board-")
        folder = Path(self._temporary.name)
        self._service = Service(folder)
        self._spooled, self._cache = folder / "spool", folder / "cache"
        self._spooled.mkdir()
        self._cache.mkdir()
        self._spool = Spool(self._spooled, Replies(io.BytesIO(), "proposal"))
        self._workloads: dict[str, tuple[Mapping[str, Array], Array]] = {}
        self._lock = threading.RLock()
        self._ready: dict[str, Any] = {}
        self._broken: dict[str, Any] = {}
        asked, self._asking = os.pipe()
        told, events = os.pipe()
        self._events = os.fdopen(told, encoding="utf-8")
        executor = Executor(device, events)
        self._threads = (
            threading.Thread(target=self._read_jobs, args=(executor, asked), name="requests"),
            threading.Thread(target=self._run_executor, args=(executor, events), name="executor"),
        )
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end_queue()
        os.close(self._asking)
        for thread in self._threads:
            thread.join()
        self._events.close()
        self._service.close()
        self._temporary.cleanup()

    def _read_jobs(self, executor: Executor, requests: int) -> None:
        executor.read(requests)
        os.close(requests)

    def _run_executor(self, executor: Executor, events: int) -> None:
        with self._device:
            executor.serve()
        os.close(events)

    def profile(self) -> DeviceProfile:
        """The limits that the board's executor told of its device; DeviceError."""
        return profile_from_json(self._told()["profile"])

    def facts(self) -> dict[str, str]:
        """What the board's executor told of its device; DeviceError."""
        return {name: fact for name, fact in self._told().items() if name != "profile"}

    def upload_workload(self, key: str, inputs: Mapping[str, Array], expected: Array) -> None:
        """Keep arrays for proposals; raises InputError."""
        check_workload(inputs, expected)
        self._workloads[key] = dict(inputs), expected

    def measure(
        self,
        plan: HostPlan,
        *,
        workload: str,
        candidate: str = "",
        tolerance: Tolerance = DEFAULT_TOLERANCE,
        protocol: Protocol = DEFAULT_PROTOCOL,
        timeout_s: float = 60.0,
        deadlines: Deadlines = NO_DEADLINES,
    ) -> Outcome:
        """What the store says once the board's result is there; DeviceError."""
        del deadlines
        with self._lock:
            self._told()
            arrays = arrays_json(*self._workloads[workload], tolerance, self._spool)
            payload, artifacts = measure_job(
                candidate, plan, arrays, protocol, timeout_s, self._spool
            )
            run = self._propose(plan, payload, artifacts)
            self._work(self._leased())
            (found,) = self._service.farm.measurements.page(Selection(run_id=run))
            return found.measurement.outcome

    # -- the farm ----------------------------------------------------------------------------

    def _propose(self, plan: HostPlan, payload: dict[str, Any], artifacts: list[str]) -> str:
        """A run whose only candidate is the plan; its id."""
        farm = self._service.farm
        run = new_run(farm, self._service.device_id)
        claim = farm.jobs.claim_work((JobKind.PROPOSE,), "test", lease_s=30)
        assert claim is not None
        record = replace(
            candidate(0, plan.memory_bytes), source_hash=payload["plan"]["source"]["artifact"]
        )
        contents = tuple(ArtifactContent((self._spooled / name).read_bytes()) for name in artifacts)
        study = StudySpec("nestmap/program/1", PROGRAM, "direct", "strict", 0)
        proposed = ProposedCandidate(0, record, payload, tuple(artifacts))
        farm.results.finish_propose(
            claim.lease, Proposal(DEVICE, (study,), (proposed,), contents, exhausted=True)
        )
        return run.id

    # -- the board ---------------------------------------------------------------------------

    def _leased(self) -> Lease:
        hello = {"protocol": PROTOCOL, "agent_version": AGENT_VERSION, "facts": self._told()}
        return Lease.of(self._post(f"devices/{self._service.device_id}/lease", hello))

    def _work(self, lease: Lease) -> None:
        """Have a job measured and send what came of it; DeviceError."""
        message = {"do": "measure", "job": lease.job, "payload": lease.payload,
                   "artifacts": {name: str(self._fetched(name)) for name in lease.artifacts()},
                   "limit_s": lease.deadline_s}  # fmt: skip
        self._ready = {}
        os.write(self._asking, json.dumps(message).encode() + b"\n")
        while (event := self._event()).get("event") != "outcome":
            if self._ready:
                raise DeviceError(Problem("board", "its executor has no outcome"))
        facts = {**self._told(), **event["facts"]}
        self._post(
            f"jobs/{lease.job}/result",
            {"attempt": lease.attempt, "lease_token": lease.token, "outcome": event["outcome"],
             "facts": facts},
        )  # fmt: skip

    def _fetched(self, digest: str) -> Path:
        path = self._cache / digest
        if not path.exists():
            answer = self._service.device.get(f"/v1/artifacts/{digest}")
            path.write_bytes(answer.raise_for_status().content)
        return path

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._service.device.post(f"/v1/{path}", json=body).raise_for_status().json()

    def _told(self) -> dict[str, Any]:
        """The facts of an executor that is ready; DeviceError where it has no device."""
        with self._lock:
            while not self._ready:
                self._event()
            return self._ready

    def _event(self) -> dict[str, Any]:
        event = self._broken or json.loads(self._events.readline())
        if event["event"] in ("no-device", "quarantined"):
            self._broken = event
            raise DeviceError(Problem("board", event["reason"]))
        if event["event"] == "ready":
            self._ready = event["facts"]
        return event
