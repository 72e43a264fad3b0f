"""Requests made from the OpenAPI document, right and wrong ones: no fault, and every answer as
the document says (schemathesis, all phases).

The solver is canned, so that thousands of requests take seconds: what real solver children make
of odd input is in ``test_api_hostile_input.py``. ``NESTMAP_SCHEMA_EXAMPLES`` makes it longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.settings import Settings
from api.solver_pool import Answer
from mapper.measurement import Timed
from tests.effort import cases
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import measure, new_run, propose
from tests.unit.api.live_server import serving

EXAMPLES = os.environ.get("NESTMAP_SCHEMA_EXAMPLES", str(cases(1, 2)))
#: In its place is the check of schema_checks.py, which lists what the document does not say.
EXCLUDED = "positive_data_acceptance"
ROOT = Path(__file__).parents[2]
DEVICE_ROUTES = r"/v1/(devices/\{device_id\}/(lease|health)|jobs/|artifacts/)"

MAPPING = {"mapping": {"row": 20}, "local_sizes": {"k": [8, 1, 1]}}
COUNTS = {"constraints": {}, "preferences": {}}
DESCRIPTION = {
    "label": "x", "variant": "", "hash": "0" * 64, "schema": "nestmap/program/1", "document": {},
    "layer": None, "kernels": [], "has_kernels": True, **COUNTS,
}  # fmt: skip
ANSWERS = {
    "describe": Answer([{"name": "row", "kind": "map", "values": [0]}], DESCRIPTION),
    "constraints": Answer([], COUNTS),
    "waterfall": Answer([{"rule": "r", "constraints": 1, "before": 2, "after": None}],
                        {"of": "mappings", "complete": False}),
    "mappings": Answer([{"number": 1, **MAPPING}], {"count": 1, "next": 1, "of": "mappings"}),
    "count": Answer([], {"count": 1, "of": "mappings", "complete": True, "mode": "strict",
                         **COUNTS}),
    "sample": Answer([MAPPING], {"count": 1, "of": "mappings", "seed": 0}),
    "best": Answer([{**MAPPING, "predicted_ms": 0.5}],
                   {"count": 1, "bound_ms": 0.5, "gap": 0.0, "proved": True, "predicted": 4,
                    "seed": 0}),
    "check": Answer([], {"valid": True, "violations": [], "assumed": {}}),
    "explain": Answer([], {"empty": False, "conflict": None}),
    "derive": Answer(
        [{"step": 1, "use": "unroll(k)", "parameters": {"u": [1]}, "constraints": ["u | M"],
          "loops": "kernel k", "text": "program"}],
        {"schema": "nestmap/derivation/1", "schedule": {}, "start": "", "start_loops": "",
         "program": {}, "refusal": None}),
    "sketches": Answer(
        [{"name": "blocks", "reason": "why", "steps": 0, "parameters": {}, "schedule": {},
          "text": "schedule"}],
        {"schema": "nestmap/sketches/1", "count": 1}),
    "kernel": Answer([], {"source": "kernel void k() {}", "plan": {}, "memory": {"bytes": 1},
                          "choices": {}, "facts": {}, "assumed": {}}),
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with an ended run, so that lists have something in them."""
    settings = Settings(
        max_long_poll_s=0, failed_logins_per_minute=100_000, token_cache_s=60,
        solver_requests_per_minute=1_000_000,
    )  # fmt: skip
    made = Service(tmp_path_factory.mktemp("farm"), settings)
    made.solver.answers |= ANSWERS
    new_run(made.farm, made.device_id)
    propose(made.farm, 100, 200, exhausted=True)
    measure(made.farm, made.device_id, Timed((5,), 0, 1), Timed((6,), 0, 1))
    yield made
    made.close()


def run_schemathesis(service, folder: Path, principal: str, *options: str) -> None:
    """Fail with schemathesis's report unless it finds nothing."""
    with serving(service.app) as url:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json",
            "--header", f"Authorization: Bearer {service.tokens[principal]}",
            "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", EXAMPLES,
            "--exclude-checks", EXCLUDED, "--seed", "1", "--generation-database", "none",
            "--request-timeout", "30", "--continue-on-failure", "--no-color", *options,
        ]  # fmt: skip
        hooks = {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.integration.schema_checks"}
        done = subprocess.run(
            command, cwd=folder, env=os.environ | hooks, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    if done.returncode != 0:
        pytest.fail(f"{done.stdout[-12_000:]}\n{done.stderr[-2_000:]}", pytrace=False)
    assert '"event": "fault"' not in service.log.getvalue()


def test_an_admin_s_requests_are_answered_as_the_document_says(service, tmp_path):
    run_schemathesis(service, tmp_path, "admin", "--exclude-path-regex", DEVICE_ROUTES)


def test_a_device_s_requests_are_answered_as_the_document_says(service, tmp_path):
    run_schemathesis(service, tmp_path, "own device", "--include-path-regex", DEVICE_ROUTES)
