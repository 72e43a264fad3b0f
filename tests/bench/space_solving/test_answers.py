"""Everyone who is measured solves the same problem, and unequal answers are noticed."""

import json

import numpy as np
import pytest

from bench.space_solving.canonical import digest, positions
from bench.space_solving.cases import Case, tuning_case
from bench.space_solving.child import CONTESTANTS, measure
from bench.space_solving.measuring import BY_KEY, PEERS_PYTHON, Cell, Limits, Task, run_once
from bench.space_solving.tables import disagreements
from tests.bench.space_solving.spaces import EMPTY, MIXED, TINY

OWN = ("nestmap", "numpy-join", "numpy-brute-force", "brute-force")
PEERS = tuple(key for key, contestant in BY_KEY.items() if contestant.package)


def answer(case: Case, contestant: str, task: str, seed: int = 0) -> dict:
    problem = case.problem
    return measure(
        {
            "contestant": contestant,
            "task": task,
            "parameters": json.loads(json.dumps(problem.parameters)),
            "constraints": list(problem.constraints),
            "schema": problem.schema,
            "document": problem.document,
            "number": 50,
            "seed": seed,
            "timeout_s": 100,
        }
    )


@pytest.mark.parametrize("space", [TINY, MIXED], ids=lambda space: space.name)
def test_nestmap_numpy_and_brute_force_find_the_same_solutions(space):
    case = tuning_case(space)
    found = {key: answer(case, key, "construct") for key in OWN}
    assert len({value["digest"] for value in found.values()}) == 1
    counts = {value["count"] for value in found.values()}
    counts |= {value["distinct"] for value in found.values()}
    counts |= {answer(case, key, "count")["count"] for key in OWN}
    assert len(counts) == 1
    assert space.expected_count in (None, *counts)


def test_a_space_without_solutions_is_measured_too():
    case = tuning_case(EMPTY)
    digests = {answer(case, key, "construct")["digest"] for key in OWN}
    assert len(digests) == 1
    assert {answer(case, key, "count")["count"] for key in OWN} == {0}


@pytest.mark.parametrize("contestant", OWN)
def test_samples_are_solutions_and_follow_the_seed(contestant):
    case = tuning_case(TINY)
    found = answer(case, contestant, "sample")
    assert (found["count"], found["wrong"]) == (50, 0)


def test_a_sample_outside_the_space_is_counted_as_wrong(monkeypatch):
    class Careless:
        def prepare(self, problem):
            self.names = problem.names

        def sample(self, number, seed):
            return [(8, 3, 1, 0), (8, 1, 1, 0)]

        construct = count = None

        def columns(self, solutions):
            return list(zip(*solutions, strict=True))

    monkeypatch.setitem(CONTESTANTS, "careless", Careless)
    assert answer(tuning_case(TINY), "careless", "sample")["wrong"] == 1


@pytest.mark.needs(str(PEERS_PYTHON), install="run `make peers`")
@pytest.mark.parametrize("contestant", PEERS)
def test_other_builders_find_the_same_solutions(contestant):
    case = tuning_case(TINY)
    expected = answer(case, "brute-force", "construct")
    limits = Limits(timeout_s=60, samples=20)

    def once(task):
        return run_once(case, BY_KEY[contestant], task, PEERS_PYTHON, limits, 1)

    constructed = once(Task.CONSTRUCT)
    assert constructed["digest"] == expected["digest"]
    assert constructed["count"] == constructed["distinct"] == 36
    assert once(Task.COUNT)["count"] == 36
    sampled = once(Task.SAMPLE)
    assert (sampled["count"], sampled["wrong"]) == (20, 0)


def test_the_digest_depends_on_the_set_alone():
    parameters = {"a": (1, 2, 3), "b": ("x", "y")}
    rows = [(1, "x"), (3, "y"), (2, "x")]
    columns = list(zip(*rows, strict=True))
    turned = list(zip(*reversed(rows), strict=True))
    assert digest(columns, parameters) == digest(turned, parameters)
    other = list(zip(*[(1, "x"), (3, "x"), (2, "x")], strict=True))
    assert digest(other, parameters) != digest(columns, parameters)
    twice = [np.array([1, 1]), np.array(["x", "x"])]
    assert digest(twice, parameters)[0] == 1


def test_a_value_that_no_parameter_has_is_named():
    with pytest.raises(ValueError, match="b has a value"):
        positions([np.array([1]), np.array([7])], {"a": (1, 2), "b": (1, 2)})


def cell(contestant: str, **fields) -> Cell:
    return Cell("tiny", "f", contestant, fields.pop("task", "construct"), [0.1], [0.1], **fields)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (cell("pyatf", count=36, distinct=36, digest="b"), "another set"),
        (cell("pyatf", count=35, distinct=35, digest="a"), "35 solutions, not 36"),
        (cell("pyatf", count=36, distinct=35, digest="a"), "more than once"),
        (cell("pyatf", task="sample", count=50, wrong=2), "2 samples break"),
        (cell("pyatf", refusal="failed: no module"), "no module"),
    ],
    ids=["set", "count", "repeats", "samples", "failure"],
)
def test_an_unequal_answer_is_reported(wrong, message):
    case = tuning_case(TINY)
    right = cell("nestmap", count=36, distinct=36, digest="a")
    (found,) = disagreements(case, {c.key: c for c in (right, wrong)})
    assert message in found
    assert "pyatf" in found
    assert disagreements(case, {right.key: right}) == []
