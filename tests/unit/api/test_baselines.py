"""What a run is held against: other variants of its layer on its device, whoever measured them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from db.canonical import canonical_json, content_hash
from db.farm.run_records import NewRun, Proposal, ProposedCandidate, StudySpec
from db.farm.states import JobKind
from db.records import CandidateRecord
from mapper.ast_model.codec import program_to_json
from mapper.layer_sets import layer_of_name
from mapper.measurement import CompileError, Outcome, Timed
from mapper.variants import LAST_RESORT, VARIANTS, variant_program
from tests.unit.api.conftest import Service
from tests.unit.api.farm_data import DEVICE, UNBOUNDED, measure, new_run, propose

LAYER = "vgg16/7"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


SKETCH = "tile-filter"


def program_of(variant: str) -> tuple[str, str]:
    """The schema and text of what is stored of the layer in a variant or under a sketch."""
    name = variant if variant in VARIANTS else LAST_RESORT
    program = program_to_json(variant_program(layer_of_name(LAYER), name))
    if variant in VARIANTS:
        return program["schema"], canonical_json(program)
    under = {"program": program, "schedule": {"name": variant}}
    return "nestmap/scheduled/1", canonical_json({"schema": "nestmap/scheduled/1", **under})


def record(variant: str, number: int, memory_bytes: int) -> CandidateRecord:
    program = content_hash(program_of(variant)[1])
    return CandidateRecord(program, {"n": number}, {"a": 20}, {"k": [1, 1, 1]}, "0" * 64,
                           memory_bytes, "0.1.0")  # fmt: skip


def timed(time_ms: float) -> Timed:
    return Timed((round(time_ms * 1e6),), 0.0, 1.0)


def run_of_partial(service: Service, *times_ms: float, first: int = 0) -> str:
    """A finished run of the layer in ``partial``, of candidates from number ``first``; its id."""
    new = NewRun(service.device_id, LAYER, "somebody",
                 {"subject": {"name": LAYER}, "protocol": {"warmup": 1}}, **UNBOUNDED)  # fmt: skip
    run = service.farm.runs.create(new).value
    claim = service.farm.jobs.claim_work((JobKind.PROPOSE,), "test", lease_s=30)
    assert claim is not None
    study = StudySpec(*program_of("partial"), "partial", "strict", 0)
    payload = {"schema": "nestmap/measure-job/1", "timeout_s": 5.0}
    candidates = tuple(
        ProposedCandidate(0, record("partial", first + number, 1000), payload)
        for number in range(len(times_ms))
    )
    proposal = Proposal(DEVICE, (study,), candidates, exhausted=True)
    service.farm.results.finish_propose(claim.lease, proposal)
    measure(service.farm, service.device_id, *map(timed, times_ms))
    return run.id


def tuned_alone(service: Service, variant: str, driver: str, *outcomes: Outcome) -> None:
    """What ``nestmap tune`` stores without a farm, on the device with this driver."""
    store = service.farm.store
    program = store.add_program(*program_of(variant))
    device = store.add_device(DEVICE.name, {**DEVICE.facts, "driver": driver})
    study = store.open_study(program, device, mode="strict", seed=0, label=LAYER, variant=variant)
    for number, outcome in enumerate(outcomes):
        store.add_measurement(study, record(variant, number, 5000), outcome, 5000, NOW)


@pytest.fixture
def service(tmp_path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


def test_variants_that_nobody_measured_are_listed_with_what_measures_them(service: Service):
    run = run_of_partial(service, 3.0, 2.0)
    found = service.user.get(f"/v1/runs/{run}/baselines").json()
    assert found["best"]["time_ms"] == 2.0
    assert [one["variant"] for one in found["baselines"]] == ["high-level", "direct"]
    for one in found["baselines"]:
        assert one["description"] and one["point"] is one["run"] is one["time_over_best"] is None
    page = service.user.get(f"/runs/{run}").text
    for variant in ("high-level", "direct"):
        assert f'name="variant" value="{variant}"' in page
        assert (
            f"nestmap tune {LAYER} --url http://testserver --device {service.device_id} "
            f"--variant {variant} --candidates 60" in page
        )


def test_the_fastest_of_each_variant_on_the_device_counts_whoever_measured_it(service: Service):
    other = run_of_partial(service, 1.0, first=10)
    run = run_of_partial(service, 3.0, 2.0)
    driver = DEVICE.facts["driver"]
    tuned_alone(service, "direct", driver, CompileError("no"), timed(9.0), timed(8.0))
    tuned_alone(service, SKETCH, driver, timed(4.0))
    tuned_alone(service, "high-level", "another", timed(0.5))
    found = service.user.get(f"/v1/runs/{run}/baselines").json()["baselines"]
    times = [one["point"] and one["point"]["time_ms"] for one in found]
    assert [
        (one["variant"], time, one["time_over_best"], one["run"])
        for one, time in zip(found, times, strict=True)
    ] == [
        ("partial", 1.0, 0.5, other), (SKETCH, 4.0, 2.0, None), ("direct", 8.0, 4.0, None),
        # Its times are of another state of the device.
        ("high-level", None, None, None),
    ]  # fmt: skip
    page = service.user.get(f"/runs/{run}").text
    assert 'name="variant" value="high-level"' in page and 'variant" value="direct"' not in page
    for one in found[:3]:
        assert f"c={one['point']['candidate']}" in page
    # The run itself is none of its baselines.
    names = [
        one["variant"]
        for one in service.user.get(f"/v1/runs/{other}/baselines").json()["baselines"]
    ]
    assert names == [SKETCH, "direct", "high-level"]


def test_a_baseline_that_is_missing_is_measured_as_the_run_was(service: Service):
    run = run_of_partial(service, 2.0)
    address = f"/runs/{run}/baselines"
    form = {"variant": "high-level"}
    assert service.device.post(address, data=form).status_code == 403
    answer = service.user.post(address, data=form, follow_redirects=False)
    assert answer.status_code == 303
    made = service.farm.runs.run(answer.headers["location"].removeprefix("/runs/"))
    assert made.request["variants"] == ["high-level"]
    assert made.request["subject"] == {"name": LAYER} and made.request["protocol"] == {"warmup": 1}
    assert (made.board_id, made.label) == (service.device_id, f"high-level of {LAYER}")
    assert made.budget_candidates == 60
    tuned_alone(service, "high-level", DEVICE.facts["driver"], timed(90.0))
    for wrong in (form, {"variant": "tiled"}, {}):
        answer = service.user.post(address, data=wrong)
        assert answer.status_code == 422 and "no baseline that is missing" in answer.text


def test_a_baseline_that_does_not_do_the_layer_is_not_missed(service: Service):
    document = {**layer_of_name(LAYER).to_json(), "bias": True}
    new = NewRun(service.device_id, "biased", "somebody", {"subject": {"document": document}},
                 **UNBOUNDED)  # fmt: skip
    run = service.farm.runs.create(new).value
    propose(service.farm, 100, exhausted=True)
    measure(service.farm, service.device_id, timed(1.0))
    found = service.user.get(f"/v1/runs/{run.id}/baselines").json()["baselines"]
    assert [one["variant"] for one in found] == ["high-level"]
    answer = service.user.post(f"/runs/{run.id}/baselines", data={"variant": "direct"})
    assert answer.status_code == 422 and "no baseline that is missing" in answer.text


def test_a_run_without_a_time_and_one_of_no_layer_have_none(service: Service):
    waiting = new_run(service.farm, service.device_id)
    nothing = {"best": None, "baselines": []}
    assert service.user.get(f"/v1/runs/{waiting.id}/baselines").json() == nothing
    assert "There is nothing to compare yet" in service.user.get(f"/runs/{waiting.id}").text
    service.farm.runs.cancel(waiting.id)
    program = new_run(service.farm, service.device_id, "a program")
    propose(service.farm, 100, exhausted=True)
    measure(service.farm, service.device_id, timed(1.0))
    found = service.user.get(f"/v1/runs/{program.id}/baselines").json()
    assert found["best"]["time_ms"] == 1.0 and found["baselines"] == []
    page = service.user.get(f"/runs/{program.id}").text
    assert "computed in one way only" in page and "/baselines" not in page
