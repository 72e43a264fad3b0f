"""What is in a body is counted before it is built."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.bounded_json import DEFAULT_BOUNDS, JsonBounds, read_json
from api.problems import ProblemError
from mapper.ast_model import bounded_json
from mapper.ast_model.bounded_json import TooManyValues, loads_bounded

BODIES = {
    "numbers": b"[" + b"1," * 499_999 + b"1]",
    "objects": b"[" + b"{}," * 300_000 + b"{}]",
    "keys": b"{" + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}",
    "commas in texts": b'["' + b"," * 900_000 + b'",1]',
    "escaped quotes": b'["' + rb"\"" * 450_000,
    "unclosed": b"[" * 60 + b"1," * 400_000,
}


@pytest.mark.parametrize("name", [name for name in BODIES if "texts" not in name])
def test_hundreds_of_thousands_of_values_are_refused_unbuilt(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "escaped quotes":
        monkeypatch.setattr(bounded_json.json, "loads", lambda *_, **__: pytest.fail("built"))
    began = time.thread_time()
    with pytest.raises(ProblemError) as refused:
        read_json(BODIES[name], DEFAULT_BOUNDS)
    assert time.thread_time() - began < 0.2  # 0.44 s before, 15 ms now
    assert refused.value.type.slug in ("too-complex", "malformed-json")


def test_commas_within_a_text_are_none() -> None:
    assert len(read_json(BODIES["commas in texts"], DEFAULT_BOUNDS)[0]) == 900_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=30,
)


def count(value: object) -> int:
    """Values of any kind, keys not counted."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    return 1


@given(JSON)
def test_what_has_no_more_values_than_allowed_is_never_refused(value: object) -> None:
    text = json.dumps(value)
    assert loads_bounded(text, max_values=count(value)) == value


@given(JSON, st.integers(1, 40))
def test_with_the_walk_behind_it_the_bound_is_exact(value: object, most: int) -> None:
    body = json.dumps(value).encode()
    try:
        accepted = read_json(body, JsonBounds(levels=64, values=most)) == value
    except ProblemError as error:
        assert error.type.slug in ("too-complex", "malformed-json")
        accepted = error.type.slug == "malformed-json"
    assert accepted == (count(value) <= most) or "\\u0000" in body.decode()


def test_nothing_is_counted_where_nothing_is_bounded() -> None:
    assert len(loads_bounded("[" + "1," * 9 + "1]")) == 10
    with pytest.raises(TooManyValues):
        loads_bounded("[" + "1," * 9 + "1]", max_values=9)
