"""The quick way of writing answers writes what the plain one does."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.pipeline import AnswerTexts, answer_to_json, json_text

SUBJECT: Any = SimpleNamespace(tuning_space=None)
NAMES = st.text(min_size=1, max_size=6).filter(lambda name: "\0" not in name)


def variables() -> st.SearchStrategy[list[Variable]]:
    code = st.builds(CodeVariable, st.integers(0, 99) | NAMES)
    parameter = st.builds(ParameterVariable, NAMES)
    size = st.builds(LocalSizeVariable, NAMES, st.integers(0, 2))
    return st.lists(code | parameter | size, unique=True, max_size=12)


@given(st.lists(variables(), max_size=3), st.randoms(use_true_random=False))
def test_answers_of_any_variables_are_written_as_plain_json(kinds: list[Any], random: Any) -> None:
    texts = AnswerTexts(SUBJECT)
    for names in [*kinds, *kinds]:
        assignment = {
            name: random.choice((0, 1, 20, 22)) if isinstance(name, CodeVariable)
            else random.randrange(1, 10**6)
            for name in names
        }  # fmt: skip
        text = texts.of(assignment)
        assert text == json_text(answer_to_json(SUBJECT, assignment))
        assert "mapping" in json.loads(text)
