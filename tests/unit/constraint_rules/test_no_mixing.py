"""Rule no-mixing."""

from __future__ import annotations

from mapper.constraint_rules.rule import Mode
from tests.unit.constraint_rules.nests import broken, nest, tree_map

TREE = nest(tree_map("A", tree_map("B", tree_map("C"))))


def test_global_and_grouped_maps_do_not_mix():
    for mode in Mode:
        assert broken(TREE, "A=W1 B=L1 C=G0", mode) == {"no-mixing"}
        assert broken(TREE, "A=G1 B=G0 C=S", mode) == set()
        assert broken(TREE, "A=W1 B=L1 C=S", mode) == set()
