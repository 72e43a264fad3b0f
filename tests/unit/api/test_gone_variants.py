"""Runs and studies in variants that nestmap has no more are read as they were measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from db.canonical import canonical_json, content_hash
from db.farm.run_records import NewRun, Proposal, ProposedCandidate, StudySpec
from db.farm.states import JobKind
from db.records import CandidateRecord
from mapper.ast_model.codec import program_to_json
from mapper.layer_sets import layer_of_name
from mapper.measurement import Timed
from mapper.variants import VARIANTS, variant_program
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import DEVICE, UNBOUNDED, measure

LAYER = "vgg16/7"
GONE = "tiled"
#: What a layer has become in a variant is stored with its study, and may be no program of today.
PROGRAM = program_to_json(
    replace(variant_program(layer_of_name(LAYER), "high-level"), name="tiled_convolution")
)
TEXT = canonical_json(PROGRAM)


def candidate(number: int) -> CandidateRecord:
    return CandidateRecord(content_hash(TEXT), {"tm": number}, {"row": 20}, {"k": [1, 1, 1]},
                           "0" * 64, 1000, "0.1.0")  # fmt: skip


@pytest.fixture
def service(tmp_path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


@pytest.fixture
def run(service: Service) -> str:
    """A finished run of a layer in such a variant; its id."""
    request = {"subject": {"name": LAYER}, "variants": [GONE]}
    new = NewRun(service.device_id, LAYER, "somebody", request, **UNBOUNDED)
    made = service.farm.runs.create(new).value
    claim = service.farm.jobs.claim_work((JobKind.PROPOSE,), "test", lease_s=30)
    assert claim is not None
    study = StudySpec("nestmap/program/1", TEXT, GONE, "strict", 0)
    payload = {"schema": "nestmap/measure-job/1", "timeout_s": 5.0}
    candidates = tuple(ProposedCandidate(0, candidate(n), payload) for n in range(2))
    proposal = Proposal(DEVICE, (study,), candidates, exhausted=True)
    service.farm.results.finish_propose(claim.lease, proposal)
    times = (Timed((milliseconds * 10**6,), 0.0, 1.0) for milliseconds in (3, 2))
    measure(service.farm, service.device_id, *times)
    return made.id


def test_its_run_has_a_front_measurements_and_an_export(service: Service, run: str):
    about = service.user.get(f"/v1/runs/{run}").json()
    assert (about["state"], about["request"]["variants"]) == ("finished", [GONE])
    front = service.user.get("/v1/fronts", params={"run": run}).json()
    assert [(p["time_ms"], p["variant"]) for p in front["points"]] == [(2.0, GONE)]
    measured = service.user.get("/v1/measurements", params={"run": run}).json()["items"]
    assert [(m["time_ms"], m["variant"]) for m in measured] == [(3.0, GONE), (2.0, GONE)]
    exported = service.user.get("/v1/measurements/export", params={"run": run})
    rows = list(csv.DictReader(io.StringIO(exported.text)))
    assert {row["variant"] for row in rows} == {GONE} and len(rows) == 2


def test_its_run_has_a_page_and_baselines_of_today(service: Service, run: str):
    page = service.user.get(f"/runs/{run}")
    assert page.status_code == 200
    assert f"best of this run: {GONE}" in page.text
    found = service.user.get(f"/v1/runs/{run}/baselines").json()
    assert found["best"]["time_ms"] == 2.0
    assert [(one["variant"], one["point"]) for one in found["baselines"]] == [
        ("high-level", None), ("direct", None),
    ]  # fmt: skip


def test_it_shares_the_front_of_what_its_layer_is_called(service: Service, run: str):
    front = service.user.get("/v1/fronts", params={"label": LAYER}).json()
    assert [(p["time_ms"], p["variant"]) for p in front["points"]] == [(2.0, GONE)]


def test_a_candidate_s_page_asks_about_the_program_that_is_stored(service: Service, run: str):
    (point,) = service.user.get("/v1/fronts", params={"run": run}).json()["points"]
    page = service.user.get(f"/candidates/{point['candidate']}")
    assert page.status_code == 200 and GONE in page.text
    assert service.solver.asked
    for asked in service.solver.asked:
        assert asked["subject"] == {"document": PROGRAM}
        assert "variant" not in asked
    assert f"--variant {GONE}" not in page.text


def test_it_is_no_variant_that_is_offered(service: Service):
    names = [one["name"] for one in service.user.get("/v1/variants").json()]
    assert names == list(VARIANTS) and GONE not in names
