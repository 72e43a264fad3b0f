"""Rule local-hierarchy."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from tests.unit.constraint_rules.nests import broken, nest, tree_map


@pytest.mark.parametrize("mode", Mode)
def test_no_work_group_map_inside_a_local_map_of_its_dimension(mode: Mode):
    tree = nest(tree_map("A", tree_map("B")))
    assert broken(tree, "A=L0 B=W0", mode) == {"local-hierarchy"}
    deep = nest(tree_map("A", tree_map("B", tree_map("C", tree_map("D")))))
    assert broken(deep, "A=W0 B=L0 C=W1 D=L1", mode) == set()


def test_a_free_grid_does_without_it_in_strict_mode_only():
    tree = nest(tree_map("A", tree_map("B")))
    free = RuleOptions(free_grid=True)
    assert broken(tree, "A=L0 B=W0", Mode.STRICT, free) == set()
    assert broken(tree, "A=L0 B=W0", Mode.PAPER, free) == {"local-hierarchy"}
