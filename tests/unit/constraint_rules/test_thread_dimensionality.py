"""Rule thread-dimensionality."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from tests.unit.constraint_rules.nests import broken, nest, tree_map

TREE = nest(tree_map("A", tree_map("B")))


@pytest.mark.parametrize("mode", Mode)
def test_local_and_work_group_dimensions_are_the_same(mode: Mode):
    assert broken(TREE, "A=W0 B=L0", mode) == set()
    assert broken(TREE, "A=W0 B=L1", mode) == {"thread-dimensionality"}
    assert broken(TREE, "A=S B=L0", mode) == {"thread-dimensionality"}
    # Legal OpenCL with local size 1; the rule is kept as it is printed.
    assert broken(TREE, "A=W0 B=S", mode) == {"thread-dimensionality"}


def test_replicated_chains_are_exempt_but_the_kernel_is_not():
    tree = nest(tree_map("A", tree_map("P", memory="g>p"), tree_map("B", memory="gp>g")))
    options = RuleOptions(replicate_private=True)
    assert broken(tree, "A=W0 P=S B=L0", options=options) == set()
    assert "thread-dimensionality" in broken(tree, "A=W0 P=S B=S", options=options)


def test_a_free_grid_admits_one_work_item_or_one_work_group_a_dimension():
    free = RuleOptions(free_grid=True)
    assert broken(TREE, "A=W0 B=S", options=free, local=(1, 1, 1)) == set()
    assert broken(TREE, "A=W0 B=S", options=free, local=(4, 1, 1)) == {"thread-dimensionality"}
    assert broken(TREE, "A=W0 B=L1", options=free, local=(1, 4, 1)) == set()
    assert broken(TREE, "A=S B=L0", options=free) == set()


def test_a_free_grid_is_no_matter_of_paper_mode():
    free = RuleOptions(free_grid=True)
    for mapping in ("A=W0 B=S", "A=S B=L0"):
        assert broken(TREE, mapping, Mode.PAPER, free) == {"thread-dimensionality"}
