"""Pages of what was stored, while no solver answers: they say so and show the rest, escaped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from urllib.parse import urlencode

import pytest

from api.solver_pool import Answer
from db.farm.run_records import ArtifactContent
from db.records import CandidateRecord
from mapper.measurement import CompileError, Outcome, Timed
from tests.unit.api.conftest import Service

HOSTILE = '<script>alert("x")</script>'
SOURCE = f"kernel void k(global float *x) {{ /* {HOSTILE} */ }}\n"


#: Each candidate is another one: the first outcome of one in a study stays.
NUMBERS = count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("pages"))
    yield made
    made.close()


def stored(service: Service, outcome: Outcome, **chosen) -> str:
    """A candidate as ``nestmap tune`` stores it, without a run or a board."""
    store = service.farm.store
    artifact = service.farm.artifacts.put(ArtifactContent(SOURCE.encode(), "text/x-opencl-src"))
    program = store.add_program("nestmap/program/1", '{"name": "p"}')
    device = store.add_device(f"cpu {HOSTILE}", {"device.name": HOSTILE})
    study = store.open_study(
        program, device, mode="strict", seed=0, label=HOSTILE, variant="direct"
    )
    values = {"mapping": {"a": 20, HOSTILE: 0}, "parameters": {"n": next(NUMBERS)},
              "local_sizes": {"k": [1, 2, 3]}} | chosen  # fmt: skip
    record = CandidateRecord(program, values["parameters"], values["mapping"],
                             values["local_sizes"], artifact.hash, 4096, "0.1.0")  # fmt: skip
    store.add_measurement(study, record, outcome, 4096, datetime(2026, 11, 21, tzinfo=UTC))
    return record.id


def test_a_timed_candidate_is_shown_with_what_the_store_has(service):
    candidate = stored(service, Timed((3_000_000, 1_000_000, 2_000_000), 1e-7, 5.0, {"f": HOSTILE}))
    page = service.user.get(f"/candidates/{candidate}")
    assert page.status_code == 200
    assert "The solver did not describe this candidate" in page.text
    assert ">Ask again</a>" in page.text
    assert "2.00\u202fms" in page.text and "4.00\u202fKiB" in page.text
    assert "kernel" in page.text and HOSTILE not in page.text
    assert "&lt;script&gt;" in page.text
    # What it was asked about: the program, since neither a run nor a named layer is known.
    assert service.solver.asked[-1]["subject"] == {"document": {"name": "p"}}
    assert service.solver.asked[-1]["device"] == "pocl"
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_failed_candidate_says_how_it_failed(service):
    candidate = stored(service, CompileError(f"line 1: {HOSTILE}"))
    page = service.user.get(f"/candidates/{candidate}").text
    assert "compile-error" in page and "line 1: &lt;script&gt;" in page
    assert "It was not timed" in page


def test_what_is_no_mapping_does_no_harm(service):
    candidate = stored(service, Timed((1,), 0.0, 1.0), mapping=[1, 2], local_sizes=[])
    page = service.user.get(f"/candidates/{candidate}")
    assert page.status_code == 200
    assert "Measure again</button>" not in page.text


def test_candidates_are_compared_by_what_the_store_has(service):
    first = stored(service, Timed((1_000_000,) * 9, 0.0, 1.0))
    second = stored(service, Timed((4_000_000,) * 9, 0.0, 1.0))
    page = service.user.get(f"/compare?c={first}&c={second}&c=")
    assert page.status_code == 200
    assert "4.00 times as slow" in page.text and "Both sources are the same" in page.text
    assert HOSTILE not in page.text


def test_a_layer_says_that_no_solver_answers(service):
    page = service.user.get("/layers/vgg16/7?view=check")
    assert page.status_code == 200 and "no answer" in page.text
    assert service.user.get("/layers/vgg16/99").status_code == 404
    assert service.user.get(f"/layers/{'0' * 64}").status_code == 404
    assert service.user.get("/layers/vgg16/7?view=nothing").status_code == 422
    assert service.user.get(f"/layers/vgg16/7?device={'x' * 65}").status_code == 422


def test_a_form_pins_by_leading_to_the_address_that_has_the_pin(service):
    answer = service.user.get(
        "/layers/vgg16/7?view=mappings&pin=a%3DS&add=pin&name=a&value=W0", follow_redirects=False
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == "/layers/vgg16/7?view=mappings&pin=a%3DW0"


def test_what_a_form_states_is_asked_and_stays_in_the_form(service):
    query = urlencode({
        "suits": "all", "no_sequential_fusion": "1",
        "where": f"theta < 8\r\n\r\ncode(row) != '{HOSTILE}'",
    })  # fmt: skip
    page = service.user.get(f"/layers/vgg16/7?{query}").text
    asked = service.solver.asked[-1]
    wanted = ["theta < 8", f"code(row) != '{HOSTILE}'"]
    assert (asked["where"], asked["suits"]) == (wanted, ["all"])
    assert asked["sequential_fusion"] is False and "free_grid" not in asked
    assert 'name="no_sequential_fusion" value="1" checked' in page
    assert 'name="free_grid" value="1">' in page
    assert "theta &lt; 8\ncode(row) != &#39;&lt;script&gt;" in page and HOSTILE not in page
    assert service.user.get("/layers/vgg16/7?" + "where=a&" * 33).status_code == 422


def test_measuring_again_pins_every_choice(service):
    candidate = stored(service, Timed((1_000_000,), 0.0, 1.0), parameters={"n": 1000})
    address = f"/candidates/{candidate}/re-measure"
    assert service.user.post(address, data={"device": "nonsense"}).status_code == 422
    assert service.user.post(address, data={}).status_code == 422
    answer = service.user.post(address, data={"device": service.device_id}, follow_redirects=False)
    assert answer.status_code == 303
    run = service.farm.runs.run(answer.headers["location"].rpartition("=")[2])
    assert sorted(run.request["pin"]) == sorted(
        ["a=20", f"{HOSTILE}=0", "n=1000", "k.0=1", "k.1=2", "k.2=3"]
    )
    assert run.budget_candidates == 1 and run.board_id == service.device_id
    assert service.device.post(address, data={"device": service.device_id}).status_code == 403


def test_a_layer_of_ones_own_is_stored_and_shown_by_its_id(service):
    form = {"channels": "3", "height": "8", "width": "8", "filters": "4", "layer_name": ""}
    answer = service.user.post("/layers", data=form, follow_redirects=False)
    assert answer.status_code == 303
    again = service.user.post("/layers", data=form, follow_redirects=False)
    assert again.headers["location"] == answer.headers["location"]
    page = service.user.get("/layers")
    assert answer.headers["location"] in page.text
    assert service.user.post("/layers", data=form | {"channels": "three"}).status_code == 422
    assert service.user.post("/layers", data=form | {"groups": "2"}).status_code == 422


def test_counts_that_were_not_found_are_said_not_to_be(service):
    service.solver.answers["describe"] = Answer(
        [{"name": "a", "kind": "map", "values": [0, 20]}],
        {"kernels": [], "constraints": {}, "preferences": {}, "label": "x", "variants": {}},
    )
    service.solver.answers["waterfall"] = Answer(
        [{"rule": "no-mixing", "constraints": 1, "before": 10**30, "after": None}],
        {"of": "mappings", "complete": False},
    )
    page = service.user.get("/layers/vgg16/7?view=counts&seconds=3").text
    assert "not counted" in page and "within 3 s" in page and "10³⁰" in page
