"""Rule shared-memory-scoping."""

from __future__ import annotations

from mapper.constraint_rules.rule import Mode, RuleOptions
from tests.unit.constraint_rules.nests import broken, listing_3, nest, tree_map

PAIR = (tree_map("P", memory="g>l"), tree_map("Q", memory="l>g"))


def test_the_legal_example_of_section_4_3():
    tree = listing_3(c="g>l", d="g>l", b="l>g")
    for mode in Mode:
        assert broken(tree, "A=W0 B=L0 C=L0 D=S", mode) == set()


def test_the_illegal_example_of_section_4_3():
    tree = listing_3(c="g>l", d="g>l", b="l>g")
    for mode in Mode:
        assert "shared-memory-scoping" in broken(tree, "A=G1 B=G0 C=G0 D=S", mode)


def test_strict_asks_for_every_group_dimension_of_the_kernel():
    # Q's chain alone does not tell that the kernel uses W1.
    tree = nest(tree_map("A", *PAIR), tree_map("R", tree_map("T")))
    assert "shared-memory-scoping" in broken(tree, "A=W0 P=L0 Q=L0 R=W1 T=L1")


def test_strict_looks_at_the_owner():
    tree = nest(tree_map("A", tree_map("B", memory="g>l", perfect=True), memory="g>l"))
    assert "shared-memory-scoping" in broken(tree, "A=W0 B=F")


def test_a_local_map_may_be_fused_with_a_local_map():
    pair = tree_map("P", tree_map("R", memory="g>l", perfect=True), memory="g>l")
    tree = nest(tree_map("A", pair, tree_map("Q", memory="l>g")))
    assert broken(tree, "A=W0 P=L0 R=F Q=L0") == set()


def test_a_free_grid_may_be_one_work_group():
    tree = nest(tree_map("A", *PAIR))
    free = RuleOptions(free_grid=True)
    for mapping in ("A=S P=S Q=S", "A=S P=L0 Q=L0", "A=L0 P=S Q=S"):
        assert "shared-memory-scoping" in broken(tree, mapping, local=(4, 1, 1))
        assert "shared-memory-scoping" not in broken(tree, mapping, options=free, local=(4, 1, 1))
    # Threads of a global map would share the one copy of their work-group.
    assert "shared-memory-scoping" in broken(tree, "A=G0 P=S Q=S", options=free)
    assert "shared-memory-scoping" in broken(tree, "A=S P=W0 Q=W0", options=free)
