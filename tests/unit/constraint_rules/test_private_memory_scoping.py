"""Rule private-memory-scoping."""

from __future__ import annotations

from mapper.constraint_rules.rule import Mode
from tests.unit.constraint_rules.nests import broken, nest, tree_map

TREE = nest(tree_map("A", tree_map("B", memory="g>p", perfect=True)))


def test_a_private_map_is_not_parallel():
    for mode in Mode:
        assert "private-memory-scoping" in broken(TREE, "A=G0 B=G1", mode)
        assert broken(TREE, "A=G0 B=S", mode) == set()


def test_strict_looks_at_the_owner():
    assert broken(TREE, "A=G0 B=F", Mode.PAPER) == set()
    assert broken(TREE, "A=G0 B=F") == {"private-memory-scoping"}
    assert broken(TREE, "A=S B=F") == set()
