"""What is frozen is as it was: a part here, all of it by `make frozen`."""

from __future__ import annotations

import pytest

from tests.frozen.facts import Fact, facts
from tests.frozen.file import Differences, Frozen, changed, read

_FACTS = facts()
_KINDS = sorted({name.partition("/")[0] for name in _FACTS})


def test_every_fact_is_frozen_and_everything_frozen_is_a_fact():
    assert sorted(read().facts) == sorted(_FACTS), "python -m tests.frozen --write 'why it changes'"


@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_found_is_what_was_frozen(kind: str):
    found = {n: f.find() for n, f in _FACTS.items() if f.quick and n.startswith(f"{kind}/")}
    assert found
    differences = Differences.between(read().facts, found)
    if differences:
        pytest.fail(
            f"{differences.text()}\n\nIf this is meant: make frozen, then "
            "python -m tests.frozen --write 'why it changes', and the changelog.",
            pytrace=False,
        )


def test_of_each_variant_with_records_one_is_always_looked_at():
    looked_at = {n.split("/")[-1] for n, fact in _FACTS.items() if _quick_record(fact)}
    assert looked_at == {n.split("/")[-1] for n in _FACTS if n.startswith("record/")}


def _quick_record(fact: Fact) -> bool:
    return fact.quick and fact.name.startswith("record/")


def test_differences_are_told_and_written_with_their_reason():
    frozen = Frozen({"count/a": 1, "rows/b": [1, 2, 3], "rule/c": {"x": "1 ab"}, "rule/d": 0}, ())
    found = {"count/a": 2, "rows/b": [1, 3, 2], "rule/c": {"x": "1 ab", "y": "2 cd"}, "new/e": 5}
    differences = Differences.between(frozen.facts, found, ["rule/d"])
    assert differences.text().splitlines() == [
        "rule/d: frozen, but not found any more",
        "count/a: was 1, is 2",
        "rows/b: from place 1 on was [2, 3], is [3, 2]",
        'rule/c: y was null, is "2 cd"',
        "new/e: not frozen; found 5",
    ]
    after = changed(frozen, found, ["rule/d"], "rule y is new", differences)
    assert after.facts == found
    assert after.reasons == ("rule y is new (5 facts: count, new, rows, rule)",)
    assert not Differences.between(after.facts, found)
