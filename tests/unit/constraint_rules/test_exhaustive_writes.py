"""Rule exhaustive-writes."""

from __future__ import annotations

from mapper.constraint_rules.catalogue import derive
from mapper.constraint_rules.rule import RuleOptions
from tests.unit.constraint_rules.nests import broken, nest, tree_map

OPTIONS = RuleOptions(replicate_private=True)


def test_shared_writes_have_all_dimensions_around_them():
    tree = nest(tree_map("A", tree_map("B", memory="g>g"), tree_map("C", memory="g>g")))
    assert "exhaustive-writes" in broken(tree, "A=S B=S C=G0", options=OPTIONS)


def test_private_writes_do_not_count():
    tree = nest(tree_map("A", tree_map("B", memory="g>p"), tree_map("C", memory="g>g")))
    found = [c.id for c in derive(tree, options=OPTIONS) if c.rule == "exhaustive-writes"]
    assert found == ["exhaustive-writes/C"]
