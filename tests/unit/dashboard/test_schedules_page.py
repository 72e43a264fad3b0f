"""The page of schedules: forms, steps with before and after, refusals, sketches; all escaped."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from api.dashboard.views.derivations import steps_of
from api.solver_pool import Answer, SolverProblem
from tests.unit.api.conftest import Service

HOSTILE = '<script>alert("x")</script>'
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ITEMS = [
    {"step": 1, "use": "split(row, bm)", "parameters": {"bm": list(range(1, 100))},
     "constraints": ["bm | M"], "loops": "kernel k\n  map row_tile x M/bm\n", "text": HOSTILE},
    {"step": 2, "use": "unroll(k)", "parameters": {}, "constraints": [],
     "loops": "kernel k\n  map row_tile x M/bm\n", "text": "after"},
]  # fmt: skip
END = {"schema": "nestmap/derivation/1", "schedule": {"name": HOSTILE}, "start": "before all",
       "start_loops": "kernel k\n  map row x M\n", "program": {}, "refusal": None}  # fmt: skip
REFUSAL = {"step": 3, "target": f"split({HOSTILE})", "message": "it does not divide",
           "found": "5", "allowed": "2, 4", "remedy": "overhang=padded"}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("schedules"))
    yield made
    made.close()


def sent(service: Service, **fields: str):
    return service.user.post("/schedules", content=urlencode(fields), headers=FORM)


def test_the_form_is_there_and_leads_from_every_page(service):
    page = service.user.get("/schedules")
    assert page.status_code == 200
    assert 'name="program"' in page.text and 'name="schedule"' in page.text
    assert 'href="/schedules" aria-current="page"' in page.text
    assert "h200" in page.text


def test_steps_are_shown_before_beside_after(service):
    service.solver.answers["derive"] = Answer(ITEMS, END)
    page = sent(service, program="vgg16/7", schedule=HOSTILE, wanted="derive")
    assert page.status_code == 200
    assert service.solver.asked[-1]["subject"] == {"name": "vgg16/7"}
    assert service.solver.asked[-1]["schedule"] == HOSTILE
    assert service.solver.asked[-1]["partial"] is True
    assert "2 steps apply" in page.text
    assert "<code>split(row, bm)</code>" in page.text and "bm | M" in page.text
    assert "1, 2, 3 to 99 (99 values)" in page.text
    assert "<mark>  map row x M</mark>" in page.text
    assert "<mark>  map row_tile x M/bm</mark>" in page.text
    assert "before all" in page.text
    assert HOSTILE not in page.text and "&lt;script&gt;" in page.text


def test_a_step_that_does_not_apply_stands_behind_those_that_do(service):
    service.solver.answers["derive"] = Answer(ITEMS, END | {"refusal": REFUSAL})
    page = sent(service, program="program p {\n}", schedule="s", wanted="derive")
    assert service.solver.asked[-1]["subject"] == {"text": "program p {\n}"}
    assert "2 steps before the one that does not apply" in page.text
    assert "<strong>Step 3, split(&lt;script&gt;" in page.text
    assert "it does not divide: 5" in page.text and "Remedy: overhang=padded." in page.text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"program": "vgg16/99", "schedule": "s"}, "no layer of this name"),
        ({"program": "", "schedule": "s"}, "subject"),
        ({"program": "vgg16/7", "schedule": ""}, "schedule"),
        ({"program": "vgg16/7", "wanted": "sketches", "device": HOSTILE}, "device"),
    ],
)
def test_what_cannot_be_asked_is_said_on_the_page_with_what_was_entered(service, fields, said):
    page = sent(service, **fields)
    assert page.status_code == 200 and "Refused" in page.text and said in page.text
    assert fields["program"] in page.text and HOSTILE not in page.text


def test_a_problem_of_the_solver_is_shown(service):
    service.solver.answers["derive"] = SolverProblem("too-complex", "the program becomes too large")
    page = sent(service, program="vgg16/7", schedule="s", wanted="derive")
    assert "the program becomes too large" in page.text


def test_sketches_are_listed_with_reasons_and_lead_to_their_steps(service):
    item = {"name": "blocks", "reason": f"tiles {HOSTILE}", "steps": 4, "parameters": {"bm": [1]},
            "schedule": {}, "text": 'schedule "blocks" {\n}\n'}  # fmt: skip
    service.solver.answers["sketches"] = Answer([item], {"schema": "nestmap/sketches/1"})
    page = sent(service, program="vgg16/7", wanted="sketches", device="h200")
    assert service.solver.asked[-1]["device"] == "h200"
    assert "1 sketch:" in page.text and "4 steps, 1 open size" in page.text
    assert 'value="schedule &#34;blocks&#34; {' in page.text
    assert HOSTILE not in page.text


def test_nobody_without_a_session_makes_work(service):
    asked = len(service.solver.asked)
    page = service.client(None).post(
        "/schedules", content=urlencode({"program": "vgg16/7"}), headers=FORM
    )
    assert page.status_code == 401 and len(service.solver.asked) == asked


def test_lines_that_only_stand_deeper_are_not_new():
    (first, second) = steps_of("p", "kernel k\n  map a x 2\n", [
        ITEMS[0] | {"loops": "kernel k\n  map b x 3\n    map a x 2\n"}, ITEMS[1],
    ])  # fmt: skip
    assert [line.is_new for line in first.before.loops] == [False, False]
    assert [line.is_new for line in first.after.loops] == [False, True, False]
    assert first.after.program == second.before.program
