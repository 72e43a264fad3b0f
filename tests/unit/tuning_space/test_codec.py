"""``nestmap/space/1``: what is read, written back, and refused with a pointer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.errors import InputError
from mapper.tuning_space.codec import space_from_json, space_to_json
from mapper.tuning_space.document import (
    MAX_VALUES,
    TuningConstraint,
    TuningParameter,
    TuningSpace,
)
from mapper.tuning_space.language import RESERVED
from mapper.tuning_space.lowering import solver_space


def document(**changes: Any) -> dict[str, Any]:
    return {"schema": "nestmap/space/1", "name": "s", "parameters": {"x": [1, 2]}, **changes}


def problems(value: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        space_from_json(value)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "not an object"),
        ("{", "malformed JSON"),
        ('{"name": 1, "name": 2}', "a key stands twice"),
        ('{"parameters": {"x": [1], "x": [2]}}', "a key stands twice"),
        ('{"parameters": {"x": [NaN]}}', "not a number of JSON"),
        ('{"parameters": {"x": [9223372036854775808]}}', "an integer is too large"),
        ("[" * 10_000, "nested too deeply"),
        (document(schema="nestmap/space/2"), "/schema: another schema"),
        (document(colour=1), "/colour: unknown field"),
        (document(name=1), "/name: not a text"),
        ({"schema": "nestmap/space/1", "name": "s"}, "/parameters: the field is missing"),
        (document(parameters={}), "/parameters: there are none"),
        (document(parameters=[]), "/parameters: not an object"),
        (document(parameters={str(i): [1] for i in range(2000)}), "/parameters: there are too"),
        (document(parameters={"x": []}), "/parameters/x: the parameter has no values"),
        (document(parameters={"x": 3}), "/parameters/x: not the values of a parameter"),
        (document(parameters={"x": [0.5]}), "/parameters/x/0: a value is not an integer"),
        (document(parameters={"x": [1, 1.0]}), "/parameters/x/1: a value is not an integer"),
        (document(parameters={"x": [None]}), "/parameters/x/0: a value is of another kind"),
        (document(parameters={"x": [1, "a"]}), "/parameters/x/1: a value is of another kind"),
        (document(parameters={"x": [True, 1]}), "/parameters/x/1: a value is of another kind"),
        (document(parameters={"x": [1, [2]]}), "/parameters/x/1: a value is of another kind"),
        (document(parameters={"x": [3, 4, 3]}), "/parameters/x/2: a value stands twice"),
        (document(parameters={"x": ["a\n"]}), "/parameters/x/0: not a label"),
        (document(parameters={"x": [2**70]}), "/parameters/x/0: an integer is too large"),
        (document(parameters={"x": list(range(10**6))}), "x: the parameter has too"),
        (document(parameters={"x": {"from": 1, "to": 10**18}}), "x: the parameter has too"),
        (document(parameters={"x": {"from": 1}}), "/parameters/x/to: the field is missing"),
        (document(parameters={"x": {"from": 1, "to": 2, "by": 1}}), "/x/by: unknown field"),
        (document(parameters={"x": {"from": "1", "to": 2}}), "/parameters/x/from: not an integer"),
        (document(parameters={"x": {"from": 1, "to": 2, "step": 0}}), "/parameters/x/step: a step"),
        (document(parameters={"x": {"from": 0, "to": 2, "times": 2}}), "/x/from: the values"),
        (document(parameters={"x": {"from": 1, "to": 2, "times": 1}}), "/x/times: the values"),
        (document(parameters={"x": {"from": 3, "to": 2}}), "/parameters/x: the parameter has no"),
        (document(parameters={"1x": [1]}), "/parameters/1x: not a name"),
        (document(parameters={"lambda": [1]}), "/parameters/lambda: not a name"),
        (document(parameters={"max": [1]}), "/parameters/max: not a name"),
        (document(parameters={"größe": [1]}), "not a name for a parameter"),
        (document(parameters={"a/b": [1]}), "/parameters/a~1b: not a name"),
        (document(constraints="x > 1"), "/constraints: not a list"),
        (document(constraints=[1]), "/constraints/0: not an object"),
        (document(constraints=[{"sentence": "s"}]), "/constraints/0/expr: the field is missing"),
        (document(constraints=[{"expr": "x > 1", "id": "a b"}]), "/constraints/0/id: not an id"),
        (document(constraints=[{"expr": "x > 1", "why": "s"}]), "/0/why: unknown field"),
        (document(constraints=[{"expr": "x>0", "id": "2"}, "x>1"]), "/constraints/1/id: the id is"),
        (document(constraints=["x > 1"] * 3000), "/constraints: there are too many"),
        (document(constraints=["x > 1" + " " * 4000] * 100), "too long together"),
        (document(expected_count=-1), "/expected_count: a count is not negative"),
        (document(expected_count="9"), "/expected_count: not an integer"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_pointer(value: object, words: str):
    assert any(words in problem for problem in problems(value))


def test_all_problems_are_named_at_once():
    value = document(name=1, parameters={"x": [], "y": [0.5]}, constraints=[1], colour="red")
    assert len(problems(value)) == 5


def test_all_wrong_expressions_are_named_at_once():
    space = space_from_json(document(constraints=["x >", "x > 1", "z > 1", "x + 1"]))
    with pytest.raises(InputError) as caught:
        solver_space(space)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["/constraints/0", "/constraints/2", "/constraints/3"]


@pytest.mark.parametrize(
    ("given_values", "values"),
    [
        ({"from": 1, "to": 4}, (1, 2, 3, 4)),
        ({"from": -2, "to": 5, "step": 3}, (-2, 1, 4)),
        ({"from": 1, "to": 20, "times": 2}, (1, 2, 4, 8, 16)),
        ({"from": 3, "to": 3, "times": 9}, (3,)),
        ({"from": 1, "to": MAX_VALUES}, tuple(range(1, MAX_VALUES + 1))),
        ([4, 2, 8], (4, 2, 8)),
        ([True], (True,)),
        (["b", "a"], ("b", "a")),
    ],
)
def test_values_are_a_list_or_a_range(given_values: object, values: tuple[object, ...]):
    (parameter,) = space_from_json(document(parameters={"x": given_values})).parameters
    assert parameter.values == values
    read_back = [parameter.value_of(number) for number in parameter.domain]
    assert set(read_back) == set(values)
    for number, value in list(zip(parameter.domain, read_back, strict=True))[
        :: len(values) // 64 + 1
    ]:
        assert parameter.number_of(value) == number
    assert list(parameter.domain) == sorted(parameter.domain)


def test_only_a_parameters_own_values_have_a_number():
    choice = TuningParameter("x", ("b", "a"))
    switch = TuningParameter("x", (True, False))
    number = TuningParameter("x", (4, 1))
    assert [choice.number_of(value) for value in ("b", "a", "c", 0, None)] == [0, 1] + [None] * 3
    assert [switch.number_of(value) for value in (True, False, 1, "true")] == [1, 0, None, None]
    assert [number.number_of(value) for value in (4, True, 1.0, "4", 2)] == [4] + [None] * 4


def test_constraints_carry_their_id_sentence_and_source():
    stated = {"id": "fits", "expr": "x < 2", "sentence": "two do not fit"}
    space = solver_space(
        space_from_json(document(source="a paper", constraints=["x > 0 and x < 9", stated]))
    )
    first, second = space.constraints
    assert (first.id, first.sentence) == ("space/1", "x > 0 and x < 9")
    assert (second.id, second.sentence) == ("space/fits", "two do not fit")
    assert second.rule == "space"
    assert str(second.provenance) == "a paper"
    assert "x" in second.remedy


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in RESERVED
)
values = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True),
    st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
    st.lists(st.text("abc \"'{é", max_size=3), min_size=1, max_size=5, unique=True),
)


@given(
    st.dictionaries(names, values, min_size=1, max_size=4),
    st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=4),
    st.text(max_size=9),
    st.none() | st.integers(0, 2**62),
)
def test_what_is_written_is_read_back(
    parameters: dict[str, list[Any]],
    constraints: list[tuple[str, str]],
    text: str,
    count: int | None,
):
    space = TuningSpace(
        text,
        tuple(TuningParameter(name, tuple(v)) for name, v in parameters.items()),
        tuple(
            TuningConstraint(expression, f"c-{index}" if sentence else "", sentence)
            for index, (expression, sentence) in enumerate(constraints)
        ),
        source=text,
        licence="MIT",
        expected_count=count,
    )
    written = json.dumps(space_to_json(space))
    assert space_from_json(written) == space
    assert json.dumps(space_to_json(space_from_json(written))) == written
