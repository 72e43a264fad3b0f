"""Expressions: what is read, what is refused and where, and that nothing is too much."""

from __future__ import annotations

import sys

import pytest

from mapper.constraint_rules.predicate import to_text
from mapper.errors import InputError, LimitError, Problem
from mapper.tuning_space.document import TuningConstraint, TuningParameter, TuningSpace
from mapper.tuning_space.language import MAX_CHARACTERS, parse_expression
from mapper.tuning_space.lowering import solver_space

PARAMETERS = (
    TuningParameter("x", (1, 2, 4)),
    TuningParameter("tile_size", (1, 2, 4)),
    TuningParameter("zero", (0, 1)),
    TuningParameter("many", (0, 1, 2)),
    TuningParameter("layout", ("row", "column")),
    TuningParameter("cached", (False, True)),
    TuningParameter("word", (32,)),
)


def lowered(text: str) -> str:
    (constraint,) = solver_space(
        TuningSpace("s", PARAMETERS, (TuningConstraint(text),))
    ).constraints
    return to_text(constraint.predicate)


def refused(text: str) -> Problem:
    with pytest.raises(InputError) as caught:
        lowered(text)
    (problem,) = caught.value.problems
    assert problem.path == "/constraints/0"
    return problem


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "an operand is missing; found the end"),
        ("x +", 4, "an operand is missing; found the end"),
        ("x + * 2 > 1", 5, "an operand is missing; found '*'"),
        ("(x > 1", 7, "')' is missing; found the end"),
        ("x > 1)", 6, "cannot stand here; found ')'"),
        ("x > 1 x", 7, "cannot stand here; found 'x'"),
        ("x = 1", 3, "not an operator of this language; found '='"),
        ("x == 1 && x > 0", 8, "not an operator of this language; found '&&'"),
        ("x == 1 || x > 0", 8, "not an operator of this language; found '||'"),
        ("!cached", 1, "not an operator of this language; found '!'"),
        ("x <> 1", 3, "not an operator of this language; found '<>'"),
        ("x * 1.5 > 2", 5, "not an integer; found '1.5'"),
        ("x > 1e3", 5, "not an integer; found '1e3'"),
        ("x > .5", 5, "not an integer; found '.5'"),
        ("x > 0x10", 5, "not an integer; found '0x10'"),
        ("x > 010", 5, "not an integer; found '010'"),
        ("x > 1__0", 5, "not an integer; found '1__0'"),
        ("x > 9223372036854775808", 5, "an integer is too large"),
        ("x > " + "9" * 4000, 5, "an integer is too large"),
        ("x > NaN", 5, "there is no such parameter; found 'NaN'"),
        ("x.__class__ == 1", 2, "not part of the language; found '.'"),
        ("x.real1 == 1", 2, "not part of the language; found '.'"),
        ("__import__('os')", 1, "not a function; found '__import__'"),
        ("pow(x, 2) > 1", 1, "not a function; found 'pow'"),
        ("max > 1", 5, "max is a function"),
        ("max(x) > 1", 1, "max takes two or more numbers"),
        ("abs(x, 1) > 1", 1, "abs takes one number"),
        ("lambda: 1", 1, "an operand is missing; found 'lambda'"),
        ("(y := x) > 1", 4, "not part of the language; found ':='"),
        ("f'{x}' == 'row'", 1, 'not part of the language; found "f\'"'),
        ("x[0] > 1", 2, "cannot stand here; found '['"),
        ("[1, 2]", 1, "an operand is missing; found '['"),
        ("x in {1, 2}", 6, "not part of the language; found '{'"),
        ("x in 1", 6, "a list is missing"),
        ("x in (1)", 6, "a list of one is written in brackets"),
        ("x in [1] == cached", 10, "a list ends a comparison"),
        ("x in [1 2]", 9, "']' is missing"),
        ("x not > 1", 7, "'in' is missing"),
        ("x is 1", 3, "cannot stand here; found 'is'"),
        ("x >> 1", 4, "an operand is missing; found '>'"),
        ("x & 1 == 0", 3, "not an operator of this language; found '&'"),
        ("x + not cached", 5, "an operand is missing; found 'not'"),
        ("x if cached", 12, "'else' is missing"),
        ("+x > 1", 1, "an operand is missing; found '+'"),
        ("layout == 'row", 11, "the text is not closed"),
        ("layout == 'r\\x6fw'", 11, "the text is not closed, or has a backslash"),
        ("x > 1 # really", 7, "not part of the language; found '#'"),
        ("x > ٣", 5, "not part of the language"),
        ("x\x00 > 1", 2, "not part of the language"),
        ("None == x", 1, "an operand is missing; found 'None'"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_column(text: str, column: int, words: str):
    problem = refused(text)
    assert problem.message.startswith(f"column {column}: ")
    assert words in str(problem)
    assert "⟨here⟩" in problem.found


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("tile_sise > 1", 1, "no such parameter; found 'tile_sise'"),
        ("'a' < 3", 5, "things of two kinds are compared; found a text and a number"),
        ("layout < 'row'", 8, "a text has no order"),
        ("layout == 'rov'", 11, "layout has no such value; found 'rov'"),
        ("layout in ['row', 'diagonal']", 19, "layout has no such value; found 'diagonal'"),
        ("cached == 1", 8, "things of two kinds are compared; found a condition and a number"),
        ("cached > false", 8, "a condition has no order"),
        ("cached + 1 > 1", 1, "a number is wanted here; found a condition"),
        ("x", 1, "a condition is wanted here; found a number"),
        ("x % 2", 3, "a condition is wanted here; found a number"),
        ("not x", 5, "a condition is wanted here; found a number"),
        ("x and cached", 1, "a condition is wanted here; found a number"),
        ("layout", 1, "a condition is wanted here; found a text"),
        ("layout * 2 == 2", 1, "a number is wanted here; found a text"),
        ("-(x > 1) == 1", 5, "a number is wanted here; found a condition"),
        ("x ** (zero + 1) == 1", 3, "not an exponent"),
        ("x ** -zero == 1", 3, "not an exponent"),
        ("x ** 65 == 1", 3, "not an exponent; found 65"),
        ("x ** -1 == 1", 3, "not an exponent; found -1"),
        ("2 ** 10 ** 9 > x", 3, "not an exponent; found 1000000000"),
        ("x ** (1/2) == 1", 3, "not an exponent"),
        ("(1 if cached else x > 1) == 1", 4, "the branches are of two kinds"),
        ("layout == ('row' if cached else 'column')", 18, "texts cannot be chosen between"),
        ("x in [1, 'a']", 3, "things of two kinds are compared"),
    ],
)
def test_what_has_no_meaning_is_refused_at_its_column(text: str, column: int, words: str):
    problem = refused(text)
    assert problem.message.startswith(f"column {column}: ")
    assert words in str(problem)


def test_a_near_miss_is_proposed():
    assert refused("tile_sise > 1").remedy == "tile_size"
    assert refused("layout == 'rov'").remedy == "'row'"
    assert refused("x == 1 && x > 0").remedy == "and"
    assert refused("x = 1").remedy == "=="


def test_a_place_in_several_lines_names_the_line():
    assert refused("x > 1 and\n  x < <").message.startswith("line 2, column 7: ")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "x" + ")" * 10_000,
        "(" * 1_000 + "x" + ")" * 1_000 + " > 1",
        "-" * 4_000 + "x > 1",
        "not " * 1_000 + "cached",
        "x if cached else " * 200 + "1 > 0",
        "2 **" * 1_000 + "2 > 1",
        "min(x, " * 500 + "1" + ")" * 500 + "> 1",
        "x" * 5_000,
        "x + " * 5_000 + "x > 1",
        "x > " + "9" * 5_000,
    ],
)
def test_hostile_lengths_and_depths_are_refused(text: str):
    found = refused(text)
    assert "too" in found.message or "not an exponent" in found.message
    assert len(str(found)) < 500


def test_a_million_characters_are_refused_unread():
    with pytest.raises(InputError, match="too long together"):
        lowered("x + " * 250_000 + "x > 1")


@pytest.mark.parametrize(
    "text",
    [
        "x ** 64 ** 1 * x ** 64 * x ** 64 * x ** 64 * x ** 64 > 1",
        "((((((2 ** 64) ** 64) ** 64) ** 64) ** 64) ** 64) ** 64 > x",
        # Each level doubles what stands in the level before.
        "abs(" * 25 + "x - 2" + ") - 1" * 25 + " > 0",
        "(" * 25 + "cached" + " == (x > 1))" * 25,
        # A continued fraction grows like Fibonacci's numbers.
        "1/(x+" * 20 + "1" + ")" * 20 + " > 0",
        "x % -(x - " * 15 + "1" + ")" * 15 + " > 0",
        "x " + "% (x + zero - 1) " * 200 + " == 0",
        " or ".join(f"x % zero == {i}" for i in range(200)),
    ],
)
def test_what_would_grow_without_end_is_refused(text: str):
    with pytest.raises(LimitError) as caught:
        lowered(text)
    assert caught.value.problems[0].path == "/constraints/0"


def test_a_long_chain_is_no_deep_one():
    assert len(parse_expression(" + ".join(["x"] * (MAX_CHARACTERS // 4))).rest) == 1023  # pyright: ignore[reportAttributeAccessIssue]
    assert lowered(" + ".join(["x"] * 1000) + " > 10")
    assert lowered(" and ".join(["x > 1"] * 400)) == "x > 1"


def test_depth_does_not_depend_on_who_asks():
    """The deepest expression that is read is also lowered, far down in somebody's stack."""
    text = "(" * 30 + "x" + ")" * 30 + " > 1"

    def deep(levels: int) -> str:
        return deep(levels - 1) if levels else lowered(text)

    assert deep(sys.getrecursionlimit() // 2) == "x > 1"


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("x / tile_size % zero == 0", "zero ≠ 0 and x % (zero * tile_size) = 0"),
        ("many != 0 and x % many == 0", "many ≠ 0 and x % many = 0"),
        ("many > 0 and x % many == 0", "many > 0 and x % many = 0"),
        ("many == 0 or x % many == 0", "many = 0 or x % many = 0"),
        (
            "x // many != 0 and 8 % (x // many) == 0",
            "many ≠ 0 and x // many ≠ 0 and 8 % (x // many) = 0",
        ),
        ("zero != 0 and x % zero == 0", "zero ≠ 0"),
        ("word % x == 0", "32 % x = 0"),
        ("x in [1, 2, 8]", "x in {1, 2, 8}"),
        ("layout == 'column'", "layout = column"),
        ("cached", "cached = true"),
        ("cached != true", "cached ≠ true"),
        ("word > 3", "true"),
        ("x <= 3/2 * tile_size", "2 * x ≤ 3 * tile_size"),
        ("1 / zero > 0", "zero ≠ 0"),
        ("x // 2 == 1", "x // 2 = 1"),
        ("1_000 > x", "true"),
        (
            "2 ** many < x",
            "(if many = 0 then 1 else 0) + (if many = 1 then 2 else 0) + "
            "(if many = 2 then 4 else 0) < x",
        ),
        ("x\n  > 1", "x > 1"),
    ],
)
def test_what_is_lowered_is_simple(text: str, predicate: str):
    assert lowered(text) == predicate
