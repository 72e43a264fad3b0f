"""Rule synchronisability on bare trees."""

from __future__ import annotations

from mapper.constraint_rules.catalogue import derive
from mapper.constraint_rules.predicate import to_text
from tests.unit.constraint_rules.nests import broken, nest, tree_map

TREE = nest(
    tree_map(
        "A",
        tree_map("B", tree_map("P", memory="g>l"), tree_map("Q", memory="l>g"), trip=6),
    )
)


def test_no_barrier_where_one_thread_does_both():
    # The buffer is one thread's own: raggedness does no harm.
    assert broken(TREE, "A=W0 B=L0 P=S Q=S", local=(4, 1, 1)) == set()


def test_the_text():
    (found,) = [c for c in derive(TREE) if c.rule == "synchronisability"]
    assert "code(B) ≠ L0 or 6 % local_size(k, 0) = 0" in to_text(found.predicate)
