"""What counts as explained: a documented kind, and nothing of the rules of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.proofs.completeness.restrictions import RESTRICTIONS, explanations

PAGE = Path(__file__).parents[4] / "docs" / "completeness.md"


@pytest.mark.parametrize(
    "rules",
    [
        ("cross-group-dependence",),
        ("synchronisability",),
        ("exhaustive-writes",),
        ("exhaustive-indexing", "exhaustive-writes"),
        ("duplicate-scheduling",),
        ("device-limits",),
        ("synchronisability", "vectorisation"),
    ],
)
def test_a_refusal_by_an_exact_rule_has_no_excuse(rules: tuple[str, ...]) -> None:
    assert explanations(rules) == ()


def test_kinds_join() -> None:
    found = explanations(("private-memory-scoping", "vectorisation"))
    assert {item.name for item in found} == {"gathered vectors", "private array in parts"}


def test_every_kind_is_documented() -> None:
    text = PAGE.read_text(encoding="utf-8").lower()
    for item in RESTRICTIONS:
        assert item.name in text
