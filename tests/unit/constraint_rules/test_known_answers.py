"""What CC'22 publishes, and the verdicts of its Table 1."""

from __future__ import annotations

from collections import Counter

import pytest

from mapper.constraint_rules.catalogue import derive
from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.solver.counting import count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.space import Space, build_space, check
from tests.unit.constraint_rules.nests import (
    broken,
    listing_1,
    listing_3,
    published_golden,
    published_tree,
)


def test_the_published_tree_has_123_constraint_instances():
    instances = Counter(c.rule for c in derive(published_tree(), Mode.PAPER))
    assert instances.pop("sequential-fusion") == 25
    # Table 4 counts the ban on mixing with shared memory.
    shared = instances.pop("shared-memory-scoping") + instances.pop("no-mixing")
    assert shared == 13
    assert instances == {
        "private-memory-scoping": 32,
        "duplicate-scheduling": 34,
        "thread-dimensionality": 1,
        "local-hierarchy": 34,
        "exhaustive-indexing": 9,
    }
    assert shared + instances.total() == 123


def test_the_published_tree_has_41094_mappings():
    space = build_space(published_tree(), Mode.PAPER)
    by_dimensions: Counter[str] = Counter()
    with enumerate_assignments(space) as found:
        for assignment in found:
            used = {code % 10 for code in assignment.values() if code >= 10}
            by_dimensions[str(len(used))] += 1
    assert found.complete
    golden = published_golden()
    assert by_dimensions == golden["by_dimensions_used"]
    assert found.count == golden["mappings_paper_mode"] == 41_094


def test_counting_agrees_with_enumeration():
    count = count_mappings(build_space(published_tree(), Mode.PAPER))
    assert (count.mappings, count.complete) == (41_094, True)


def test_strict_mode_admits_only_what_paper_mode_does():
    paper = build_space(published_tree(), Mode.PAPER)
    codes = [variable for variable, _ in paper.variables]
    strict = build_space(published_tree(), Mode.STRICT)
    # Rule 1 is the same for codes; what strict adds only takes away.
    with enumerate_assignments(strict, limit=300) as found:
        for assignment in found:
            rest = {variable: assignment[variable] for variable in codes}
            assert check(paper, rest) == ()


@pytest.mark.parametrize(
    ("flags", "mappings"),
    [
        ({}, 40),
        ({"d": "g>p", "b": "p>g"}, 4),
        ({"c": "g>l", "d": "g>g", "b": "l>g"}, 9),
    ],
)
def test_listing_3(flags: dict[str, str], mappings: int):
    count = count_mappings(build_space(listing_3(**flags), Mode.PAPER))
    assert count.complete
    assert count.mappings == mappings


def test_listing_3_by_the_printed_formula_of_rule_2_alone():
    space = build_space(listing_3(c="g>l", b="l>g"), Mode.PAPER)
    printed = tuple(c for c in space.constraints if not c.id.endswith("/some-work-group"))
    assert len(printed) == len(space.constraints) - 1
    assert count_mappings(Space(space.variables, printed)).mappings == 13


def test_the_printed_rule_2_admits_a_local_buffer_under_global_maps():
    tree = listing_3(c="g>l", b="l>g")
    mapping = "A=G0 B=S C=S D=F"
    space = build_space(tree, Mode.PAPER)
    codes = {"A": 30, "B": 0, "C": 0, "D": 1}
    assignment: dict[Variable, int] = {CodeVariable(name): code for name, code in codes.items()}
    assert [v.constraint for v in check(space, assignment)] == [
        "shared-memory-scoping/k/some-work-group"
    ]
    assert broken(tree, mapping) == {"shared-memory-scoping"}


M1 = "A=G0 B=S C=F D=S E=F"
M2 = "A=G1 B=G0 C=S D=G0 E=S"
M3 = "A=S B=W0 C=L0 D=W0 E=L0"
M4 = "A=W0 B=L0 C=S D=L0 E=S"
M5 = "A=W0 B=L0 C=S D=L0 E=V4"
M6 = "A=W0 B=L0 C=S D=S E=L0"


@pytest.mark.parametrize(
    ("buffer", "mapping", "rules"),
    [
        ("g", M1, set()),
        # A local buffer that one thread alone uses is what private memory is for.
        ("l", M1, {"shared-memory-scoping"}),
        ("g", M2, {"cross-group-dependence"}),
        ("l", M2, {"shared-memory-scoping", "cross-group-dependence"}),
        ("g", M3, {"cross-group-dependence"}),
        ("l", M3, {"shared-memory-scoping", "cross-group-dependence"}),
        ("g", M4, set()),
        ("l", M4, set()),
        ("g", M5, {"vectorisation"}),
        ("l", M5, {"vectorisation"}),
        ("g", M6, set()),
        ("l", M6, set()),
    ],
)
def test_table_1(buffer: str, mapping: str, rules: set[str]):
    assert broken(listing_1(buffer), mapping) == rules


def test_table_1_prints_m1_with_two_sequential_loops():
    printed = M1.replace("F", "S")
    assert broken(listing_1("g"), printed) == {"sequential-fusion"}
    switched_off = RuleOptions(sequential_fusion=False)
    assert broken(listing_1("g"), printed, options=switched_off) == set()


def test_every_constraint_says_why_and_what_to_do():
    for mode in Mode:
        for constraint in derive(published_tree(), mode):
            assert constraint.sentence and constraint.remedy and str(constraint.provenance)
            assert constraint.id.startswith(constraint.rule + "/")
    assert CodeVariable(28) in dict(build_space(published_tree()).variables)
