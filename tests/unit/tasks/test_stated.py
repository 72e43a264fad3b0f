"""What a request states beside subject, device and mode: a child keeps to it in every answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nestmap.tasks.known_spaces import KnownSpaces
from tests.unit.tasks.child_replies import HIGH_LEVEL, SMALL_SPACE, ask, fresh

LISTING = (Path(__file__).parents[3] / "examples" / "listing1_global.txt").read_text()
PROGRAM: dict[str, Any] = {"subject": {"text": LISTING}, "device": "h200"}
M1 = {"mapping": {"A": 30, "B": 0, "C": 0, "D": 0, "E": 0}, "local_sizes": {"out": [2, 1, 1]}}


def test_a_program_is_derived_once_whatever_is_stated_of_it():
    known = KnownSpaces()
    plain = known.of(dict(HIGH_LEVEL)).request
    stated = known.of({**HIGH_LEVEL, "where": ["code(row) == W0"]}).request
    assert stated.subject is plain.subject
    assert stated.space.constraints[: len(plain.space.constraints)] == plain.space.constraints
    assert len(stated.space.constraints) == len(plain.space.constraints) + 1


def test_constraints_of_one_s_own_hold_in_every_answer():
    where = {"where": ["code(row) == W0", "local_size(convolution, 0) <= 4"]}
    kept = fresh()
    everything = ask(kept, kind="count", **HIGH_LEVEL).end["count"]
    counted = ask(kept, kind="count", **HIGH_LEVEL, **where).end
    assert 0 < counted["count"] < everything and counted["constraints"]["where"] == 2
    listed = ask(kept, kind="mappings", **HIGH_LEVEL, **where).items
    assert len(listed) == counted["count"]
    assert all(item["mapping"]["row"] == 20 for item in listed)
    drawn = ask(kept, kind="sample", **HIGH_LEVEL, **where, count=2).items
    assert all(item["local_sizes"]["convolution"][0] <= 4 for item in drawn)
    rules = [item["rule"] for item in ask(kept, kind="constraints", **HIGH_LEVEL, **where).items]
    assert rules.count("where") == 2
    explained = ask(kept, kind="explain", **HIGH_LEVEL, **where, pin=["row=S"]).end
    parts = [part["constraint"] for part in explained["conflict"]["parts"]]
    assert parts == ["where/1", "pin/code(row)"]


def test_options_change_the_space_and_have_a_space_of_their_own():
    kept = fresh()
    plain = ask(kept, kind="count", **PROGRAM).end["count"]
    loose = ask(kept, kind="count", **PROGRAM, sequential_fusion=False, free_grid=True).end
    suited = ask(kept, kind="count", **PROGRAM, suits=["all,-suits-whole-warps"]).end
    assert loose["count"] > plain > suited["count"]
    assert "sequential-fusion" not in loose["preferences"]
    assert suited["preferences"]["suits-global-items"] > 0
    assert ask(kept, kind="count", **PROGRAM).end["count"] == plain


def test_a_mapping_that_breaks_preferences_alone_is_valid():
    end = ask(kind="check", **PROGRAM, mapping=M1, suits=["suits-global-items"]).end
    assert end["valid"] and end["violations"] == [] and "nearest" not in end
    assert {one["rule"] for one in end["preferences"]} == {"sequential-fusion"}
    stated = ask(kind="check", **PROGRAM, mapping=M1, where=["code(A) == W0"], nearest=False).end
    assert [one["rule"] for one in stated["violations"]] == ["where"]


@pytest.mark.parametrize(
    ("about", "path"),
    [
        ({**HIGH_LEVEL, "where": ["raw == W0"]}, "/where/0"),
        ({**HIGH_LEVEL, "where": "row"}, "/where"),
        ({**HIGH_LEVEL, "where": ""}, "/where"),
        ({**HIGH_LEVEL, "where": ["code(row) == W0"] * 33}, "/where"),
        ({**HIGH_LEVEL, "suits": ["suits-nothing"]}, "/suits"),
        ({**HIGH_LEVEL, "suits": ["all"], "mode": "paper"}, "/suits"),
        ({**HIGH_LEVEL, "free_grid": 1}, "/free_grid"),
        ({"subject": {"document": SMALL_SPACE}, "free_grid": True}, "/free_grid"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_pointer(about: dict[str, Any], path: str):
    problem = ask(kind="count", **about).problem
    assert [error["field"] for error in problem["problems"]] == [path]
