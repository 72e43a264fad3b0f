"""Rule local-sizes."""

from __future__ import annotations

from mapper.constraint_rules.catalogue import derive
from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable
from tests.unit.constraint_rules.nests import nest, tree_map


def test_an_unused_dimension_has_one_thread():
    first, second, _ = (c for c in derive(nest(tree_map("A"))) if c.rule == "local-sizes")
    values = {CodeVariable("A"): 30, LocalSizeVariable("k", 0): 64, LocalSizeVariable("k", 1): 2}
    assert evaluate(first.predicate, values)
    assert not evaluate(second.predicate, values)
