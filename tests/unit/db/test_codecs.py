"""Outcomes survive their columns exactly."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from db.canonical import canonical_json
from db.codecs import decode_outcome, encode_outcome, pack_trials, unpack_trials
from mapper.errors import StoreError
from mapper.measurement import (
    OUTCOME_KINDS,
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
    outcome_kind,
)

DETAIL: dict[str, object] = {"max_relative_error": 0.0, "compile_ms": 1.0, "facts": {}}
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text()
#: A trial with its span.
pairs = st.lists(st.tuples(int64, int64), min_size=1, max_size=20)
KINDS: dict[str, st.SearchStrategy[Outcome]] = {
    "timed": st.builds(
        lambda runs, spanned, *others: Timed(
            tuple(trial for trial, _ in runs),
            *others,
            spans_ns=tuple(span for _, span in runs) if spanned else (),
        ),
        pairs,
        st.booleans(),
        st.floats(),
        st.floats(),
        st.dictionaries(text, text),
    ),
    "wrong": st.builds(
        Wrong,
        max_relative_error=st.floats(),
        first_bad_index=st.lists(st.integers()).map(tuple),
        message=text,
    ),
    "compile-error": st.builds(CompileError, text),
    "resource-error": st.builds(ResourceError, text),
    "timeout": st.builds(Timeout, st.floats()),
    "crash": st.builds(Crash, st.integers(), text),
}


def through_columns(outcome: Outcome) -> Outcome:
    columns = encode_outcome(outcome)
    detail = json.loads(canonical_json(columns.detail))
    return decode_outcome(columns.kind, detail, columns.trials, columns.spans)


def test_every_kind_has_a_strategy():
    assert tuple(KINDS) == OUTCOME_KINDS


@pytest.mark.parametrize("kind", OUTCOME_KINDS)
def test_round_trip(kind: str):
    @given(KINDS[kind])
    def holds(outcome: Outcome):
        assert outcome_kind(outcome) == kind
        # repr, since NaN is not equal to itself and -0.0 is equal to 0.0
        back = through_columns(outcome)
        assert repr(sorted_facts(back)) == repr(sorted_facts(outcome))

    holds()


def sorted_facts(outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Timed):
        return outcome
    return replace(outcome, facts=dict(sorted(outcome.facts.items())))


def test_nan_is_kept():
    back = through_columns(Wrong(math.nan, (0,), "every element is NaN"))
    assert isinstance(back, Wrong) and math.isnan(back.max_relative_error)


@given(st.lists(int64))
@example([])
def test_trials_round_trip(trials: list[int]):
    packed = pack_trials(tuple(trials))
    assert len(packed) == 8 * len(trials)
    assert unpack_trials(packed) == tuple(trials)


def test_trials_are_little_endian():
    assert pack_trials((1, -2)).hex() == "0100000000000000feffffffffffffff"


@pytest.mark.parametrize(
    "outcome",
    [
        Timed((), 0.0, 1.0),
        Timed((2**63,), 0.0, 1.0),
        Timed((1, 2), 0.0, 1.0, spans_ns=(1,)),
        Timed((1,), 0.0, 1.0, spans_ns=(2**63,)),
    ],
    ids=["none", "too large", "too few spans", "a span too large"],
)
def test_trials_that_cannot_be_stored(outcome: Timed):
    with pytest.raises(StoreError, match="trials"):
        encode_outcome(outcome)


@pytest.mark.parametrize(
    ("kind", "detail", "trials", "spans"),
    [
        ("melted", {}, None, None),
        ("wrong", {}, None, None),
        ("timed", DETAIL, None, None),
        ("timed", DETAIL, b"1234", None),
        ("timed", DETAIL, b"12345678", b"1234"),
        ("timeout", {"after_s": "soon"}, None, None),
    ],
)
def test_columns_that_are_no_outcome(
    kind: str, detail: dict[str, object], trials: bytes | None, spans: bytes | None
):
    with pytest.raises(StoreError):
        decode_outcome(kind, detail, trials, spans)
