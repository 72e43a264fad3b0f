"""Where not everything is tried, every two values meet, and `make kernels` tries all."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests import effort


def test_every_two_values_meet_in_half_of_the_combinations(monkeypatch: pytest.MonkeyPatch):
    values = ("abc", "xy", "12345")
    monkeypatch.setattr(effort, "LONG", False)
    some = effort.combined(*values)
    monkeypatch.setattr(effort, "LONG", True)
    every = effort.combined(*values)
    assert every == list(product(*values)) and set(some) < set(every)
    assert len(some) == len(every) / 2
    for first, second in combinations(range(3), 2):
        pairs = {(chosen[first], chosen[second]) for chosen in some}
        assert pairs == set(product(values[first], values[second]))


def test_how_many_cases_at_random(monkeypatch: pytest.MonkeyPatch):
    for long, count in ((False, 3), (True, 12)):
        monkeypatch.setattr(effort, "LONG", long)
        assert effort.cases(3, 12) == count
