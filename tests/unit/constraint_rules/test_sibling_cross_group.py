"""Rule cross-group-dependence on bare trees."""

from __future__ import annotations

from dataclasses import replace

from mapper.constraint_rules.catalogue import derive
from tests.unit.constraint_rules.nests import broken, listing_1, nest, tree_map


def test_the_dependence_must_stay_inside_the_group():
    assert broken(listing_1("g"), "A=S B=G0 C=S D=G0 E=S") == {"cross-group-dependence"}
    assert broken(listing_1("g"), "A=G0 B=F C=F D=S E=F") >= {"perfect-nesting"}


def test_independent_siblings_are_free():
    tree = nest(tree_map("A", tree_map("B", memory="g>p"), tree_map("C", memory="g>g")))
    assert not [c for c in derive(tree) if c.rule == "cross-group-dependence"]


def test_known_buffers_are_left_to_the_exact_rule():
    tree = replace(listing_1("g"), known_buffers=True)
    rules = {c.rule for c in derive(tree)}
    assert not rules & {"cross-group-dependence", "synchronisability"}
