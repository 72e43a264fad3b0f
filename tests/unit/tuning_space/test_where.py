"""Constraints of one's own: over parameters, codes and local sizes, read and refused as is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.predicate import (
    Assignment,
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    to_text,
)
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import InputError
from mapper.pipeline import derive_space, subject_of_program, subject_of_space
from mapper.profiles import load_profile
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.explanation import explain_conflict
from mapper.solver.restrictions import Restrictions
from mapper.solver.space import Space, check
from mapper.tuning_space.codec import space_from_json
from mapper.tuning_space.where import MAX_WHERE, with_where

A, B = CodeVariable("A"), CodeVariable("B")
SIZE, TILE = LocalSizeVariable("out", 0), ParameterVariable("tile")
TILES = """program "tiles" {
  size N = 64
  param tile in {2, 4, 8}
  fun f(x) = x * 2.0
  input x : [float]N
  kernel out = join(map#A(row => map#B(v => f(v), row), split(tile, x)))
}
"""


@pytest.fixture(scope="module")
def space() -> Space:
    subject = subject_of_program(parse(TILES))
    return derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())


@pytest.fixture(scope="module")
def everything(space: Space) -> list[Assignment]:
    with enumerate_assignments(space) as found:
        return list(found)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tile * local_size(out, 0) <= 32", lambda a: a[TILE] * a[SIZE] <= 32),
        ("code(A) in [W0, W1] or code(B) == S", lambda a: a[A] in (20, 21) or a[B] == 0),
        ("code(B) not in (F, S)", lambda a: a[B] not in (0, 1)),
        ("code('A')=='G0' and tile>2", lambda a: a[A] == 30 and a[TILE] > 2),
        ("(tile if code(B) == L0 else 2)==2", lambda a: a[B] != 10 or a[TILE] == 2),
    ],
)
def test_what_is_left_is_what_the_expression_says(
    space: Space, everything: list[Assignment], text: str, holds: Callable[[Assignment], bool]
):
    wanted = sum(map(holds, everything))
    assert 0 < wanted < len(everything)
    assert count_assignments(with_where(space, [text])) == wanted


def test_it_is_a_constraint_with_a_place_a_source_and_a_remedy(space: Space):
    one, two = with_where(space, ["tile<8", "code(A) == W0"]).constraints[-2:]
    assert (one.id, two.id, two.rule) == ("where/1", "where/2", "where")
    assert two.subjects == ("A",) and to_text(two.predicate) == "code(A) = W0"
    assert (two.sentence, str(two.provenance)) == ("code(A) == W0", "stated by the user")
    assert two.remedy == "choose other values of code(A), or leave the constraint out"
    assert to_text(one.predicate) == "tile < 8"


def test_a_mapping_that_breaks_it_is_told_so(space: Space, everything: list[Assignment]):
    whole = with_where(space, ["tile == 8"])
    broken = next(a for a in everything if a[TILE] == 4)
    assert [violation.constraint for violation in check(whole, broken)] == ["where/1"]


def test_it_is_part_of_minimal_conflicts(space: Space):
    stated = with_where(space, ["code(A) == W0", "tile > 2"])
    found = explain_conflict(stated, Restrictions({TILE: 2}))
    assert found is not None and found.minimal
    assert [part.constraint for part in found.parts] == ["where/2", "pin/tile"]
    contradiction = explain_conflict(with_where(space, ["code(A) == W0", "code(A) == S"]))
    assert contradiction is not None
    assert [part.constraint for part in contradiction.parts] == ["where/1", "where/2"]


def test_nothing_stated_is_the_same_space(space: Space):
    assert with_where(space, []) is space


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("tyle < 3", "column 1: there is no such parameter", "tile"),
        ("A == W0", "column 1: there is no such parameter", "code(A)"),
        ("code(AA) == W0", "column 1: there is nothing of this name", "code(A)"),
        ("local_size(oud, 0) < 3", "there is nothing of this name", "local_size(out, 0)"),
        ("code(A) == 'W7'", "code(A) has no such value", ""),
        ("code(A) == 20", "things of two kinds are compared", ""),
        ("code(A) * 2 == 4", "a number is wanted here", ""),
        ("code(A", "')' is missing", ""),
        ("code() == S", "a name is missing", ""),
        ("tile", "a condition is wanted here", ""),
        ("1 < 2", "the constraint names nothing that is chosen", ""),
        ("", "an operand is missing", ""),
        ("open('f') == 1", "not a function", ""),
        ("tile.bit_length() < 3", "this is not part of the language", ""),
        ("(" * 70 + "tile" + ")" * 70 + " < 3", "nested too deeply", ""),
        ("tile < 3" + " and tile < 3" * 400, "the expression is too long", ""),
    ],
)
def test_refusals_say_where_what_and_what_there_is(
    space: Space, text: str, message: str, remedy: str
):
    with pytest.raises(InputError) as error:
        with_where(space, ["tile < 8", text], "/where")
    (problem,) = error.value.problems
    assert problem.path == "/where/1"
    assert message in problem.message
    assert remedy in problem.remedy


def test_all_that_is_wrong_is_said_at_once_and_there_are_bounds(space: Space):
    with pytest.raises(InputError) as error:
        with_where(space, ["tyle < 3", "code(C) == S"])
    assert [problem.path for problem in error.value.problems] == ["--where", "--where"]
    assert "code(A), code(B)" in error.value.problems[1].allowed
    with pytest.raises(InputError, match="too many constraints"):
        with_where(space, ["tile < 8"] * (MAX_WHERE + 1))


def test_a_parameter_called_as_a_code_is_goes_first():
    text = TILES.replace("tile", "S")
    subject = subject_of_program(parse(text))
    space = derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())
    stated = with_where(space, ["S < 8", "code(B) == 'S'"])
    assert [to_text(c.predicate) for c in stated.constraints[-2:]] == ["S < 8", "code(B) = S"]


def test_a_tuning_space_s_labels_and_switches_are_named_as_in_its_own_constraints():
    document = {
        "schema": "nestmap/space/1", "name": "small", "source": "a test",
        "parameters": {"layout": ["row", "column"], "fast": [False, True], "width": [1, 2, 4]},
        "constraints": [],
    }  # fmt: skip
    space = subject_of_space(space_from_json(document)).parameter_space
    assert space is not None
    stated = with_where(space, ["layout == 'row' or width == 1", "fast"])
    assert count_mappings(stated).mappings == 4
