"""Rule duplicate-scheduling."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.catalogue import derive
from mapper.constraint_rules.predicate import to_text
from mapper.constraint_rules.rule import Mode
from tests.unit.constraint_rules.nests import broken, nest, tree_map

TREE = nest(tree_map("A", tree_map("B", tree_map("C"))))


@pytest.mark.parametrize("mode", Mode)
def test_nested_maps_have_different_parallel_codes(mode: Mode):
    assert broken(TREE, "A=G0 B=S C=G0", mode) == {"duplicate-scheduling"}
    assert broken(TREE, "A=G0 B=S C=S", mode) == set()
    assert broken(TREE, "A=G0 B=S C=G1", mode) == set()


def test_the_text():
    found = {c.id: to_text(c.predicate) for c in derive(TREE)}
    assert found["duplicate-scheduling/B"] == (
        "code(B) not in {L0, L1, L2, W0, W1, W2, G0, G1, G2} or code(B) ≠ code(C)"
    )
