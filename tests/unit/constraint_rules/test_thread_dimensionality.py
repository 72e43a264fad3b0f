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
    # Legal OpenCL, but a local map of trip count 1 says the same: rule (5) is kept.
    assert broken(TREE, "A=W0 B=S", mode) == {"thread-dimensionality"}


def test_replicated_chains_are_exempt_but_the_kernel_is_not():
    tree = nest(tree_map("A", tree_map("P", memory="g>p"), tree_map("B", memory="gp>g")))
    options = RuleOptions(replicate_private=True)
    assert broken(tree, "A=W0 P=S B=L0", options=options) == set()
    assert "thread-dimensionality" in broken(tree, "A=W0 P=S B=S", options=options)
