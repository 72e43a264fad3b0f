"""Measure jobs for agents, their artifacts stored in the fake server."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.host_plan import HostPlan
from tests.unit.agent.fake_server import FakeServer
from tests.unit.worker.plans import DOUBLE, input_data, one_kernel_plan
from worker.measuring import Protocol, Tolerance

QUICK = Protocol(warmup=0, repetitions=2, max_repetitions=2)


def array(server: FakeServer, values: np.ndarray) -> dict[str, Any]:
    plain = np.ascontiguousarray(values)
    digest = server.store(plain.tobytes())
    return {"artifact": digest, "dtype": str(plain.dtype), "shape": list(plain.shape)}


def payload(
    server: FakeServer, plan: HostPlan | None = None, *, timeout_s: float = 30.0, **more: Any
) -> dict[str, Any]:
    """The job of a plan that doubles its input."""
    data = input_data()
    plan_json = (plan or one_kernel_plan(DOUBLE)).to_json()
    plan_json["source"] = {"artifact": server.store(plan_json["source"].encode())}
    return {
        "schema": "nestmap/measure-job/1",
        "candidate": "cand_1",
        "plan": plan_json,
        "workload": {
            "inputs": {"a": array(server, data)},
            "expected": array(server, 2 * data.astype(np.float64)),
            "tolerance": Tolerance().to_json(),
        },
        "protocol": QUICK.to_json(),
        "timeout_s": timeout_s,
        **more,
    }
